"""Defaults and validation of horizontal pod autoscalers."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, cast

from pinnace.kinds.pods.resource_amounts import validate_container_resource_name
from pinnace.kinds.validation.fields import validate_counts, validate_dns_label
from pinnace.model import names
from pinnace.model.field_errors import FieldError, forbidden, invalid, not_supported, required
from pinnace.model.objects import NOTHING, Object
from pinnace.model.quantity import ZERO, parse
from pinnace.model.resources import Strategy
from pinnace.model.typed_objects import (
    CrossVersionObjectReference,
    HorizontalPodAutoscaler,
    HPAScalingRules,
    MetricSpec,
    MetricTarget,
)

_LONGEST_WINDOW = 3600
_LONGEST_PERIOD = 1800
METRIC_FIELDS: Mapping[str, Literal["object", "external", "pods", "resource", "containerResource"]] = {
    "Object": "object",
    "External": "external",
    "Pods": "pods",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
_SCALE_UP: Object = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
_SCALE_DOWN: Object = {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}
_MOST_OF_CPU: Object = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}


def _default_autoscaler(autoscaler: Object) -> None:
    spec = autoscaler.setdefault("spec", {})
    spec.setdefault("scaleTargetRef", {})
    if "minReplicas" not in spec:
        spec["minReplicas"] = 1
    spec.setdefault("maxReplicas", 0)
    if not spec.get("metrics"):
        spec["metrics"] = [copy.deepcopy(_MOST_OF_CPU)]
    behavior = spec.get("behavior")
    if behavior is not None:
        for direction, rules in (("scaleUp", _SCALE_UP), ("scaleDown", _SCALE_DOWN)):
            behavior[direction] = {**copy.deepcopy(rules), **(behavior.get(direction) or {})}
    if "status" in autoscaler:
        _fill_autoscaler_status(autoscaler)


def _fill_autoscaler_status(autoscaler: Any) -> None:
    """Set the two status fields that Kubernetes always writes."""
    status = autoscaler.setdefault("status", {})
    status.setdefault("desiredReplicas", 0)
    status.setdefault("currentMetrics", None)


def _prepare_autoscaler(new: HorizontalPodAutoscaler, old: HorizontalPodAutoscaler | None) -> None:
    if old is None:
        new["status"] = {}
        _fill_autoscaler_status(new)


def _validate_autoscaler(
    new: HorizontalPodAutoscaler, old: HorizontalPodAutoscaler | None, *, lowest: int = 1
) -> list[FieldError]:
    errs: list[FieldError] = []
    spec = new["spec"]
    least, most = spec["minReplicas"], spec["maxReplicas"]
    lowest = 0 if old is not None and old["spec"].get("minReplicas") == 0 else lowest
    if least < lowest:
        errs.append(invalid("spec.minReplicas", least, f"must be greater than or equal to {lowest}"))
    if most < least:
        errs.append(invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`"))
    target, before = spec["scaleTargetRef"], old["spec"].get("scaleTargetRef", {}) if old is not None else None
    is_same_kind = before is not None and all(target.get(f) == before.get(f) for f in ("apiVersion", "kind"))
    needs_group = target.get("kind") != "ReplicationController"
    _validate_reference(target, "spec.scaleTargetRef", errs, needs_group=needs_group, checks_version=not is_same_kind)
    for index, metric in enumerate(spec["metrics"]):
        _validate_metric(metric, f"spec.metrics[{index}]", errs)
    if least == 0 and not any(metric.get("type") in ("Object", "External") for metric in spec["metrics"]):
        detail = "must specify at least one Object or External metric to support scaling to zero replicas"
        errs.append(forbidden("spec.metrics", detail))
    for direction in ("scaleUp", "scaleDown"):
        rules = (spec.get("behavior") or {}).get(direction)
        if rules is not None:
            _validate_rules(rules, f"spec.behavior.{direction}", errs)
    if most == 0:
        errs.append(required("spec.maxReplicas"))
    elif most < 0:
        errs.append(invalid("spec.maxReplicas", most, "must be greater than or equal to 1"))
    return errs


def _validate_reference(
    reference: CrossVersionObjectReference,
    path: str,
    errs: list[FieldError],
    *,
    needs_group: bool,
    checks_version: bool = True,
) -> None:
    for field in ("kind", "name"):
        value = reference.get(field, "")
        if not value:
            errs.append(required(f"{path}.{field}"))
        else:
            errs.extend(invalid(f"{path}.{field}", value, err) for err in names.path_segment(value))
    version = reference.get("apiVersion", "")
    if not checks_version:
        return
    if version.count("/") > 1:
        detail = f"unexpected GroupVersion string: {version}"
        errs.append(invalid(f"{path}.apiVersion", version, detail))
    elif needs_group and not version.rpartition("/")[0]:
        errs.append(invalid(f"{path}.apiVersion", version, "apiVersion must specify API group"))


def _validate_metric(metric: MetricSpec, path: str, errs: list[FieldError]) -> None:
    kind = metric.get("type", "")
    supported = sorted(METRIC_FIELDS)
    if not kind:
        errs.append(required(f"{path}.type", "must specify a metric source type"))
    if kind not in METRIC_FIELDS:
        errs.append(not_supported(f"{path}.type", kind, supported))
    present = [field for field in METRIC_FIELDS.values() if field in metric]
    if present:
        _validate_source(cast("Object", metric[present[0]]), present[0], f"{path}.{present[0]}", errs)
    expected = METRIC_FIELDS.get(kind)
    if expected is not None and expected not in metric:
        detail = "must populate information for the given metric source"
        errs.append(required(f"{path}.{expected}", detail))
    if len(present) != 1:
        for field in present:
            if field != expected:
                errs.append(forbidden(f"{path}.{field}", "must populate the given metric source only"))


def _validate_source(source: Object, kind: str, path: str, errs: list[FieldError]) -> None:
    target, where = source.get("target") or NOTHING, f"{path}.target"
    if kind == "object":
        described = source.get("describedObject") or NOTHING
        _validate_reference(described, f"{path}.describedObject", errs, needs_group=False)
    if kind in ("object", "external", "pods"):
        name = (source.get("metric") or {}).get("name", "")
        if not name:
            errs.append(required(f"{path}.metric.name", "must specify a metric name"))
        else:
            errs.extend(invalid(f"{path}.metric.name", name, err) for err in names.path_segment(name))
    else:
        _validate_resource_source(source, kind, path, errs)
    _validate_target(target, where, errs)
    has_value, has_average = "value" in target, "averageValue" in target
    if kind == "object" and not has_value and not has_average:
        errs.append(required(f"{where}.averageValue", "must set either a target value or averageValue"))
    elif kind == "external" and has_value == has_average:
        if has_value:
            detail = "may not set both a target value for metric and a per-pod target"
            errs.append(forbidden(f"{where}.value", detail))
        else:
            detail = "must set either a target value for metric or a per-pod target"
            errs.append(required(f"{where}.averageValue", detail))
    elif kind == "pods" and not has_average:
        errs.append(required(f"{where}.averageValue", "must specify a positive target averageValue"))
    elif kind in ("resource", "containerResource") and has_average == ("averageUtilization" in target):
        if has_average:
            detail = "may not set both a target raw value and a target utilization"
            errs.append(forbidden(f"{where}.averageValue", detail))
        else:
            detail = "must set either a target raw value or a target utilization"
            errs.append(required(f"{where}.averageUtilization", detail))


def _validate_resource_source(source: Object, kind: str, path: str, errs: list[FieldError]) -> None:
    name, container = source.get("name", ""), source.get("container", "")
    if not name:
        errs.append(required(f"{path}.name", "must specify a resource name"))
    elif kind == "containerResource":
        validate_container_resource_name(name, f"{path}.name", errs)
    if kind == "containerResource":
        if not container:
            errs.append(required(f"{path}.container", "must specify a container"))
        else:
            errs += validate_dns_label(container, f"{path}.container")


def _validate_target(target: MetricTarget, path: str, errs: list[FieldError]) -> None:
    kind = target.get("type", "")
    if not kind:
        errs.append(required(f"{path}.type", "must specify a metric target type"))
    if kind not in ("Utilization", "Value", "AverageValue"):
        errs.append(invalid(f"{path}.type", kind, "must be either Utilization, Value, or AverageValue"))
    for field in ("value", "averageValue"):
        if field in target and parse(target[field]) <= ZERO:
            errs.append(invalid(f"{path}.{field}", str(parse(target[field])), "must be positive"))
    utilization = target.get("averageUtilization")
    if utilization is not None and utilization < 1:
        errs.append(invalid(f"{path}.averageUtilization", utilization, "must be greater than 0"))


def _validate_rules(rules: HPAScalingRules, path: str, errs: list[FieldError]) -> None:
    window, selection = rules.get("stabilizationWindowSeconds"), rules.get("selectPolicy")
    where = f"{path}.stabilizationWindowSeconds"
    if window is not None and window < 0:
        errs.append(invalid(where, window, "must be greater than or equal to zero"))
    if window is not None and window > _LONGEST_WINDOW:
        errs.append(invalid(where, window, f"must be less than or equal to {_LONGEST_WINDOW}"))
    if selection is not None and selection not in ("Max", "Min", "Disabled"):
        errs.append(not_supported(f"{path}.selectPolicy", selection, ["Disabled", "Max", "Min"]))
    if not rules.get("policies"):
        errs.append(required(f"{path}.policies", "must specify at least one Policy"))
    for index, policy in enumerate(rules.get("policies") or ()):
        at = f"{path}.policies[{index}]"
        if policy.get("type", "") not in ("Pods", "Percent"):
            errs.append(not_supported(f"{at}.type", policy.get("type", ""), ["Percent", "Pods"]))
        for field in ("value", "periodSeconds"):
            if policy.get(field, 0) <= 0:
                errs.append(invalid(f"{at}.{field}", policy.get(field, 0), "must be greater than zero"))
        if policy.get("periodSeconds", 0) > _LONGEST_PERIOD:
            detail = f"must be less than or equal to {_LONGEST_PERIOD}"
            errs.append(invalid(f"{at}.periodSeconds", policy["periodSeconds"], detail))
    if "tolerance" in rules and parse(rules["tolerance"]) < ZERO:
        tolerance = str(parse(rules["tolerance"]))
        errs.append(invalid(f"{path}.tolerance", tolerance, "must be greater than or equal to 0"))


def _validate_autoscaler_status(new: HorizontalPodAutoscaler, old: HorizontalPodAutoscaler | None) -> list[FieldError]:
    errs: list[FieldError] = []
    errs += validate_counts(new.get("status") or {}, ("currentReplicas", "desiredReplicas"), "status")
    return errs


HORIZONTAL_POD_AUTOSCALER = Strategy(
    default=_default_autoscaler,
    prepare=_prepare_autoscaler,
    validate=_validate_autoscaler,
    validate_status=_validate_autoscaler_status,
)
validate_autoscaler_to_zero = partial(_validate_autoscaler, lowest=0)
