"""The row of horizontal pod autoscalers, and the columns of autoscalers and scales."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from pinnace.kinds.autoscaling import conversion, validation
from pinnace.kinds.autoscaling.validation import METRIC_FIELDS
from pinnace.kinds.cells import AGE, NAME, NONE, UNKNOWN, UNSET, at, integer, number_at, reach, string, text
from pinnace.kinds.rows import STATUS, Row, Version, old
from pinnace.model.objects import NOTHING
from pinnace.model.typed_objects import HorizontalPodAutoscaler, MetricSpec, MetricStatus

_AUTOSCALING = "io.k8s.api.autoscaling.v2"
_SCALE = "io.k8s.api.autoscaling.v1"
_NO_QUANTITY = "<nil>"


def _metric(spec: MetricSpec, status: MetricStatus | None) -> str:
    """Return the current and the wanted value of a metric."""
    kind = spec.get("type", "")
    field = METRIC_FIELDS.get(kind)
    if field is None:
        return "<unknown type>"
    target = reach(spec, field, "target") or {}
    is_known = reach(status, field) is not None
    current = reach(status, field, "current") or {}
    average = target.get("averageValue")
    if kind in ("Resource", "ContainerResource"):
        name = reach(spec, field, "name") or ""
        if average is not None:
            value = text(current.get("averageValue", _NO_QUANTITY)) if is_known else UNKNOWN
            return f"{name}: {value}/{average}"
        used, wanted = current.get("averageUtilization"), target.get("averageUtilization")
        value = UNKNOWN if used is None else f"{used}%"
        return f"{name}: {value}/{'<auto>' if wanted is None else f'{wanted}%'}"
    if kind == "Pods":
        value = text(current.get("averageValue", _NO_QUANTITY)) if is_known else UNKNOWN
        return f"{value}/{_NO_QUANTITY if average is None else average}"
    if average is not None:
        return f"{text(current.get('averageValue', UNKNOWN))}/{average} (avg)"
    value = text(current.get("value", _NO_QUANTITY)) if is_known else UNKNOWN
    return f"{value}/{target.get('value', _NO_QUANTITY)}"


def _targets(autoscaler: HorizontalPodAutoscaler, now: datetime) -> str:
    specs = reach(autoscaler, "spec", "metrics") or ()
    if not specs:
        return NONE
    statuses = reach(autoscaler, "status", "currentMetrics") or ()
    metrics = [_metric(spec, statuses[index] if index < len(statuses) else None) for index, spec in enumerate(specs)]
    listed = ", ".join(metrics[:2])
    return f"{listed} + {len(metrics) - 2} more..." if len(metrics) > 2 else listed


def _reference(autoscaler: HorizontalPodAutoscaler, now: datetime) -> str:
    target = reach(autoscaler, "spec", "scaleTargetRef") or NOTHING
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


ROWS = (
    Row(
        group="autoscaling",
        name="HorizontalPodAutoscaler",
        plural="horizontalpodautoscalers",
        columns=HORIZONTAL_POD_AUTOSCALER,
        short_names=("hpa",),
        categories=("all",),
        versions=(
            Version("v2"),
            Version("v1", to_stored=conversion.v1_to_v2, from_stored=conversion.v2_to_v1),
            # 1.25 still has this version; its shape is that of v2.
            old("v2beta2", deprecated="1.23", removed="1.26", replacement="autoscaling/v2"),
            old(
                "v2beta1",
                deprecated="1.22",
                removed="1.25",
                replacement="autoscaling/v2",
                to_stored=conversion.v2beta1_to_v2,
                from_stored=conversion.v2_to_v2beta1,
                reshape=conversion.v2beta1_shape,
            ),
        ),
        subresources=(STATUS,),
        strategy=validation.HORIZONTAL_POD_AUTOSCALER,
        gated={
            "HPAScaleToZero": {"validate": validation.validate_autoscaler_to_zero},
            "HPAGeneration": {"tracks_generation": True},
        },
    ),
)
