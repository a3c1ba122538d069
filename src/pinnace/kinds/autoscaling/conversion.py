"""Autoscalers of older versions: v1 keeps fields that it lacks in annotations; v2beta1 has one field per type of
target."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from pinnace.kinds import older_schemas
from pinnace.model.objects import Object
from pinnace.schema.shape import Schema

METRICS = "autoscaling.alpha.kubernetes.io/metrics"
CURRENT_METRICS = "autoscaling.alpha.kubernetes.io/current-metrics"
CONDITIONS = "autoscaling.alpha.kubernetes.io/conditions"
BEHAVIOR = "autoscaling.alpha.kubernetes.io/behavior"
CARRIED = (METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR)

_SOURCES = {
    "Resource": "resource",
    "ContainerResource": "containerResource",
    "Pods": "pods",
    "Object": "object",
    "External": "external",
}
# Kubernetes writes this annotation with the Go names of the fields.
_GO_BEHAVIOR = {
    "ScaleUp": "scaleUp",
    "ScaleDown": "scaleDown",
    "StabilizationWindowSeconds": "stabilizationWindowSeconds",
    "SelectPolicy": "selectPolicy",
    "Policies": "policies",
    "Type": "type",
    "Value": "value",
    "PeriodSeconds": "periodSeconds",
    "Tolerance": "tolerance",
}


def _present(**fields: Any) -> Object:
    return {name: value for name, value in fields.items() if value is not None}


def _old_spec(metric: Object) -> Object:
    """Return a v2 metric as v2beta1 (and the annotation of v1) writes it."""
    kind = metric.get("type", "")
    name = _SOURCES.get(kind, "")
    source = metric.get(name) or {}
    target = source.get("target") or {}
    identity = source.get("metric") or {}
    match kind:
        case "Resource" | "ContainerResource":
            written = _present(
                name=source.get("name"),
                targetAverageUtilization=target.get("averageUtilization"),
                targetAverageValue=target.get("averageValue"),
                container=source.get("container"),
            )
        case "Pods":
            written = _present(
                metricName=identity.get("name"),
                targetAverageValue=target.get("averageValue", "0"),
                selector=identity.get("selector"),
            )
        case "Object":
            written = _present(
                target=source.get("describedObject"),
                metricName=identity.get("name"),
                targetValue=target.get("value", "0"),
                selector=identity.get("selector"),
                averageValue=target.get("averageValue"),
            )
        case "External":
            written = _present(
                metricName=identity.get("name"),
                metricSelector=identity.get("selector"),
                targetValue=target.get("value"),
                targetAverageValue=target.get("averageValue"),
            )
        case _:
            return metric
    return {"type": kind, name: written}


def _new_spec(metric: Object) -> Object:
    kind = metric.get("type", "")
    name = _SOURCES.get(kind, "")
    source = metric.get(name) or {}
    match kind:
        case "Resource" | "ContainerResource":
            utilization = source.get("targetAverageUtilization")
            target = _present(
                type="AverageValue" if utilization is None else "Utilization",
                averageUtilization=utilization,
                averageValue=source.get("targetAverageValue"),
            )
            return {
                "type": kind,
                name: _present(name=source.get("name"), container=source.get("container"), target=target),
            }
        case "Pods":
            target = _present(type="AverageValue", averageValue=source.get("targetAverageValue"))
            return {"type": kind, name: {"metric": _identity(source, "selector"), "target": target}}
        case "Object":
            average = source.get("averageValue")
            value = source.get("targetValue")
            target = _present(
                type="Value" if average is None else "AverageValue",
                # An absent value was written as zero: next to an average it means absent.
                value=None if average is not None and value == "0" else value,
                averageValue=average,
            )
            identity = _identity(source, "selector")
            return {
                "type": kind,
                name: {"describedObject": source.get("target"), "metric": identity, "target": target},
            }
        case "External":
            value = source.get("targetValue")
            target = _present(
                type="AverageValue" if value is None else "Value",
                value=value,
                averageValue=source.get("targetAverageValue"),
            )
            return {"type": kind, name: {"metric": _identity(source, "metricSelector"), "target": target}}
        case _:
            return metric


def _identity(source: Object, selector: str) -> Object:
    return _present(name=source.get("metricName"), selector=source.get(selector))


def _old_status(metric: Object) -> Object:
    kind = metric.get("type", "")
    name = _SOURCES.get(kind, "")
    source = metric.get(name) or {}
    current = source.get("current") or {}
    identity = source.get("metric") or {}
    match kind:
        case "Resource" | "ContainerResource":
            written = _present(
                name=source.get("name"),
                currentAverageUtilization=current.get("averageUtilization"),
                currentAverageValue=current.get("averageValue", "0"),
                container=source.get("container"),
            )
        case "Pods":
            written = _present(
                metricName=identity.get("name"),
                currentAverageValue=current.get("averageValue", "0"),
                selector=identity.get("selector"),
            )
        case "Object":
            written = _present(
                target=source.get("describedObject"),
                metricName=identity.get("name"),
                currentValue=current.get("value", "0"),
                selector=identity.get("selector"),
                averageValue=current.get("averageValue"),
            )
        case "External":
            written = _present(
                metricName=identity.get("name"),
                metricSelector=identity.get("selector"),
                currentValue=current.get("value", "0"),
                currentAverageValue=current.get("averageValue"),
            )
        case _:
            return metric
    return {"type": kind, name: written}


def _new_status(metric: Object) -> Object:
    kind = metric.get("type", "")
    name = _SOURCES.get(kind, "")
    source = metric.get(name) or {}
    match kind:
        case "Resource" | "ContainerResource":
            current = _present(
                averageUtilization=source.get("currentAverageUtilization"),
                averageValue=source.get("currentAverageValue"),
            )
            return {
                "type": kind,
                name: _present(name=source.get("name"), container=source.get("container"), current=current),
            }
        case "Pods":
            current = _present(averageValue=source.get("currentAverageValue"))
            return {"type": kind, name: {"metric": _identity(source, "selector"), "current": current}}
        case "Object":
            current = _present(value=source.get("currentValue"), averageValue=source.get("averageValue"))
            identity = _identity(source, "selector")
            return {
                "type": kind,
                name: {"describedObject": source.get("target"), "metric": identity, "current": current},
            }
        case "External":
            current = _present(value=source.get("currentValue"), averageValue=source.get("currentAverageValue"))
            return {"type": kind, name: {"metric": _identity(source, "metricSelector"), "current": current}}
        case _:
            return metric


def v2beta1_to_v2(autoscaler: Object) -> Object:
    return _with_metrics(autoscaler, _new_spec, _new_status)


def v2_to_v2beta1(autoscaler: Object) -> Object:
    changed = _with_metrics(autoscaler, _old_spec, _old_status)
    behavior = (changed.get("spec") or {}).pop("behavior", None)
    annotations = _annotations_without(changed, (BEHAVIOR,))
    if behavior is not None:
        annotations[BEHAVIOR] = orjson.dumps(_go_behavior(behavior)).decode()
    return _annotate(changed, annotations)


def _with_metrics(autoscaler: Object, spec_of: Any, status_of: Any) -> Object:
    changed = dict(autoscaler)
    if spec := autoscaler.get("spec"):
        changed["spec"] = dict(spec)
        if "metrics" in spec:
            changed["spec"]["metrics"] = [spec_of(metric) for metric in spec["metrics"] or ()]
    if status := autoscaler.get("status"):
        changed["status"] = dict(status)
        if "currentMetrics" in status:
            changed["status"]["currentMetrics"] = [status_of(metric) for metric in status["currentMetrics"] or ()]
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
            others.append(_old_spec(metric))
    if others:
        annotations[METRICS] = orjson.dumps(others).decode()

    current = status.pop("currentMetrics", None) or ()
    for metric in current:
        utilization = _cpu_utilization(metric, "current")
        if utilization is not None:
            status["currentCPUUtilizationPercentage"] = utilization
    if current:
        annotations[CURRENT_METRICS] = orjson.dumps([_old_status(metric) for metric in current]).decode()
    if behavior := spec.pop("behavior", None):
        annotations[BEHAVIOR] = orjson.dumps(_go_behavior(behavior)).decode()
    if conditions := status.pop("conditions", None):
        annotations[CONDITIONS] = orjson.dumps(conditions).decode()

    changed = {**autoscaler, "spec": spec}
    if "status" in autoscaler:
        changed["status"] = {"currentReplicas": 0, "desiredReplicas": 0, **status}
    return _annotate(changed, annotations)


def v1_to_v2(autoscaler: Object) -> Object:
    spec = dict(autoscaler.get("spec") or {})
    status = dict(autoscaler.get("status") or {})
    metrics = [_new_spec(metric) for metric in _read_annotation(autoscaler, METRICS) or ()]
    utilization = spec.pop("targetCPUUtilizationPercentage", None)
    if utilization is not None:
        metrics.append(_cpu("target", type="Utilization", averageUtilization=utilization))
    elif not metrics:
        # v2 has the same default, but cannot tell it from an explicit value.
        metrics.append(_cpu("target", type="Utilization", averageUtilization=80))
    spec["metrics"] = metrics

    current = [_new_status(metric) for metric in _read_annotation(autoscaler, CURRENT_METRICS) or ()]
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


def _go_behavior(behavior: Object) -> Object:
    return {"ScaleUp": _go_rules(behavior.get("scaleUp")), "ScaleDown": _go_rules(behavior.get("scaleDown"))}


def _go_rules(rules: Object | None) -> Object | None:
    if rules is None:
        return None
    policies = rules.get("policies")
    return {
        "StabilizationWindowSeconds": rules.get("stabilizationWindowSeconds"),
        "SelectPolicy": rules.get("selectPolicy"),
        "Policies": None if policies is None else [_go_policy(policy) for policy in policies],
        "Tolerance": rules.get("tolerance"),
    }


def _go_policy(policy: Object) -> Object:
    return {
        "Type": policy.get("type", ""),
        "Value": policy.get("value", 0),
        "PeriodSeconds": policy.get("periodSeconds", 0),
    }


def _plain_behavior(value: Any) -> Any:
    if isinstance(value, dict):
        present = ((name, child) for name, child in value.items() if child is not None)
        return {_GO_BEHAVIOR.get(name, name): _plain_behavior(child) for name, child in present}
    if isinstance(value, list):
        return [_plain_behavior(child) for child in value]
    return value


def v2beta1_shape(schema: Schema) -> Schema:
    for name, (spec, status) in _V2BETA1_FIELDS.items():
        schema = older_schemas.at(schema, f"spec.metrics.[].{name}", _with_only(spec))
        schema = older_schemas.at(schema, f"status.currentMetrics.[].{name}", _with_only(status))
    return older_schemas.at(schema, "spec", older_schemas.with_fields(("behavior",)))


def _with_only(names: tuple[str, ...]) -> older_schemas.Change:
    def change(raw: dict[str, Any]) -> dict[str, Any]:
        before = raw.get("properties", {})
        fields = {name: before.get(name) if name in ("name", "container") else _FIELD[name] for name in names}
        return {**raw, "properties": fields, "required": []}

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
_V2BETA1_FIELDS = {
    "resource": (
        ("name", "targetAverageUtilization", "targetAverageValue"),
        ("name", "currentAverageUtilization", "currentAverageValue"),
    ),
    "containerResource": (
        ("name", "container", "targetAverageUtilization", "targetAverageValue"),
        ("name", "container", "currentAverageUtilization", "currentAverageValue"),
    ),
    "pods": (
        ("metricName", "selector", "targetAverageValue"),
        ("metricName", "selector", "currentAverageValue"),
    ),
    "object": (
        ("target", "metricName", "selector", "targetValue", "averageValue"),
        ("target", "metricName", "selector", "currentValue", "averageValue"),
    ),
    "external": (
        ("metricName", "metricSelector", "targetValue", "targetAverageValue"),
        ("metricName", "metricSelector", "currentValue", "currentAverageValue"),
    ),
}
