"""Stabilization windows, scaling policies and bounds between a recommendation and the replicas that are set."""

from __future__ import annotations

from typing import Any

import pytest

from pinnace.controllers.autoscaling.behavior import ScaleDecision, ScaleHistory, ScalingLimits, decide, limits_of


def _limits(spec: Any) -> ScalingLimits:
    return limits_of(spec)


class Driver:
    """An autoscaler whose target follows at once, evaluated every 15 seconds."""

    def __init__(self, current: int, **spec: Any) -> None:
        self.limits: ScalingLimits = _limits({"maxReplicas": 100, **spec})
        self.history = ScaleHistory()
        self.current = current
        self.now = 1000.0
        self.history.begin(current, self.now)

    def propose(self, replicas: int, *, after: float = 15.0) -> ScaleDecision:
        self.now += after
        decision = decide(self.history, self.limits, self.current, replicas, self.now)
        if decision.replicas != self.current:
            self.history.note_scale(self.limits, self.current, decision.replicas, self.now)
            self.current = decision.replicas
        return decision


def policies(*rows: tuple[str, int, int], **more: Any) -> dict[str, Any]:
    return {
        "policies": [{"type": type, "value": value, "periodSeconds": period} for type, value, period in rows],
        **more,
    }


@pytest.mark.parametrize(
    ("current", "proposed", "spec", "expected"),
    [
        (3, 5, {}, (5, "DesiredWithinRange", False)),
        (3, 20, {}, (6, "ScaleUpLimit", True)),
        (1, 20, {}, (4, "ScaleUpLimit", True)),
        (10, 20, {"maxReplicas": 12}, (12, "TooManyReplicas", True)),
        (3, 20, {"maxReplicas": 12, "behavior": {}}, (7, "ScaleUpLimit", True)),
        (3, 7, {"behavior": {"scaleUp": {"selectPolicy": "Disabled"}}}, (3, "ScaleUpLimit", True)),
    ],
    ids=["free", "at most twice", "at most four", "the maximum", "four pods or twice", "not at all"],
)
def test_a_rise_is_limited(current: int, proposed: int, spec: dict[str, Any], expected: tuple[int, str, bool]) -> None:
    advice = Driver(current, **spec).propose(proposed)
    assert (advice.replicas, advice.limited[0], advice.is_limited) == expected


@pytest.mark.parametrize("spec", [{}, {"behavior": {}}], ids=["without a behavior", "with the default behavior"])
def test_fewer_replicas_wait_for_five_minutes(spec: dict[str, Any]) -> None:
    driver = Driver(10, **spec)
    assert driver.propose(2).able[0] == "ScaleDownStabilized"
    assert driver.current == 10
    driver.propose(2, after=280)
    assert driver.current == 10
    assert driver.propose(2, after=10).able[0] == "ReadyForNewScale"
    assert driver.current == 2


def test_the_minimum_holds() -> None:
    driver = Driver(5, minReplicas=3)
    advice = driver.propose(0, after=301)
    assert (advice.replicas, advice.limited[0], advice.is_limited) == (3, "TooFewReplicas", True)


def test_pods_per_period_are_counted_over_the_period() -> None:
    rules = {"scaleUp": policies(("Pods", 2, 60)), "scaleDown": {"stabilizationWindowSeconds": 0}}
    driver = Driver(2, behavior=rules)
    sizes = []
    for _ in range(9):
        driver.propose(50)
        sizes.append(driver.current)
    assert sizes == [4, 4, 4, 4, 6, 6, 6, 6, 8]


def test_the_slower_of_two_policies_for_fewer_replicas() -> None:
    down = policies(("Percent", 50, 60), ("Pods", 1, 60), selectPolicy="Min", stabilizationWindowSeconds=0)
    driver = Driver(10, behavior={"scaleDown": down})
    advice = driver.propose(1)
    assert (advice.replicas, advice.limited[0]) == (9, "ScaleDownLimit")
    driver.limits = _limits({"maxReplicas": 100, "behavior": {"scaleDown": {**down, "selectPolicy": "Max"}}})
    assert driver.propose(1, after=61).replicas == 4


def test_a_window_for_more_replicas_takes_the_lowest_recent_recommendation() -> None:
    driver = Driver(2, behavior={"scaleUp": {"stabilizationWindowSeconds": 60}})
    assert driver.propose(6).able[0] == "ScaleUpStabilized"
    assert driver.current == 2
    driver.propose(5, after=50)
    assert driver.current == 5


def test_tolerances_come_from_the_behavior() -> None:
    limits = _limits({"maxReplicas": 3, "behavior": {"scaleUp": {"tolerance": "50m"}}})
    assert limits.tolerances == (0.1, 0.05)
