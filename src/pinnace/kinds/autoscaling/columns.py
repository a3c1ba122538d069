"""The columns of autoscalers and scales."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from pinnace.kinds.cells import AGE, NAME, NONE, UNKNOWN, UNSET, at, integer, number_at, reach, string, text
from pinnace.model.objects import Object

_AUTOSCALING = "io.k8s.api.autoscaling.v2"
_SCALE = "io.k8s.api.autoscaling.v1"
_SOURCES = {
    "External": "external",
    "Pods": "pods",
    "Object": "object",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
_NO_QUANTITY = "<nil>"


def _metric(spec: Object, status: Object | None) -> str:
    """Return the current and the wanted value of a metric."""
    kind = spec.get("type", "")
    field = _SOURCES.get(kind)
    if field is None:
        return "<unknown type>"
    target = reach(spec, field, "target") or {}
    is_known = reach(status, field) is not None
    current = reach(status, field, "current") or {}
    average = target.get("averageValue")
    if kind in ("Resource", "ContainerResource"):
        name = reach(spec, field, "name") or ""
        if average is not None:
            shown = text(current.get("averageValue", _NO_QUANTITY)) if is_known else UNKNOWN
            return f"{name}: {shown}/{average}"
        used, wanted = current.get("averageUtilization"), target.get("averageUtilization")
        shown = UNKNOWN if used is None else f"{used}%"
        return f"{name}: {shown}/{'<auto>' if wanted is None else f'{wanted}%'}"
    if kind == "Pods":
        shown = text(current.get("averageValue", _NO_QUANTITY)) if is_known else UNKNOWN
        return f"{shown}/{_NO_QUANTITY if average is None else average}"
    if average is not None:
        return f"{text(current.get('averageValue', UNKNOWN))}/{average} (avg)"
    shown = text(current.get("value", _NO_QUANTITY)) if is_known else UNKNOWN
    return f"{shown}/{target.get('value', _NO_QUANTITY)}"


def _targets(autoscaler: Object, now: datetime) -> str:
    specs = reach(autoscaler, "spec", "metrics") or ()
    if not specs:
        return NONE
    statuses = reach(autoscaler, "status", "currentMetrics") or ()
    shown = [_metric(spec, statuses[index] if index < len(statuses) else None) for index, spec in enumerate(specs)]
    listed = ", ".join(shown[:2])
    return f"{listed} + {len(shown) - 2} more..." if len(shown) > 2 else listed


def _reference(autoscaler: Object, now: datetime) -> str:
    target = reach(autoscaler, "spec", "scaleTargetRef") or {}
    return f"{target.get('kind', '')}/{target.get('name', '')}"


HORIZONTAL_POD_AUTOSCALER = (
    NAME,
    string("Reference", f"{_AUTOSCALING}.HorizontalPodAutoscalerSpec.scaleTargetRef", _reference),
    string("Targets", f"{_AUTOSCALING}.HorizontalPodAutoscalerSpec.metrics", _targets),
    string(
        "MinPods",
        f"{_AUTOSCALING}.HorizontalPodAutoscalerSpec.minReplicas",
        lambda obj, now: text(reach(obj, "spec", "minReplicas")) or UNSET,
    ),
    string("MaxPods", f"{_AUTOSCALING}.HorizontalPodAutoscalerSpec.maxReplicas", number_at("spec.maxReplicas")),
    string(
        "Replicas",
        f"{_AUTOSCALING}.HorizontalPodAutoscalerStatus.currentReplicas",
        number_at("status.currentReplicas"),
    ),
    AGE,
)
SCALE = (
    replace(NAME, format=""),
    integer("Desired", f"{_SCALE}.ScaleSpec.replicas", number_at("spec.replicas")),
    integer("Available", f"{_SCALE}.ScaleStatus.replicas", number_at("status.replicas")),
    AGE,
)
CUSTOM_SCALE = (
    NAME,
    integer("Desired", "Number of desired replicas", at("spec.replicas", None)),
    integer("Available", "Number of actual replicas", at("status.replicas", None)),
    replace(AGE, type="date"),
)
