"""The metrics APIs on the wire: custom.metrics.k8s.io v1beta1 and v1beta2, external.metrics.k8s.io v1beta1."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from pinnace.model import errors
from pinnace.model.objects import Key, Kind, Object
from pinnace.model.selectors import LabelSelector
from pinnace.process.clock import to_rfc3339
from pinnace.sdk.metrics.samples import Sample, quantity_of

CUSTOM, EXTERNAL = "custom.metrics.k8s.io", "external.metrics.k8s.io"
CUSTOM_VERSIONS = ("v1beta2", "v1beta1")
EXTERNAL_VERSIONS = ("v1beta1",)
NAMESPACE_METRICS = "metrics"
"""The place of a resource in the path of a namespace's own metrics."""
_EXPRESSIONS = {"in": "In", "notin": "NotIn", "exists": "Exists", "!": "DoesNotExist", "!=": "NotIn"}


class MetricNotFound(errors.ApiError):
    """No such metric, or no value of it; in the words of the library that Go servers use."""

    code, reason = 404, "NotFound"

    def __init__(self, metric: str, resource: str, name: str = "", selector: str = "") -> None:
        message = f"the server could not find the metric {metric} for {resource}"
        if name:
            message += f" {name}"
        super().__init__(f"{message} with selector {selector}" if selector else message)


class DescribedSample(NamedTuple):
    """A value of a metric of one object."""

    key: Key
    sample: Sample


def custom_row(resource: str, metric: str, *, is_namespaced: bool) -> Object:
    """Return the row of a metric on the discovery page of the custom metrics API."""
    name = f"{resource}/{metric}"
    return {"name": name, "singularName": "", "namespaced": is_namespaced, "kind": "MetricValueList", "verbs": ["get"]}


def external_row(metric: str) -> Object:
    """Return the row of a metric on the discovery page of the external metrics API."""
    kind = "ExternalMetricValueList"
    return {"name": metric, "singularName": "", "namespaced": True, "kind": kind, "verbs": ["get"]}


def custom_values(
    version: str, kind: Kind, metric: str, selector: LabelSelector, samples: Iterable[DescribedSample], now: datetime
) -> Object:
    """Return a MetricValueList. Raise BadValue."""
    items = []
    for key, sample in samples:
        about: Object = {"kind": kind.name, "name": key.name, "apiVersion": f"{kind.group}/{kind.version}"}
        if key.namespace:
            about["namespace"] = key.namespace
        chosen = None if selector.matches_everything else _selector_object(selector)
        item: Object = {"describedObject": about}
        if version == "v1beta1":
            item |= {"metricName": metric}
        else:
            item |= {"metric": {"name": metric, "selector": chosen}}
        item |= _measurement(sample, now, "window" if version == "v1beta1" else "windowSeconds")
        if version == "v1beta1":
            item["selector"] = chosen
        items.append(item)
    return {"kind": "MetricValueList", "apiVersion": f"{CUSTOM}/{version}", "metadata": {}, "items": items}


def external_values(metric: str, samples: Iterable[Sample], now: datetime) -> Object:
    """Return an ExternalMetricValueList. Raise BadValue."""
    items = [
        {"metricName": metric, "metricLabels": dict(sample.labels), **_measurement(sample, now, "window")}
        for sample in samples
    ]
    head = {"kind": "ExternalMetricValueList", "apiVersion": f"{EXTERNAL}/v1beta1", "metadata": {}}
    return {**head, "items": items}


def _measurement(sample: Sample, now: datetime, window: str) -> Object:
    fields: Object = {"timestamp": to_rfc3339(sample.at or now), "value": str(quantity_of(sample.value))}
    if sample.window is not None:
        fields[window] = int(sample.window)
    return fields


def _selector_object(selector: LabelSelector) -> Object:
    labels, expressions = {}, []
    for key, operator, values in selector.requirements:
        if operator in ("=", "=="):
            labels[key] = values[0]
        else:
            known = _EXPRESSIONS.get(operator, operator)
            expressions.append({"key": key, "operator": known} | ({"values": list(values)} if values else {}))
    fields: Object = {"matchLabels": labels} if labels else {}
    return {**fields, "matchExpressions": expressions} if expressions else fields
