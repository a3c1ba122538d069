"""Descriptions of HorizontalPodAutoscalers, PodDisruptionBudgets and PriorityClasses."""

from __future__ import annotations

from typing import Any

from pinnace.cli.describe.parts import (
    NONE,
    UNSET,
    Description,
    heading,
    heading_with_labels,
    long_time,
)
from pinnace.kinds.cells import format_labels, format_selector
from pinnace.model.objects import Object
from pinnace.schema.golang.text import quote

_UNKNOWN = "<unknown>"


def autoscaler(page: Description, obj: Object) -> None:
    spec, status = obj["spec"], obj.get("status") or {}
    target = spec["scaleTargetRef"]
    heading_with_labels(page, obj)
    page.pair("CreationTimestamp", long_time(obj["metadata"].get("creationTimestamp")))
    page.pair("Reference", f"{target['kind']}/{target['name']}")
    page.pair("Metrics", "( current / target )")
    measured = status.get("currentMetrics") or []
    for place, metric in enumerate(spec.get("metrics") or ()):
        page.line(_metric(metric, measured[place] if place < len(measured) else {}), 1)
    page.pair("Min replicas", spec.get("minReplicas", UNSET))
    page.pair("Max replicas", spec.get("maxReplicas", 0))
    if spec.get("behavior"):
        page.line("Behavior:")
        _direction(page, "Scale Up", spec["behavior"].get("scaleUp"))
        _direction(page, "Scale Down", spec["behavior"].get("scaleDown"))
    counts = f"{status.get('currentReplicas', 0)} current / {status.get('desiredReplicas', 0)} desired"
    page.pair(f"{target['kind']} pods", counts)
    if status.get("conditions"):
        page.line("Conditions:")
        fields = ("type", "status", "reason", "message")
        page.table(
            map(str.title, fields),
            [[condition.get(field, "") for field in fields] for condition in status["conditions"]],
        )


def _metric(metric: Object, measured: Object) -> str:
    kind = metric["type"]
    field = kind[0].lower() + kind[1:]
    source = metric.get(field)
    if not source:
        return f"<unknown metric type {quote(kind)}>"
    target, current = source["target"], (measured.get(field) or {}).get("current")
    match kind:
        case "Resource":
            return f"resource {source['name']} on pods{_of_request(target, current)}"
        case "ContainerResource":
            where = f'resource {source["name"]} of container "{source["container"]}" on pods'
            return where + _of_request(target, current)
        case "Pods":
            return f"{quote(source['metric']['name'])} on pods:\t{_format_target('averageValue', target, current)}"
        case "Object":
            described = source["describedObject"]
            named = f'"{source["metric"]["name"]}" on {described["kind"]}/{described["name"]}'
            return named + _of_value(target, current, is_average=target.get("type") == "AverageValue")
    return quote(source["metric"]["name"]) + _of_value(target, current, is_average="averageValue" in target)


def _of_request(target: Object, current: Object | None) -> str:
    if "averageValue" in target:
        return f":\t{_format_target('averageValue', target, current)}"
    now, wanted = (current or {}).get("averageUtilization"), target.get("averageUtilization")
    measured = _UNKNOWN if now is None else f"{now}% ({_amount(current or {}, 'averageValue')})"
    return f"  (as a percentage of request):\t{measured} / {'<auto>' if wanted is None else f'{wanted}%'}"


def _of_value(target: Object, current: Object | None, *, is_average: bool) -> str:
    if is_average:
        return f" (target average value):\t{_format_target('averageValue', target, current)}"
    return f" (target value):\t{_format_target('value', target, current)}"


def _format_target(field: str, target: Object, current: Object | None) -> str:
    return f"{_UNKNOWN if current is None else _amount(current, field)} / {_amount(target, field)}"


def _amount(value: Object, field: str) -> Any:
    return value.get(field, "<nil>")


def _direction(page: Description, title: str, rules: Object | None) -> None:
    if rules is None:
        return
    page.line(f"{title}:", 1)
    if rules.get("stabilizationWindowSeconds") is not None:
        page.line(f"Stabilization Window: {rules['stabilizationWindowSeconds']} seconds", 2)
    if rules.get("policies"):
        page.line(f"Select Policy: {rules.get('selectPolicy', 'Max')}", 2)
        page.line("Policies:", 2)
        for policy in rules["policies"]:
            page.line(
                f"- Type: {policy['type']}\tValue: {policy['value']}\tPeriod: {policy['periodSeconds']} seconds", 3
            )


def disruption_budget(page: Description, obj: Object) -> None:
    spec, status = obj["spec"], obj.get("status") or {}
    heading(page, obj)
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    page.pairs(("Min available", least), ("Max unavailable", most if least is None else None))
    page.pair("Selector", (format_selector(spec["selector"]) or NONE) if spec.get("selector") is not None else UNSET)
    page.line("Status:")
    page.pairs(
        ("Allowed disruptions", status.get("disruptionsAllowed", 0)),
        ("Current", status.get("currentHealthy", 0)),
        ("Desired", status.get("desiredHealthy", 0)),
        ("Total", status.get("expectedPods", 0)),
        level=2,
    )


def priority_class(page: Description, obj: Object) -> None:
    heading(page, obj, namespaced=False)
    page.pairs(
        ("Value", obj.get("value", 0)),
        ("GlobalDefault", obj.get("globalDefault", False)),
        ("PreemptionPolicy", obj.get("preemptionPolicy", "")),
        ("Description", obj.get("description", "")),
        ("Annotations", format_labels(obj["metadata"].get("annotations"))),
    )
