"""How fast replicas may follow the recommendations: stabilization windows, scaling policies, minimum and maximum.

Pure functions of a history, which the controller and the backtest keep per autoscaler.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pinnace.controllers.autoscaling.recommendation import MAX_REPLICAS, TOLERANCE, Tolerances
from pinnace.model import quantity
from pinnace.model.typed_objects import HorizontalPodAutoscalerSpec

DOWNSCALE_WINDOW = 300.0
"""Seconds for which the highest recommendation holds, unless the autoscaler sets others."""
_FACTOR, _LEAST = 2, 4
"""Without a behavior, one step at most doubles the replicas, or goes to four."""
_FASTER_UP = "the desired replica count is increasing faster than the maximum scale rate"
_FASTER_DOWN = "the desired replica count is decreasing faster than the maximum scale rate"
_TOO_MANY = "the desired replica count is more than the maximum replica count"
_TOO_FEW = "the desired replica count is less than the minimum replica count"
_WITHIN = ("DesiredWithinRange", "the desired count is within the acceptable range")
_READY = ("ReadyForNewScale", "recommended size matches current size")
_UP_STABILIZED = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
)
_DOWN_STABILIZED = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
)


class ScalingPolicy(NamedTuple):
    """Allows a change by so many pods, or percent, in a period."""

    type: str
    value: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRules:
    """The rules for one direction."""

    window: float
    select: str = "Max"
    policies: tuple[ScalingPolicy, ...]

    @property
    def longest_period(self) -> float:
        return max((policy.seconds for policy in self.policies), default=0.0)


_UP = ScalingRules(window=0.0, policies=(ScalingPolicy("Pods", 4, 15.0), ScalingPolicy("Percent", 100, 15.0)))
_DOWN = ScalingRules(window=DOWNSCALE_WINDOW, policies=(ScalingPolicy("Percent", 100, 15.0),))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingLimits:
    """The bounds of an autoscaler, and its rules if it has a behavior."""

    least: int
    most: int
    tolerances: Tolerances = field(default_factory=Tolerances)
    rules: tuple[ScalingRules, ScalingRules] | None = None
    """The rules for more and for fewer replicas."""


class _Sample(NamedTuple):
    replicas: int
    at: float


@dataclass(slots=True)
class ScaleHistory:
    """The recent recommendations for one autoscaler, and its recent changes of the replicas."""

    recommendations: list[_Sample] = field(default_factory=list)
    added: list[_Sample] = field(default_factory=list)
    removed: list[_Sample] = field(default_factory=list)

    def begin(self, current: int, now: float) -> None:
        """Count the replicas before the first recommendation as one."""
        if not self.recommendations:
            self.recommendations.append(_Sample(current, now))

    def note_scale(self, limits: ScalingLimits, before: int, after: int, now: float) -> None:
        """Remember a change of the replicas, for the policies of a behavior."""
        if limits.rules is None:
            return
        is_up = after > before
        rules, samples = (limits.rules[0], self.added) if is_up else (limits.rules[1], self.removed)
        samples[:] = [sample for sample in samples if sample.at >= now - rules.longest_period]
        samples.append(_Sample(abs(after - before), now))


class ScaleDecision(NamedTuple):
    """The replicas to set, and the reasons and messages of the conditions that explain the number."""

    replicas: int
    able: tuple[str, str]
    limited: tuple[str, str]
    is_limited: bool


def limits_of(spec: HorizontalPodAutoscalerSpec) -> ScalingLimits:
    """Return the limits in the spec of an autoscaler."""
    least = spec.get("minReplicas")
    behavior = spec.get("behavior")
    bounds = ScalingLimits(least=1 if least is None else least, most=spec["maxReplicas"])
    if behavior is None:
        return bounds
    up, down = behavior.get("scaleUp") or {}, behavior.get("scaleDown") or {}
    tolerances = Tolerances(down=_tolerance(down), up=_tolerance(up))
    return replace(bounds, tolerances=tolerances, rules=(_rules(up, _UP), _rules(down, _DOWN)))


def decide(history: ScaleHistory, limits: ScalingLimits, current: int, proposed: int, now: float) -> ScaleDecision:
    """Return the replicas to set when the metrics propose a number, and remember the proposal."""
    if limits.rules is None:
        stable, able = _stabilize(history, proposed, now), _DOWN_STABILIZED
        replicas, limited = _bound(limits, current, stable)
    else:
        up, down = limits.rules
        stable = _stabilize_with_rules(history, limits.rules, current, proposed, now)
        able = _UP_STABILIZED if proposed >= current else _DOWN_STABILIZED
        if stable > current:
            replicas, limited = _bound_up(limits, current, stable, _most_by_policies(history, up, current, now))
        elif stable < current:
            replicas, limited = _bound_down(limits, current, stable, _least_by_policies(history, down, current, now))
        else:
            replicas, limited = stable, _WITHIN
    return ScaleDecision(replicas, able if stable != proposed else _READY, limited, replicas != stable)


def _stabilize(history: ScaleHistory, proposed: int, now: float) -> int:
    recent = [
        recommendation for recommendation in history.recommendations if recommendation.at >= now - DOWNSCALE_WINDOW
    ]
    history.recommendations = [*recent, _Sample(proposed, now)]
    return max(recommendation.replicas for recommendation in history.recommendations)


def _stabilize_with_rules(
    history: ScaleHistory, rules: tuple[ScalingRules, ScalingRules], current: int, proposed: int, now: float
) -> int:
    lowest = highest = proposed
    kept = []
    up_since, down_since = now - rules[0].window, now - rules[1].window
    for recommendation in history.recommendations:
        if recommendation.at > up_since:
            lowest = min(recommendation.replicas, lowest)
        if recommendation.at > down_since:
            highest = max(recommendation.replicas, highest)
        if recommendation.at >= min(up_since, down_since):
            kept.append(recommendation)
    history.recommendations = [*kept, _Sample(proposed, now)]
    return min(max(current, lowest), highest)


def _bound(limits: ScalingLimits, current: int, wanted: int) -> tuple[int, tuple[str, str]]:
    step = max(_FACTOR * current, _LEAST)
    most, reason = (step, ("ScaleUpLimit", _FASTER_UP)) if limits.most > step else (limits.most, None)
    if wanted < limits.least:
        return limits.least, ("TooFewReplicas", _TOO_FEW)
    if wanted > most:
        return most, reason or ("TooManyReplicas", _TOO_MANY)
    return wanted, _WITHIN


def _bound_up(limits: ScalingLimits, current: int, wanted: int, step: int) -> tuple[int, tuple[str, str]]:
    step = max(step, current)
    most, reason = min(limits.most, step), ("TooManyReplicas", _TOO_MANY)
    if limits.most > step:
        reason = ("ScaleUpLimit", _FASTER_UP)
    return (most, reason) if wanted > most else (wanted, _WITHIN)


def _bound_down(limits: ScalingLimits, current: int, wanted: int, step: int) -> tuple[int, tuple[str, str]]:
    step = min(step, current)
    least, reason = max(limits.least, step), ("TooFewReplicas", _TOO_FEW)
    if limits.least < step:
        reason = ("ScaleDownLimit", _FASTER_DOWN)
    return (least, reason) if wanted < least else (wanted, _WITHIN)


def _most_by_policies(history: ScaleHistory, rules: ScalingRules, current: int, now: float) -> int:
    if rules.select == "Disabled":
        return current
    proposals = []
    for policy in rules.policies:
        start = _at_start_of_period(history, policy, current, now)
        # Rounded up: a small percentage of few pods would never add one.
        by_percent = math.ceil(start * (1 + policy.value / 100))
        proposals.append(start + policy.value if policy.type == "Pods" else by_percent)
    if rules.select == "Min":
        return min(proposals, default=MAX_REPLICAS)
    return max(proposals, default=current)


def _least_by_policies(history: ScaleHistory, rules: ScalingRules, current: int, now: float) -> int:
    if rules.select == "Disabled":
        return current
    proposals = []
    for policy in rules.policies:
        start = _at_start_of_period(history, policy, current, now)
        by_percent = int(start * (1 - policy.value / 100))
        proposals.append(start - policy.value if policy.type == "Pods" else by_percent)
    if rules.select == "Min":
        return max(proposals, default=0)
    return min(proposals, default=current)


def _at_start_of_period(history: ScaleHistory, policy: ScalingPolicy, current: int, now: float) -> int:
    since = now - policy.seconds
    added = sum(event.replicas for event in history.added if event.at > since)
    removed = sum(event.replicas for event in history.removed if event.at > since)
    return current - added + removed


def _rules(written: Mapping[str, Any], default: ScalingRules) -> ScalingRules:
    window, policies = written.get("stabilizationWindowSeconds"), written.get("policies")
    return ScalingRules(
        window=default.window if window is None else float(window),
        select=written.get("selectPolicy") or default.select,
        policies=tuple(
            ScalingPolicy(policy["type"], policy["value"], float(policy["periodSeconds"])) for policy in policies
        )
        if policies
        else default.policies,
    )


def _tolerance(written: Mapping[str, Any]) -> float:
    value = written.get("tolerance")
    return TOLERANCE if value is None else float(quantity.parse(value).amount)
