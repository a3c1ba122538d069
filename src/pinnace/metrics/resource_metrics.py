"""metrics.k8s.io: the usage of nodes and pods, served by this process where its nodes know it.

An APIService with a service, such as v1beta1.metrics.k8s.io of metrics-server, takes the place of both versions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

import orjson

from pinnace.extensions.aggregation.backend_table import ApiServices
from pinnace.metrics.measured_pods import MeasuredPod, MeasuredPods, shared_metadata
from pinnace.model import errors, quantity
from pinnace.model.objects import Object
from pinnace.model.quantity import Format, Quantity
from pinnace.model.selectors import FieldSelector, LabelSelector, field_selector, label_selector
from pinnace.node.simulated.machines import MARK
from pinnace.process.byte_streams import Duplex
from pinnace.process.clock import Clock, to_rfc3339
from pinnace.process.work_slices import DECODING, in_turns
from pinnace.serving.cache.fanout import Fanout
from pinnace.serving.cache.watch_cache import CachedObject

GROUP, VERSIONS = "metrics.k8s.io", ("v1", "v1beta1")
USAGE = "kwok.x-k8s.io/usage-"
"""Annotations of a pod, followed by cpu or memory: the usage of each of its containers, as with KWOK."""
_PODS, _NODES = "/registry/core/pods/", "/registry/core/nodes/"
_WINDOW = "15s"
_IDLE = {"cpu": quantity.parse("1m"), "memory": quantity.parse("1Mi")}
_FIELDS = ("metadata.name", "metadata.namespace")

USAGE_PREFIXES = ("/registry/kwok.x-k8s.io/resourceusages/", "/registry/kwok.x-k8s.io/clusterresourceusages/")
"""The keys of KWOK's usage objects, which exist only with their CustomResourceDefinitions. Single pods come first."""

ContainerUsages = Mapping[str, Mapping[str, Quantity]]
"""The usage of each container of a pod, by resource."""


class UsageSource(Protocol):
    """A kind of nodes that knows the usage of its pods."""

    async def refresh(self) -> None:
        """Bring the values up to date. Called before each answer; values of a few seconds ago are good enough."""

    def usage_of(self, pod: Object, node: Object) -> ContainerUsages | None:
        """Return the usage of a running pod; None if its node is of another kind, or has no value yet."""

    def node_usage_of(self, node: Object) -> Mapping[str, Quantity] | None:
        """Return the usage that the node measures for itself; None if it is the sum of its pods."""


class AnnotatedUsage:
    """The usage of pods on simulated nodes: by their annotations, an amount or a percentage of the request."""

    async def refresh(self) -> None:
        """Annotations are always up to date."""

    def usage_of(self, pod: Object, node: Object) -> ContainerUsages | None:
        if MARK not in (node["metadata"].get("annotations") or {}):
            return None
        annotations = pod["metadata"].get("annotations") or {}
        return {
            container["name"]: {
                resource: amount_of(annotations.get(f"{USAGE}{resource}", ""), container, resource)
                for resource in _IDLE
            }
            for container in pod["spec"].get("containers") or ()
        }

    def node_usage_of(self, node: Object) -> Mapping[str, Quantity] | None:
        return None


class UsageObjects:
    """The usage of simulated pods by KWOK's objects. Nothing is loaded for it until there is such an object."""

    def __init__(self, fanout: Fanout, make: Callable[[], UsageSource]) -> None:
        self._fanout = fanout
        self._make = make
        self._source: UsageSource | None = None

    async def refresh(self) -> None:
        """Compute the usage, if there is an object."""
        if self._source is None and any(self._fanout.size(prefix)[0] for prefix in USAGE_PREFIXES):
            self._source = self._make()
        if self._source is not None:
            await self._source.refresh()

    def usage_of(self, pod: Object, node: Object) -> ContainerUsages | None:
        return self._source.usage_of(pod, node) if self._source is not None else None

    def node_usage_of(self, node: Object) -> Mapping[str, Quantity] | None:
        return None


@dataclass(frozen=True, slots=True)
class MeasuredUsage:
    """The sources and the objects that all versions of the API share."""

    sources: list[UsageSource]
    objects: MeasuredPods


