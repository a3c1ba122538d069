"""Reads metrics from the resource, custom and external metrics APIs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlencode

from pinnace.client.client import Client
from pinnace.client.transport import ConnectionLost
from pinnace.controllers.autoscaling.metric_lists import Item, MetricValue, decode_usages, decode_values
from pinnace.controllers.autoscaling.recommendation import PodMetric
from pinnace.controllers.autoscaling.scale_targets import TargetUnknown, find_kind, read_body, read_json
from pinnace.model import errors, quantity
from pinnace.model.objects import Object
from pinnace.model.typed_objects import CrossVersionObjectReference
from pinnace.reconcile.deadlines import deadline
from pinnace.schema.cel.times import parse_duration

_RESOURCE = "/apis/metrics.k8s.io/v1beta1"
_CUSTOM = "/apis/custom.metrics.k8s.io"
_EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"
_WINDOW = 60.0
"""Seconds over which a custom metric is measured, unless it says otherwise."""
QUERY_SECONDS = 16.0
"""The longest time for a query: more than a multiplexer gives a provider, whose answer says more than ours."""
SLOW_QUERY_SECONDS = 1.0
"""The same for a metric whose last query was not answered in time: it must not hold up other autoscalers again."""
_MOST_SLOW = 10_000
_TIMED_OUT = "the server was unable to return a response in the time allotted, but may still be processing the request"


class MetricUnavailable(Exception):
    """A metrics API has no value; the message is Kubernetes' own."""


