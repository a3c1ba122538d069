"""Autoscalers of older versions: v1 keeps fields that it lacks in annotations; v2beta1 has one field per type of
target."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import orjson

from pinnace.kinds import older_schemas
from pinnace.kinds.cells import reach
from pinnace.kinds.golang.printing import GoStruct
from pinnace.model.objects import Object
from pinnace.schema.shape import Schema

METRICS = "autoscaling.alpha.kubernetes.io/metrics"
CURRENT_METRICS = "autoscaling.alpha.kubernetes.io/current-metrics"
CONDITIONS = "autoscaling.alpha.kubernetes.io/conditions"
BEHAVIOR = "autoscaling.alpha.kubernetes.io/behavior"
CARRIED = (METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR)

_RULES = GoStruct(
    "StabilizationWindowSeconds SelectPolicy Policies Tolerance", Policies=GoStruct("Type='' Value=0 PeriodSeconds=0")
)
# Kubernetes writes this annotation with the Go names of the fields.
_BEHAVIOR = GoStruct("ScaleUp ScaleDown", ScaleUp=_RULES, ScaleDown=_RULES)


class _OldField(NamedTuple):
    """A field of a metric in v2beta1, its path in v2, and the value that Go writes when it is absent."""

    name: str
    path: tuple[str, ...]
    zero: str | None


class _Source(NamedTuple):
    """A type of metric: its field, and how v2beta1 (and the annotation of v1) writes its spec and its status."""

    field: str
    spec: tuple[_OldField, ...]
    status: tuple[_OldField, ...]


_Side = Literal["spec", "status"]


def _fields(text: str) -> tuple[_OldField, ...]:
    """Parse fields such as `name metricName:metric.name targetValue:target.value=0`."""
    parts = ((*item.partition("=")[::2],) for item in text.split())
    pairs = ((*field.partition(":")[::2], zero) for field, zero in parts)
    return tuple(_OldField(name, tuple((path or name).split(".")), zero or None) for name, path, zero in pairs)


_RESOURCE = "name targetAverageUtilization:target.averageUtilization targetAverageValue:target.averageValue"
_RESOURCE_STATUS = (
    "name currentAverageUtilization:current.averageUtilization currentAverageValue:current.averageValue=0"
)
_SOURCES = {
    "Resource": _Source("resource", _fields(_RESOURCE), _fields(_RESOURCE_STATUS)),
    "ContainerResource": _Source(
        "containerResource", _fields(f"{_RESOURCE} container"), _fields(f"{_RESOURCE_STATUS} container")
    ),
    "Pods": _Source(
        "pods",
        _fields("metricName:metric.name targetAverageValue:target.averageValue=0 selector:metric.selector"),
        _fields("metricName:metric.name currentAverageValue:current.averageValue=0 selector:metric.selector"),
    ),
    "Object": _Source(
        "object",
        _fields(
            "target:describedObject metricName:metric.name targetValue:target.value=0 selector:metric.selector "
            "averageValue:target.averageValue"
        ),
        _fields(
            "target:describedObject metricName:metric.name currentValue:current.value=0 selector:metric.selector "
            "averageValue:current.averageValue"
        ),
    ),
    "External": _Source(
        "external",
        _fields(
            "metricName:metric.name metricSelector:metric.selector targetValue:target.value "
            "targetAverageValue:target.averageValue"
        ),
        _fields(
            "metricName:metric.name metricSelector:metric.selector currentValue:current.value=0 "
            "currentAverageValue:current.averageValue"
        ),
    ),
}
_ORDER = ("name", "container", "describedObject", "metric", "target", "current")
"""The fields of a source in v2, in the order of Go."""


def _to_old(metric: Object, side: _Side) -> Object:
    """Return the spec or the status of a metric as v2beta1 writes it."""
    source = _SOURCES.get(metric.get("type", ""))
    if source is None:
        return metric
    written = {}
    for field in getattr(source, side):
        value = reach(metric, source.field, *field.path)
        if value is not None or field.zero is not None:
            written[field.name] = field.zero if value is None else value
    return {"type": metric["type"], source.field: written}


def _to_new(metric: Object, side: _Side) -> Object:
    kind = metric.get("type", "")
    source = _SOURCES.get(kind)
    if source is None:
        return metric
    written: Object = metric.get(source.field) or {}
    parts: Object = {}
    for field in getattr(source, side):
        *outer, name = field.path
        holder = parts.setdefault(outer[0], {}) if outer else parts
        if (value := written.get(field.name)) is not None:
            holder[name] = value
    if kind == "Object":
        parts.setdefault("describedObject", None)
    if side == "spec":
        parts["target"] = _target(kind, parts["target"])
    return {"type": kind, source.field: {name: parts[name] for name in _ORDER if name in parts}}


def _target(kind: str, target: Object) -> Object:
    """Return a target with its type, which v2beta1 did not have."""
    if kind == "Object" and "averageValue" in target and target.get("value") == "0":
        del target["value"]  # An absent value was written as zero: next to an average it means absent.
    if "averageUtilization" in target:
        type_ = "Utilization"
    elif kind == "Object":
        type_ = "AverageValue" if "averageValue" in target else "Value"
    else:
        type_ = "Value" if kind == "External" and "value" in target else "AverageValue"
    return {"type": type_, **target}


def v2beta1_to_v2(autoscaler: Object) -> Object:
    return _with_metrics(autoscaler, _to_new)


def v2_to_v2beta1(autoscaler: Object) -> Object:
    changed = _with_metrics(autoscaler, _to_old)
    behavior = (changed.get("spec") or {}).pop("behavior", None)
    annotations = _annotations_without(changed, (BEHAVIOR,))
    if behavior is not None:
        annotations[BEHAVIOR] = orjson.dumps(_BEHAVIOR.view(behavior)).decode()
    return _annotate(changed, annotations)


def _with_metrics(autoscaler: Object, convert: Callable[[Object, _Side], Object]) -> Object:
    changed = dict(autoscaler)
    if spec := autoscaler.get("spec"):
        changed["spec"] = dict(spec)
        if "metrics" in spec:
            changed["spec"]["metrics"] = [convert(metric, "spec") for metric in spec["metrics"] or ()]
    if status := autoscaler.get("status"):
        changed["status"] = dict(status)
        if "currentMetrics" in status:
            changed["status"]["currentMetrics"] = [
                convert(metric, "status") for metric in status["currentMetrics"] or ()
            ]
    behavior = _read_annotation(autoscaler, BEHAVIOR)
    if isinstance(behavior, dict) and changed.get("spec") and "behavior" not in changed["spec"]:
        changed["spec"]["behavior"] = _plain_behavior(behavior)
        changed = _annotate(changed, _annotations_without(changed, (BEHAVIOR,)))
    return changed


def v2_to_v1(autoscaler: Object) -> Object:
    spec = dict(autoscaler.get("spec") or {})
    status = dict(autoscaler.get("status") or {})
    annotations = _annotations_without(autoscaler, CARRIED)

    others: list[Object] = []
    for metric in spec.pop("metrics", None) or ():
        utilization = _cpu_utilization(metric, "target")
        if utilization is not None:
            spec["targetCPUUtilizationPercentage"] = utilization
        else:
            others.append(_to_old(metric, "spec"))
    if others:
        annotations[METRICS] = orjson.dumps(others).decode()

    current = status.pop("currentMetrics", None) or ()
    for metric in current:
        utilization = _cpu_utilization(metric, "current")
        if utilization is not None:
            status["currentCPUUtilizationPercentage"] = utilization
    if current:
        annotations[CURRENT_METRICS] = orjson.dumps([_to_old(metric, "status") for metric in current]).decode()
    if behavior := spec.pop("behavior", None):
        annotations[BEHAVIOR] = orjson.dumps(_BEHAVIOR.view(behavior)).decode()
    if conditions := status.pop("conditions", None):
        annotations[CONDITIONS] = orjson.dumps(conditions).decode()

    changed = {**autoscaler, "spec": spec}
    if "status" in autoscaler:
        changed["status"] = {"currentReplicas": 0, "desiredReplicas": 0, **status}
    return _annotate(changed, annotations)


def v1_to_v2(autoscaler: Object) -> Object:
    spec = dict(autoscaler.get("spec") or {})
    status = dict(autoscaler.get("status") or {})
    metrics = [_to_new(metric, "spec") for metric in _read_annotation(autoscaler, METRICS) or ()]
    utilization = spec.pop("targetCPUUtilizationPercentage", None)
    if utilization is not None:
        metrics.append(_cpu("target", type="Utilization", averageUtilization=utilization))
    elif not metrics:
        # v2 has the same default, but cannot tell it from an explicit value.
        metrics.append(_cpu("target", type="Utilization", averageUtilization=80))
    spec["metrics"] = metrics

    current = [_to_new(metric, "status") for metric in _read_annotation(autoscaler, CURRENT_METRICS) or ()]
    used = status.pop("currentCPUUtilizationPercentage", None)
    if used is not None and not any(_cpu_utilization(metric, "current") is not None for metric in current):
        current.append(_cpu("current", averageUtilization=used))
    if not status.get("currentReplicas"):
        status.pop("currentReplicas", None)
    behavior = _read_annotation(autoscaler, BEHAVIOR)
    if isinstance(behavior, dict):
        spec["behavior"] = _plain_behavior(behavior)
    conditions = _read_annotation(autoscaler, CONDITIONS)
    if conditions:
        status["conditions"] = conditions

    changed = {**autoscaler, "spec": spec}
    if status or "status" in autoscaler:
        # Go always writes these two fields, and an empty list as null.
        changed["status"] = {"desiredReplicas": 0, **status, "currentMetrics": current or None}
    return _annotate(changed, _annotations_without(autoscaler, CARRIED))


def _cpu(place: str, **fields: Any) -> Object:
    return {"type": "Resource", "resource": {"name": "cpu", place: fields}}


def _cpu_utilization(metric: Object, place: str) -> Any:
    source = metric.get("resource") or {}
    if metric.get("type") != "Resource" or source.get("name") != "cpu":
        return None
    return (source.get(place) or {}).get("averageUtilization")


def _annotations_without(obj: Object, names: Iterable[str]) -> dict[str, str]:
    annotations = obj.get("metadata", {}).get("annotations") or {}
    return {name: value for name, value in annotations.items() if name not in names}


def _annotate(obj: Object, annotations: dict[str, str]) -> Object:
    metadata = {name: value for name, value in obj.get("metadata", {}).items() if name != "annotations"}
    if annotations:
        metadata["annotations"] = annotations
    return {**obj, "metadata": metadata}


def _read_annotation(obj: Object, annotation: str) -> Any:
    written = (obj.get("metadata", {}).get("annotations") or {}).get(annotation)
    if written is None:
        return None
    try:
        return orjson.loads(written)
    except orjson.JSONDecodeError:
        return None  # Not written by this conversion: dropped, as Kubernetes does.


def _plain_behavior(value: Any) -> Any:
    """Return a part of a behavior by its names on the wire, which begin with a small letter."""
    if isinstance(value, dict):
        present = ((name, child) for name, child in value.items() if child is not None)
        return {name[:1].lower() + name[1:]: _plain_behavior(child) for name, child in present}
    if isinstance(value, list):
        return [_plain_behavior(child) for child in value]
    return value


def v2beta1_shape(schema: Schema) -> Schema:
    for source in _SOURCES.values():
        schema = older_schemas.at(schema, f"spec.metrics.[].{source.field}", _with_only(source.spec))
        schema = older_schemas.at(schema, f"status.currentMetrics.[].{source.field}", _with_only(source.status))
    return older_schemas.at(schema, "spec", older_schemas.with_fields(("behavior",)))


def _with_only(fields: tuple[_OldField, ...]) -> older_schemas.Change:
    def change(raw: dict[str, Any]) -> dict[str, Any]:
        before = raw.get("properties", {})
        properties = {name: _FIELD.get(name) or before.get(name) for name, _, _ in fields}
        return {**raw, "properties": properties, "required": []}

    return change


_QUANTITY = {"type": "string", "format": "quantity"}
_PERCENTAGE = {"type": "integer", "format": "int32"}
_SELECTOR = {"$ref": "#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"}
_FIELD: dict[str, Any] = {
    "metricName": {"type": "string"},
    "metricSelector": _SELECTOR,
    "selector": _SELECTOR,
    "target": {"$ref": "#/$defs/io.k8s.api.autoscaling.v2.CrossVersionObjectReference"},
    "targetAverageUtilization": _PERCENTAGE,
    "currentAverageUtilization": _PERCENTAGE,
    "targetAverageValue": _QUANTITY,
    "currentAverageValue": _QUANTITY,
    "averageValue": _QUANTITY,
    "targetValue": _QUANTITY,
    "currentValue": _QUANTITY,
}
