"""Evaluates one metric of an autoscaler: reads its values, and returns the replicas that it asks for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple, cast

from pinnace.controllers.autoscaling.metric_values import MetricUnavailable, MetricValues
from pinnace.controllers.autoscaling.recommendation import (
    NoRecommendation,
    PodState,
    Samples,
    Tolerances,
    add_up,
    recommend_by_average,
    recommend_by_share,
    recommend_by_utilization,
    recommend_by_value,
)
from pinnace.controllers.selector_text import format_selector
from pinnace.model import quantity, selectors
from pinnace.model.objects import Object
from pinnace.model.typed_objects import (
    ContainerResourceMetricStatus,
    ExternalMetricStatus,
    MetricSpec,
    MetricStatus,
    MetricValueStatus,
    ObjectMetricStatus,
    PodsMetricStatus,
)


class MetricFailed(Exception):
    """A metric gives no recommendation. `reason` is the reason of the Event and the condition, the text its message.

    `outer` is the message for the autoscaler as a whole.
    """

    def __init__(self, reason: str, message: str, outer: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.outer = outer


class Proposal(NamedTuple):
    """The replicas that a metric asks for, its name in messages, and its entry in `currentMetrics`."""

    replicas: int
    name: str
    status: MetricStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricEvaluation:
    """The facts that all metrics of one evaluation share."""

    namespace: str
    selector: str
    pods: list[PodState]
    replicas: int
    status_replicas: int
    tolerances: Tolerances
    now: float


class MetricSources:
    """Evaluates the metrics of every type."""

    def __init__(self, values: MetricValues) -> None:
        self._values = values
        self._types: dict[str, tuple[str, Callable[[Object, MetricEvaluation], Awaitable[Proposal]]]] = {
            "Resource": ("resource", self._resource),
            "ContainerResource": ("containerResource", self._container_resource),
            "Pods": ("pods", self._pods),
            "Object": ("object", self._object),
            "External": ("external", self._external),
        }

    async def evaluate(self, metric: MetricSpec, evaluation: MetricEvaluation) -> Proposal:
        """Return the proposal of a metric. Raise MetricFailed."""
        type = metric["type"]
        known = self._types.get(type)
        if known is None:
            message = f'unknown metric source type "{type}"'
            raise MetricFailed("InvalidMetricSourceType", message, message)
        field, evaluate = known
        source = cast("Object", metric).get(field) or {}
        try:
            return await evaluate(source, evaluation)
        except (MetricUnavailable, NoRecommendation) as error:
            message = str(error)
            outer = f"{_outer_text(type, source)}: {_inner_text(type, source)}{message}"
            if type in ("Resource", "ContainerResource"):
                message = f"{_inner_text(type, source)}{message}"
            raise MetricFailed(f"FailedGet{type}Metric", message, outer) from None

    async def _resource(self, source: Object, evaluation: MetricEvaluation) -> Proposal:
        replicas, name, current = await self._usage(source, evaluation, "")
        return Proposal(replicas, name, {"type": "Resource", "resource": {"name": source["name"], "current": current}})

    async def _container_resource(self, source: Object, evaluation: MetricEvaluation) -> Proposal:
        container = source["container"]
        replicas, name, current = await self._usage(source, evaluation, container)
        status: ContainerResourceMetricStatus = {"name": source["name"], "container": container, "current": current}
        return Proposal(replicas, name, {"type": "ContainerResource", "containerResource": status})

    async def _usage(
        self, source: Object, evaluation: MetricEvaluation, container: str
    ) -> tuple[int, str, MetricValueStatus]:
        resource, target = source["name"], source["target"]
        average, percent = target.get("averageValue"), target.get("averageUtilization")
        if average is None and percent is None:
            raise NoRecommendation(
                "invalid resource metric source: neither an average utilization target nor an average value (usage) "
                "target was set"
            )
        try:
            metrics = await self._values.of_resource(resource, evaluation.namespace, evaluation.selector, container)
        except MetricUnavailable as error:
            raise MetricUnavailable(f"unable to get metrics for resource {resource}: {error}") from None
        samples = Samples(pods=evaluation.pods, metrics=metrics, now=evaluation.now, resource=resource)
        if average is not None:
            advice = recommend_by_average(samples, evaluation.replicas, _milli(average), evaluation.tolerances)
            return advice.replicas, f"{resource} resource", {"averageValue": _amount(advice.value, resource)}
        used = recommend_by_utilization(
            samples, evaluation.replicas, percent, evaluation.tolerances, container=container
        )
        current: MetricValueStatus = {
            "averageUtilization": used.percent,
            "averageValue": _amount(used.average, resource),
        }
        which = "container resource" if container else "resource"
        return used.replicas, f"{resource} {which} utilization (percentage of request)", current

    async def _pods(self, source: Object, evaluation: MetricEvaluation) -> Proposal:
        metric = source["metric"]
        try:
            metrics = await self._values.of_pods(
                metric, evaluation.namespace, evaluation.selector, _metric_labels(metric)
            )
        except MetricUnavailable as error:
            raise MetricUnavailable(f"unable to get metric {metric['name']}: {error}") from None
        samples = Samples(pods=evaluation.pods, metrics=metrics, now=evaluation.now)
        target = _milli(source["target"]["averageValue"])
        advice = recommend_by_average(samples, evaluation.replicas, target, evaluation.tolerances)
        status: PodsMetricStatus = {"metric": metric, "current": {"averageValue": _amount(advice.value)}}
        return Proposal(advice.replicas, f"pods metric {metric['name']}", {"type": "Pods", "pods": status})

    async def _object(self, source: Object, evaluation: MetricEvaluation) -> Proposal:
        metric, described, target = source["metric"], source["describedObject"], source["target"]
        value, average = target.get("value"), target.get("averageValue")
        is_value = target.get("type") == "Value" and value is not None
        if not is_value and (target.get("type") != "AverageValue" or average is None):
            raise NoRecommendation(
                "invalid object metric source: neither a value target nor an average value target was set"
            )
        name, kind = metric["name"], described["kind"]
        try:
            usage = await self._values.of_object(metric, evaluation.namespace, described, _metric_labels(metric))
        except MetricUnavailable as error:
            # Kubernetes 1.36 fills these four words in this order.
            where = f"{kind} on {evaluation.namespace} {described['name']}"
            raise MetricUnavailable(f"unable to get metric {name}: {where}/{error}") from None
        status: Object = {"metric": metric, "describedObject": described}
        if is_value:
            advice = recommend_by_value(
                evaluation.pods, evaluation.replicas, usage, _milli(value), evaluation.tolerances
            )
            status["current"] = {"value": _amount(advice.value)}
            text = f"{kind} metric {name}"
        else:
            advice = recommend_by_share(evaluation.status_replicas, usage, _milli(average), evaluation.tolerances)
            status["current"] = {"averageValue": _amount(advice.value)}
            text = f"external metric {name}({format_selector(metric.get('selector'))})"
        return Proposal(advice.replicas, text, {"type": "Object", "object": cast("ObjectMetricStatus", status)})

    async def _external(self, source: Object, evaluation: MetricEvaluation) -> Proposal:
        metric, target = source["metric"], source["target"]
        value, average = target.get("value"), target.get("averageValue")
        if value is None and average is None:
            raise NoRecommendation(
                "invalid external metric source: neither a value target nor an average value target was set"
            )
        name, selector = metric["name"], format_selector(metric.get("selector"))
        try:
            values = await self._values.of_external(metric, evaluation.namespace, _metric_labels(metric))
        except MetricUnavailable as error:
            raise MetricUnavailable(
                f"unable to get external metric {evaluation.namespace}/{name}/{selector}: {error}"
            ) from None
        usage = add_up(values)
        if average is not None:
            advice = recommend_by_share(evaluation.status_replicas, usage, _milli(average), evaluation.tolerances)
            current = {"averageValue": _amount(advice.value)}
        else:
            advice = recommend_by_value(
                evaluation.pods, evaluation.replicas, usage, _milli(value), evaluation.tolerances
            )
            current = {"value": _amount(advice.value)}
        status: Object = {"metric": metric, "current": current}
        return Proposal(
            advice.replicas,
            f"external metric {name}({selector})",
            {"type": "External", "external": cast("ExternalMetricStatus", status)},
        )


def _outer_text(type: str, source: Object) -> str:
    if type == "Resource":
        return f"failed to get {source['name']} resource metric value"
    if type == "ContainerResource":
        return f"failed to get {source['container']} container metric value"
    if type == "External":
        return f"failed to get {source['metric']['name']} external metric value"
    return f"failed to get {type.lower()} metric value"


def _inner_text(type: str, source: Object) -> str:
    """Return the words between the message for the metric and the one for the autoscaler."""
    target = source["target"]
    average = target.get("averageValue")
    if type in ("Resource", "ContainerResource"):
        if average is None and target.get("averageUtilization") is None:
            return ""
        return f"failed to get {source['name']} {'usage' if average is not None else 'utilization'}: "
    if type == "External" and average is not None:
        return f"failed to get {source['metric']['name']} external metric: "
    if type == "External" and target.get("value") is not None:
        return f"failed to get external metric {source['metric']['name']}: "
    if type == "Object" and target.get("type") == "AverageValue" and average is not None:
        return f"failed to get {source['metric']['name']} object metric: "
    return ""


def _metric_labels(metric: Object) -> str:
    selector = metric.get("selector")
    return "" if selector is None else str(selectors.from_object(selector))


def _milli(value: str) -> int:
    return quantity.parse(value).milli_value


def _amount(milli: int, resource: str = "") -> str:
    format = quantity.Format.BINARY_SI if resource == "memory" else quantity.Format.DECIMAL_SI
    return str(quantity.Quantity(Decimal(milli).scaleb(-3), format))