class ResourceMetrics:
    """Answers for one version of metrics.k8s.io like an aggregated server, without leaving the process."""

    group = GROUP
    unavailable_reason = ""
    is_local = True
    openapi_url = ""
    resources: Sequence[Object] = (
        {"name": "nodes", "singularName": "", "namespaced": False, "kind": "NodeMetrics", "verbs": ["get", "list"]},
        {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": ["get", "list"]},
    )

    def __init__(self, version: str, fanout: Fanout, clock: Clock, usage: MeasuredUsage) -> None:
        self.version = version
        self.name = f"{version}.{GROUP}"
        self.usage = usage
        self._fanout = fanout
        self._clock = clock
        self._sources = usage.sources
        self._objects = usage.objects
        self._api_version = f"{GROUP}/{version}".encode()
        self._pod_head = b'{"kind":"PodMetrics","apiVersion":"%b","metadata":' % self._api_version
        self._node_head = self._pod_head.replace(b"PodMetrics", b"NodeMetrics")

    async def openapi(self) -> tuple[bytes, str]:
        raise OSError("metrics.k8s.io has no OpenAPI document here")

    async def openapi_v2(self) -> tuple[bytes, str]:
        return b"", ""

    async def connect(self) -> tuple[Duplex, str]:
        raise OSError("metrics.k8s.io has no protocol to switch to")

    async def send(
        self, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes, *, is_long: bool
    ) -> LocalAnswer:
        """Answer a request that the server has authorized."""
        parts = urlsplit(target)
        path = parts.path.removeprefix(f"/apis/{GROUP}/{self.version}").strip("/").split("/")
        try:
            if method not in ("GET", "HEAD"):
                raise errors.MethodNotAllowed(method.lower(), group=GROUP, plural=path[-1])
            if path != [""]:
                for source in self._sources:
                    await source.refresh()
                self._objects.prune(len(self._fanout.cache(_PODS).entries), len(self._fanout.cache(_NODES).entries))
            answer = await self._answer(path, {name: values[0] for name, values in parse_qs(parts.query).items()})
        except errors.ApiError as error:
            return LocalAnswer(error.code, orjson.dumps(error.status))
        return LocalAnswer(200, answer)

    async def _answer(self, path: Sequence[str], query: Mapping[str, str]) -> bytes:
        if "watch" in query:
            raise errors.MethodNotAllowed("watch", group=GROUP, plural=path[-1])
        labels = label_selector(query.get("labelSelector", ""))
        fields = field_selector(query.get("fieldSelector", ""))
        match path:
            case [""]:
                page = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": self._api_version.decode()}
                return orjson.dumps({**page, "resources": self.resources})
            case ["nodes"]:
                return await self._list(b"NodeMetricsList", self._nodes(labels, fields))
            case ["nodes", name]:
                return await _first(self._nodes(labels, fields, only=name), "nodes", name)
            case ["pods"]:
                return await self._list(b"PodMetricsList", self._pods("", labels, fields))
            case ["namespaces", namespace, "pods"]:
                return await self._list(b"PodMetricsList", self._pods(namespace, labels, fields))
            case ["namespaces", namespace, "pods", name]:
                return await _first(self._pods(namespace, labels, fields, only=name), "pods", f"{namespace}/{name}")
        raise errors.NoSuchPath

    async def _pods(
        self, namespace: str, labels: LabelSelector, fields: FieldSelector, *, only: str = ""
    ) -> AsyncIterator[bytes]:
        """Yield encoded PodMetrics, put together from parts: a round of autoscalers reads those of all pods."""
        cache, nodes = self._fanout.cache(_PODS), self._fanout.cache(_NODES).entries
        times = _times(to_rfc3339(self._clock.now()))
        equalities = labels.equalities()
        async for _ in in_turns(cache.index_labels() if equalities else ()):
            pass
        if only:
            keys = [f"{namespace}/{only}"]
        elif equalities:
            keys = cache.keys_with_labels(equalities, namespace)
        else:
            keys = cache.keys_of(namespace)
        async for some in in_turns(keys, cost=DECODING):
            for key in some:
                entry = cache.entries.get(key)
                if entry is None or not _is_selected(entry, key, labels, fields):
                    continue
                pod = self._objects.pod(key, entry)
                usage = self._usage_of(pod, nodes)
                if usage:
                    containers = orjson.dumps([{"name": name, "usage": _texts(used)} for name, used in usage.items()])
                    yield b'%b%b%b,"containers":%b}' % (self._pod_head, pod.head, times, containers)

    async def _nodes(self, labels: LabelSelector, fields: FieldSelector, *, only: str = "") -> AsyncIterator[bytes]:
        totals: dict[str, dict[str, Quantity]] = {}
        times = _times(to_rfc3339(self._clock.now()))
        entries = self._fanout.cache(_NODES).entries
        async for pods in in_turns(list(self._fanout.cache(_PODS).entries.items()), cost=DECODING):
            for key, entry in pods:
                self._add_usage(totals, self._objects.pod(key, entry), entries)
        async for names in in_turns([only] if only else sorted(entries), cost=DECODING):
            for name in names:
                cached = entries.get(name)
                if cached is None or not _is_selected(cached, name, labels, fields):
                    continue
                node = cached.decode()
                measured = next(
                    (own for source in self._sources if (own := source.node_usage_of(node)) is not None), None
                )
                if measured is not None or name in totals or MARK in (node["metadata"].get("annotations") or {}):
                    head = orjson.dumps(shared_metadata(node))[:-1]
                    usage = orjson.dumps(_texts(measured or totals.get(name, _IDLE)))
                    yield b'%b%b%b,"usage":%b}' % (self._node_head, head, times, usage)

    def _add_usage(
        self, totals: dict[str, dict[str, Quantity]], pod: MeasuredPod, nodes: Mapping[str, CachedObject]
    ) -> None:
        for used in (self._usage_of(pod, nodes) or {}).values():
            total = totals.setdefault(pod.node, {})
            for resource, amount in used.items():
                total[resource] = total[resource] + amount if resource in total else amount

    def _usage_of(self, pod: MeasuredPod, nodes: Mapping[str, CachedObject]) -> ContainerUsages | None:
        entry = nodes.get(pod.node)
        if entry is None:
            return None
        node = self._objects.node(pod.node, entry)
        for source in self._sources:
            usage = source.usage_of(pod.object, node)
            if usage is not None:
                return usage
        return None

    async def _list(self, kind: bytes, items: AsyncIterator[bytes]) -> bytes:
        head = b'{"kind":"%b","apiVersion":"%b","metadata":{},' % (kind, self._api_version)
        return b'%b"items":[%b]}' % (head, b",".join([item async for item in items]))


def add_usage_source(api_services: ApiServices, fanout: Fanout, clock: Clock, source: UsageSource) -> None:
    """Serve metrics.k8s.io from this source too, beside the sources that are there already."""
    metrics = api_services.built_in(GROUP, VERSIONS[0])
    if isinstance(metrics, ResourceMetrics):
        metrics.usage.sources.append(source)
        return
    usage = MeasuredUsage([source], MeasuredPods())
    for version in VERSIONS:
        api_services.add_built_in(ResourceMetrics(version, fanout, clock, usage))


def _times(now: str) -> bytes:
    """Return the encoded fields of PodMetrics and NodeMetrics from the last of their metadata to the window."""
    return f',"creationTimestamp":"{now}"}},"timestamp":"{now}","window":"{_WINDOW}"'.encode()


def _is_selected(entry: CachedObject, key: str, labels: LabelSelector, fields: FieldSelector) -> bool:
    if not labels.matches(entry.labels):
        return False
    if not fields.requirements:
        return True
    namespace, _, name = key.rpartition("/")
    values = dict(zip(_FIELDS, (name, namespace), strict=True))
    return fields.matches(lambda field: values.get(field, ""))


async def _first(bodies: AsyncIterator[bytes], plural: str, name: str) -> bytes:
    async for item in bodies:
        return item
    raise errors.NotFound(group=GROUP, plural=plural, name=name)


def _texts(usage: Mapping[str, Quantity]) -> dict[str, str]:
    return {resource: str(amount) for resource, amount in usage.items()}


def amount_of(written: str, container: Object, resource: str) -> Quantity:
    """Return an amount, or a percentage of what the container requests. Anything else counts as idle."""
    try:
        if not written.endswith("%"):
            return quantity.parse(written) if written else _IDLE[resource]
        request = ((container.get("resources") or {}).get("requests") or {}).get(resource, "0")
        share = quantity.parse(request).amount * Decimal(written.removesuffix("%")) / 100
    except (quantity.InvalidQuantity, ArithmeticError):
        return _IDLE[resource]
    format = Format.BINARY_SI if resource == "memory" else Format.DECIMAL_SI
    return Quantity(share, format).round_up_to(0 if resource == "memory" else -3)


_JSON = ((b"Content-Type", b"application/json"),)


@dataclass(frozen=True, slots=True)
class LocalAnswer:
    """A whole answer, in the shape of a proxied one."""

    status: int
    body: bytes
    headers: Sequence[tuple[bytes, bytes]] = _JSON

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self.body

    def close(self) -> None:
        """Nothing is open."""