class MetricValues:
    """The values of metrics, in thousandths."""

    def __init__(self, client: Client) -> None:
        self._client = client.once()  # The next evaluation is the repetition.
        self._slow: set[str] = set()
        self._version = ""
        """The version of the custom metrics API; empty until it is needed."""

    async def of_resource(self, resource: str, namespace: str, selector: str, container: str) -> dict[str, PodMetric]:
        """Return the usage of a resource by pod: of one container, or of all together."""
        target = f"{_RESOURCE}/namespaces/{namespace}/pods"
        items = await self._items("resource", target, {"labelSelector": selector}, "pods.metrics.k8s.io", decode_usages)
        values: dict[str, PodMetric] = {}
        with _decoding("resource"):
            for item in items:
                usages = [usage.usage or {} for usage in item.containers or () if container in ("", usage.name)]
                if usages and all(resource in usage for usage in usages):
                    total = sum(_milli(usage[resource]) for usage in usages)
                    values[item.metadata.name] = PodMetric(
                        total, _seconds(item.timestamp), _window(item.window or "0s")
                    )
        return values

    async def of_pods(self, metric: Object, namespace: str, selector: str, labels: str) -> dict[str, PodMetric]:
        """Return the values of a custom metric by pod. `labels` selects among several series of the metric."""
        path = f"namespaces/{namespace}/pods/*/{quote(metric['name'], safe='')}"
        items = await self._custom(path, {"labelSelector": selector, "metricLabelSelector": labels})
        if not items:
            raise MetricUnavailable("no metrics returned from custom metrics API")
        with _decoding("custom"):
            return {item.described: _pod_metric(item) for item in items}

    async def of_object(
        self, metric: Object, namespace: str, described: CrossVersionObjectReference, labels: str
    ) -> int:
        """Return the value of a custom metric of one object."""
        name = quote(metric["name"], safe="")
        if described["kind"] == "Namespace" and "/" not in described.get("apiVersion", ""):
            path = f"namespaces/{namespace}/metrics/{name}"
        else:
            try:
                served = await find_kind(self._client, described)
            except TargetUnknown as error:
                raise MetricUnavailable(f"unable to fetch metrics from custom metrics API: {error}") from None
            resource = errors.qualified(served.kind.group, served.plural)
            path = f"namespaces/{namespace}/{resource}/{quote(described['name'], safe='')}/{name}"
        items = await self._custom(path, {"metricLabelSelector": labels})
        if len(items) != 1:
            raise MetricUnavailable(
                "unable to fetch metrics from custom metrics API: "
                f"the custom metrics API server returned {len(items)} results when we asked for exactly one"
            )
        with _decoding("custom"):
            return _milli(items[0].value)

    async def of_external(self, metric: Object, namespace: str, labels: str) -> list[int]:
        """Return the values of all series of an external metric that match."""
        name = metric["name"]
        target = f"{_EXTERNAL}/namespaces/{namespace}/{quote(name, safe='')}"
        items = await self._items(
            "external", target, {"labelSelector": labels}, f"{name}.external.metrics.k8s.io", decode_values
        )
        with _decoding("external"):
            return [_milli(item.value) for item in items]

    async def _custom(self, path: str, parameters: Mapping[str, str]) -> list[MetricValue]:
        try:
            version = await self._custom_version()
            with _decoding("custom"):
                return await self._read(f"{_CUSTOM}/{version}/{path}", parameters, decode_values)
        except errors.ApiError as error:
            if isinstance(error, errors.NoSuchPath):
                self._version = ""
            raise MetricUnavailable(f"unable to fetch metrics from custom metrics API: {error.message}") from None
        except TimeoutError:
            _, _, resource, name, *_ = path.split("/")
            which = f"(get {resource}.custom.metrics.k8s.io {name})"
            raise MetricUnavailable(f"unable to fetch metrics from custom metrics API: {_TIMED_OUT} {which}") from None
        except ConnectionLost as lost:
            raise MetricUnavailable(f"unable to fetch metrics from custom metrics API: {lost}") from None

    async def _custom_version(self) -> str:
        if not self._version:
            try:
                group = await read_json(self._client, _CUSTOM)
            except errors.NoSuchPath:
                raise errors.NoSuchPath("no custom metrics API (custom.metrics.k8s.io) registered") from None
            self._version = group["preferredVersion"]["version"]
        return self._version

    async def _items(
        self, api: str, target: str, parameters: Mapping[str, str], resource: str, decode: Callable[[bytes], list[Item]]
    ) -> list[Item]:
        try:
            with _decoding(api):
                items = await self._read(target, parameters, decode)
        except errors.ApiError as error:
            which = f" (get {resource})" if error.message == errors.NoSuchPath().message else ""
            raise MetricUnavailable(f"unable to fetch metrics from {api} metrics API: {error.message}{which}") from None
        except TimeoutError:
            message = f"unable to fetch metrics from {api} metrics API: {_TIMED_OUT} (get {resource})"
            raise MetricUnavailable(message) from None
        except ConnectionLost as lost:
            raise MetricUnavailable(f"unable to fetch metrics from {api} metrics API: {lost}") from None
        if not items:
            raise MetricUnavailable(f"no metrics returned from {api} metrics API")
        return items

    async def _read(
        self, target: str, parameters: Mapping[str, str], decode: Callable[[bytes], list[Item]]
    ) -> list[Item]:
        """Return the items of a list. Raise ApiError, ConnectionLost, TimeoutError or BadList."""
        query = urlencode({name: value for name, value in parameters.items() if value})
        seconds = SLOW_QUERY_SECONDS if target in self._slow else QUERY_SECONDS
        try:
            async with deadline(self._client.clock, seconds):
                answer = await read_body(self._client, f"{target}?{query}" if query else target)
        except TimeoutError:
            if len(self._slow) >= _MOST_SLOW:
                self._slow.clear()
            self._slow.add(target)
            raise
        self._slow.discard(target)
        return decode(answer)


@contextmanager
def _decoding(api: str) -> Iterator[None]:
    """Raise MetricUnavailable for a list with a bad item: a value of the others alone would be a lie."""
    try:
        yield
    except ValueError as error:  # InvalidQuantity, BadList, or a time that is none.
        raise MetricUnavailable(f"unable to fetch metrics from {api} metrics API: {error}") from None


def _pod_metric(item: MetricValue) -> PodMetric:
    window = item.windowSeconds if item.windowSeconds is not None else item.window  # v1beta2, v1beta1
    return PodMetric(_milli(item.value), _seconds(item.timestamp), _WINDOW if window is None else window)


# Most values of a list have the same time and window, and few amounts differ from the last ones.


def _milli(value: Any) -> int:
    return _milli_of(value) if isinstance(value, str) else quantity.parse(value).milli_value


@lru_cache(maxsize=16_384)
def _milli_of(value: str) -> int:
    return quantity.parse(value).milli_value


@lru_cache(maxsize=256)
def _seconds(moment: str | None) -> float:
    return datetime.fromisoformat(moment).timestamp() if moment else 0.0


@lru_cache(maxsize=256)
def _window(text: str) -> float:
    return parse_duration(text).nanos / 1e9
