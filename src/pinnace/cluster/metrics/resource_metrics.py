"""metrics.k8s.io: the usage of nodes and pods, served by this process where its nodes know it.

An APIService v1beta1.metrics.k8s.io with a service, such as that of metrics-server, takes its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

import orjson

from pinnace.cluster.extensions.local_answers import LocalAnswer
from pinnace.cluster.metrics.measured_pods import MeasuredPods
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
_IDLE = {"cpu": quantity.parse("1m"), "memory": quantity.parse("1Mi")}
_FIELDS = ("metadata.name", "metadata.namespace")

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


class ResourceMetrics:
    """Answers for metrics.k8s.io/v1beta1 like an aggregated server, without leaving the process."""

    group, version = GROUP, VERSION
    name = f"{VERSION}.{GROUP}"
    unavailable_reason = ""
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
                await asyncio.gather(*(source.refresh() for source in self._sources))
            self._objects.prune(len(self._fanout.cache(_PODS).entries), len(self._fanout.cache(_NODES).entries))
            found = self._answer(path, {name: values[0] for name, values in parse_qs(parts.query).items()})
        except errors.ApiError as error:
            return LocalAnswer(error.code, orjson.dumps(error.status))
        return LocalAnswer(200, orjson.dumps(found))

    def _answer(self, path: Sequence[str], query: Mapping[str, str]) -> Object:
        if "watch" in query:
            raise errors.MethodNotAllowed("watch", group=GROUP, plural=path[-1])
        labels = label_selector(query.get("labelSelector", ""))
        fields = field_selector(query.get("fieldSelector", ""))
        match path:
            case [""]:
                return {
                    "kind": "APIResourceList",
                    "apiVersion": "v1",
                    "groupVersion": _API_VERSION,
                    "resources": self.resources,
                }
            case ["nodes"]:
                return _list("NodeMetricsList", self._nodes(labels, fields))
            case ["nodes", name]:
                return _one(self._nodes(labels, fields, only=name), "nodes", name)
            case ["pods"]:
                return _list("PodMetricsList", self._pods("", labels, fields))
            case ["namespaces", namespace, "pods"]:
                return _list("PodMetricsList", self._pods(namespace, labels, fields))
            case ["namespaces", namespace, "pods", name]:
                return _one(self._pods(namespace, labels, fields, only=name), "pods", f"{namespace}/{name}")
        raise errors.NoSuchPath

    def _pods(
        self, namespace: str, labels: LabelSelector, fields: FieldSelector, *, only: str = ""
    ) -> Iterable[Object]:
        cache, now = self._fanout.cache(_PODS), to_rfc3339(self._clock.now())
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
            usage = self._usage_of(pod)
            if usage is not None:
                containers = [{"name": name, "usage": _texts(used)} for name, used in usage.items()]
                yield {**_head("PodMetrics", pod, now), "containers": containers}

    def _nodes(self, labels: LabelSelector, fields: FieldSelector, *, only: str = "") -> Iterable[Object]:
        totals: dict[str, dict[str, Quantity]] = {}
        now = to_rfc3339(self._clock.now())
        for key, entry in self._fanout.cache(_PODS).entries.items():
            pod = self._objects.pod(key, entry)
            for used in (self._usage_of(pod) or {}).values():
                total = totals.setdefault(pod["spec"]["nodeName"], {})
                for resource, amount in used.items():
                    total[resource] = total[resource] + amount if resource in total else amount
        entries = self._fanout.cache(_NODES).entries
        for key in [only] if only else sorted(entries):
            found = entries.get(key)
            if found is None or not _is_selected(found, key, labels, fields):
                continue
            node = found.decode()
            measured = next((own for one in self._sources if (own := one.node_usage_of(node)) is not None), None)
            if measured is not None or key in totals or MARK in (node["metadata"].get("annotations") or {}):
                yield {**_head("NodeMetrics", node, now), "usage": _texts(measured or totals.get(key, _IDLE))}

    def _usage_of(self, pod: Object) -> ContainerUsages | None:
        entry = self._fanout.cache(_NODES).entries.get(pod["spec"].get("nodeName") or "")
        if entry is None or (pod.get("status") or {}).get("phase") != "Running":
            return None
        node = self._objects.node(pod["spec"]["nodeName"], entry)
        return next((found for one in self._sources if (found := one.usage_of(pod, node)) is not None), None)


def add_usage_source(api_services: ApiServices, fanout: Fanout, clock: Clock, source: UsageSource) -> None:
    """Serve metrics.k8s.io from this source too, beside the sources that are there already."""
    metrics = api_services.built_in(GROUP, VERSION)
    if not isinstance(metrics, ResourceMetrics):
        metrics = ResourceMetrics(fanout, clock)
        api_services.add_built_in(metrics)
    metrics.add_source(source)


def _head(kind: str, about: Object, now: str) -> Object:
    known = about["metadata"]
    metadata = {name: known[name] for name in ("name", "namespace", "labels") if known.get(name)}
    metadata["creationTimestamp"] = now
    return {
        "kind": kind,
        "apiVersion": _API_VERSION,
        "metadata": metadata,
        "timestamp": now,
        "window": _WINDOW,
    }


def _is_selected(entry: CachedObject, key: str, labels: LabelSelector, fields: FieldSelector) -> bool:
    namespace, _, name = key.rpartition("/")
    values = dict(zip(_FIELDS, (name, namespace), strict=True))
    return labels.matches(entry.labels) and fields.matches(lambda field: values.get(field, ""))


def _one(found: Iterable[Object], plural: str, name: str) -> Object:
    for one in found:
        return one
    raise errors.NotFound(group=GROUP, plural=plural, name=name)


def _list(kind: str, items: Iterable[Object]) -> Object:
    return {"kind": kind, "apiVersion": _API_VERSION, "metadata": {}, "items": list(items)}


def _texts(usage: Mapping[str, Quantity]) -> dict[str, str]:
    return {resource: str(amount) for resource, amount in usage.items()}


def amount_of(written: str, container: Object, resource: str) -> Quantity:
    """Return an amount, or a percentage of what the container requests. Anything else counts as idle."""
    try:
        if not written.endswith("%"):
            return quantity.parse(written) if written else _IDLE[resource]
        request = ((container.get("resources") or {}).get("requests") or {}).get(resource, "0")
        share = quantity.parse(request).amount * Decimal(written.removesuffix("%")) / 100
    except (quantity.InvalidQuantity, InvalidOperation):
        return _IDLE[resource]
    format = Format.BINARY_SI if resource == "memory" else Format.DECIMAL_SI
    return Quantity(share, format).round_up_to(0 if resource == "memory" else -3)
