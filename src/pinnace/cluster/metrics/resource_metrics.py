"""metrics.k8s.io: the usage of nodes and pods, served by this process where its nodes know it.

An APIService v1beta1.metrics.k8s.io with a service, such as that of metrics-server, takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

import orjson

from pinnace.cluster.extensions.local_answers import LocalAnswer
from pinnace.cluster.metrics.measured_pods import MeasuredPod, MeasuredPods, shared_metadata
from pinnace.extensions.aggregation.backend_table import ApiServices
from pinnace.model import errors, quantity
from pinnace.model.byte_streams import Duplex
from pinnace.model.clock import Clock, to_rfc3339
from pinnace.model.objects import Object
from pinnace.model.quantity import Format, Quantity
from pinnace.model.selectors import FieldSelector, LabelSelector, field_selector, label_selector
from pinnace.node.simulated.machines import MARK
from pinnace.server.cache.fanout import Fanout
from pinnace.server.cache.watch_cache import CachedObject

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
USAGE = "kwok.x-k8s.io/usage-"
"""Annotations of a pod, followed by cpu or memory: the usage of each of its containers, as with KWOK."""
_API_VERSION = f"{GROUP}/{VERSION}"
_PODS, _NODES = "/registry/core/pods/", "/registry/core/nodes/"
_WINDOW = "15s"
_POD_HEAD = b'{"kind":"PodMetrics","apiVersion":"%b","metadata":' % _API_VERSION.encode()
_NODE_HEAD = _POD_HEAD.replace(b"PodMetrics", b"NodeMetrics")
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


class ResourceMetrics:
    """Answers for metrics.k8s.io/v1beta1 like an aggregated server, without leaving the process."""

    group, version = GROUP, VERSION
    name = f"{VERSION}.{GROUP}"
    unavailable_reason = ""
    is_local = True
    openapi_url = ""
    resources: Sequence[Object] = (
        {"name": "nodes", "singularName": "", "namespaced": False, "kind": "NodeMetrics", "verbs": ["get", "list"]},
        {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": ["get", "list"]},
    )

    def __init__(self, fanout: Fanout, clock: Clock) -> None:
        self._fanout = fanout
        self._clock = clock
        self._sources: list[UsageSource] = []
        self._objects = MeasuredPods()

    def add_source(self, source: UsageSource) -> None:
        self._sources.append(source)

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
        path = parts.path.removeprefix(f"/apis/{GROUP}/{VERSION}").strip("/").split("/")
        try:
            if method not in ("GET", "HEAD"):
                raise errors.MethodNotAllowed(method.lower(), group=GROUP, plural=path[-1])
            if path != [""]:
                for source in self._sources:
                    await source.refresh()
                self._objects.prune(len(self._fanout.cache(_PODS).entries), len(self._fanout.cache(_NODES).entries))
            found = self._answer(path, {name: values[0] for name, values in parse_qs(parts.query).items()})
        except errors.ApiError as error:
            return LocalAnswer(error.code, orjson.dumps(error.status))
        return LocalAnswer(200, found)

    def _answer(self, path: Sequence[str], query: Mapping[str, str]) -> bytes:
        if "watch" in query:
            raise errors.MethodNotAllowed("watch", group=GROUP, plural=path[-1])
        labels = label_selector(query.get("labelSelector", ""))
        fields = field_selector(query.get("fieldSelector", ""))
        match path:
            case [""]:
                page = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": _API_VERSION}
                return orjson.dumps({**page, "resources": self.resources})
            case ["nodes"]:
                return _list(b"NodeMetricsList", self._nodes(labels, fields))
            case ["nodes", name]:
                return _one(self._nodes(labels, fields, only=name), "nodes", name)
            case ["pods"]:
                return _list(b"PodMetricsList", self._pods("", labels, fields))
            case ["namespaces", namespace, "pods"]:
                return _list(b"PodMetricsList", self._pods(namespace, labels, fields))
            case ["namespaces", namespace, "pods", name]:
                return _one(self._pods(namespace, labels, fields, only=name), "pods", f"{namespace}/{name}")
        raise errors.NoSuchPath

    def _pods(self, namespace: str, labels: LabelSelector, fields: FieldSelector, *, only: str = "") -> Iterable[bytes]:
        """Yield encoded PodMetrics, put together from parts: a round of autoscalers reads those of all pods."""
        cache, nodes = self._fanout.cache(_PODS), self._fanout.cache(_NODES).entries
        times = _times(to_rfc3339(self._clock.now()))
        equalities = labels.equalities()
        if only:
            keys = [f"{namespace}/{only}"]
        elif equalities:
            keys = cache.keys_with_labels(equalities, namespace)
        else:
            keys = cache.keys_of(namespace)
        for key in keys:
            entry = cache.entries.get(key)
            if entry is None or not _is_selected(entry, key, labels, fields):
                continue
            pod = self._objects.pod(key, entry)
            usage = self._usage_of(pod, nodes)
            if usage:
                containers = orjson.dumps([{"name": name, "usage": _texts(used)} for name, used in usage.items()])
                yield b'%b%b%b,"containers":%b}' % (_POD_HEAD, pod.head, times, containers)

    def _nodes(self, labels: LabelSelector, fields: FieldSelector, *, only: str = "") -> Iterable[bytes]:
        totals: dict[str, dict[str, Quantity]] = {}
        times = _times(to_rfc3339(self._clock.now()))
        entries = self._fanout.cache(_NODES).entries
        for key, entry in self._fanout.cache(_PODS).entries.items():
            pod = self._objects.pod(key, entry)
            for used in (self._usage_of(pod, entries) or {}).values():
                total = totals.setdefault(pod.node, {})
                for resource, amount in used.items():
                    total[resource] = total[resource] + amount if resource in total else amount
        for key in [only] if only else sorted(entries):
            found = entries.get(key)
            if found is None or not _is_selected(found, key, labels, fields):
                continue
            node = found.decode()
            measured = next((own for one in self._sources if (own := one.node_usage_of(node)) is not None), None)
            if measured is not None or key in totals or MARK in (node["metadata"].get("annotations") or {}):
                head = orjson.dumps(shared_metadata(node))[:-1]
                usage = orjson.dumps(_texts(measured or totals.get(key, _IDLE)))
                yield b'%b%b%b,"usage":%b}' % (_NODE_HEAD, head, times, usage)

    def _usage_of(self, pod: MeasuredPod, nodes: Mapping[str, CachedObject]) -> ContainerUsages | None:
        entry = nodes.get(pod.node)
        if entry is None:
            return None
        node = self._objects.node(pod.node, entry)
        for source in self._sources:
            found = source.usage_of(pod.object, node)
            if found is not None:
                return found
        return None


def add_usage_source(api_services: ApiServices, fanout: Fanout, clock: Clock, source: UsageSource) -> None:
    """Serve metrics.k8s.io from this source too, beside the sources that are there already."""
    metrics = api_services.built_in(GROUP, VERSION)
    if not isinstance(metrics, ResourceMetrics):
        metrics = ResourceMetrics(fanout, clock)
        api_services.add_built_in(metrics)
    metrics.add_source(source)


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


def _one(found: Iterable[bytes], plural: str, name: str) -> bytes:
    for one in found:
        return one
    raise errors.NotFound(group=GROUP, plural=plural, name=name)


def _list(kind: bytes, items: Iterable[bytes]) -> bytes:
    return b'{"kind":"%b","apiVersion":"%b","metadata":{},"items":[%b]}' % (
        kind,
        _API_VERSION.encode(),
        b",".join(items),
    )


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
