"""The replicas that metrics ask for: missing and unready pods damp a change, and never turn it around."""

from __future__ import annotations

import pytest

from pinnace.controllers.autoscaling.recommendation import (
    NoRecommendation,
    PodMetric,
    PodState,
    Readiness,
    Samples,
    Tolerances,
    add_up,
    recommend_by_average,
    recommend_by_share,
    recommend_by_utilization,
    recommend_by_value,
)

NOW = 10_000.0
EXACT = Tolerances()


def pod(
    name: str, *, phase: str = "Running", ready: str = "True", age: float = 3600.0, requests: int = 1000
) -> PodState:
    return PodState(
        name=name,
        phase=phase,
        ready=Readiness(status=ready, since=NOW - age),
        started=NOW - age,
        containers={"main": {"cpu": requests}},
    )


def samples(usages: list[int | None], *, pods: list[PodState] | None = None, resource: str = "cpu") -> Samples:
    """Pods p0, p1… with their usages; None for a pod without a value."""
    metrics = {f"p{n}": PodMetric(value, NOW) for n, value in enumerate(usages) if value is not None}
    own = pods or [pod(f"p{n}") for n in range(len(usages))]
    return Samples(pods=own, metrics=metrics, now=NOW, resource=resource)


@pytest.mark.parametrize(
    ("usages", "target", "replicas", "percent"),
    [
        ([300, 500, 700], 30, 5, 50),
        ([100, 300, 500], 50, 2, 30),
        ([110, 110, 110], 10, 3, 11),
        ([111, 120, 120], 10, 3, 11),
        ([300, 500, None], 60, 3, 40),
        ([900, None, None], 50, 3, 90),
        ([1000, 1000, None], 40, 5, 100),
        ([0, 0, 0], 50, 0, 0),
        ([100, 100, None], 200, 2, 10),
    ],
    ids=[
        "more usage, more replicas",
        "less usage, fewer replicas",
        "a ratio within the tolerance changes nothing",
        "percent are cut, not rounded",
        "a missing pod counts as fully used on the way down",
        "missing pods count as idle on the way up",
        "missing pods lower a rise",
        "no usage asks for nothing; the minimum decides",
        "above 100 percent a missing pod counts as at its target",
    ],
)
def test_utilization_decides_the_replicas(usages: list[int | None], target: int, replicas: int, percent: int) -> None:
    advice = recommend_by_utilization(samples(usages), len(usages), target, EXACT)
    assert (advice.replicas, advice.percent) == (replicas, percent)


def test_pods_that_have_just_started_do_not_count_their_cpu() -> None:
    pods = [pod("p0"), pod("p1"), pod("p2", age=10, ready="False")]
    advice = recommend_by_utilization(samples([500, 500, 2000], pods=pods), 3, 50, EXACT)
    assert (advice.replicas, advice.percent) == (3, 50)


def test_memory_of_unready_pods_counts() -> None:
    pods = [pod("p0"), pod("p1", age=10, ready="False")]
    advice = recommend_by_average(samples([500, 1500], pods=pods, resource="memory"), 2, 500, EXACT)
    assert (advice.replicas, advice.value) == (4, 1000)


def test_a_sample_from_before_a_young_pod_was_ready_does_not_count() -> None:
    young = PodState(
        name="p1", ready=Readiness(status="True", since=NOW - 20), started=NOW - 100, containers={"main": {"cpu": 1000}}
    )
    pods = [pod("p0"), young]
    assert recommend_by_utilization(samples([500, 5000], pods=pods), 2, 50, EXACT).replicas == 2


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([], "no pods returned by selector while calculating replica count"),
        ([pod("p0", phase="Pending")], "did not receive metrics for targeted pods (pods might be unready)"),
        (
            [PodState(name="p0", is_terminating=True)],
            "did not receive metrics for targeted pods (pods might be unready)",
        ),
        (
            [PodState(name="p0", ready=Readiness(status="True", since=0), started=0, containers={"main": {}})],
            "missing request for cpu in container main of Pod p0",
        ),
    ],
    ids=["no pods", "pending", "terminating", "no request"],
)
def test_no_replicas_without_facts(pods: list[PodState], expected: str) -> None:
    result = Samples(pods=pods, metrics={"p0": PodMetric(1, NOW)}, now=NOW, resource="cpu")
    with pytest.raises(NoRecommendation) as failed:
        recommend_by_utilization(result, 1, 50, EXACT)
    assert str(failed.value) == expected


def test_one_container_of_a_pod_is_measured_by_its_own_request() -> None:
    two = PodState(
        name="p0",
        ready=Readiness(status="True", since=0),
        started=0,
        containers={"main": {"cpu": 100}, "proxy": {"cpu": 400}},
    )
    advice = recommend_by_utilization(samples([100], pods=[two]), 1, 50, EXACT, container="main")
    assert (advice.replicas, advice.percent) == (2, 100)
    with pytest.raises(NoRecommendation, match="container other not found in Pod p0"):
        recommend_by_utilization(samples([100], pods=[two]), 1, 50, EXACT, container="other")


@pytest.mark.parametrize(
    ("current", "usage", "replicas"),
    [(3, 20_000, 6), (3, 10_500, 3), (3, 0, 0), (0, 15_000, 2), (3, 2**62, 2**31 - 1)],
    ids=["twice the target", "within the tolerance", "nothing", "from zero", "more than a count can hold"],
)
def test_one_value_for_all_pods(current: int, usage: int, replicas: int) -> None:
    assert recommend_by_value([pod(f"p{n}") for n in range(3)], current, usage, 10_000, EXACT).replicas == replicas


@pytest.mark.parametrize(
    ("current", "usage", "expected"),
    [(3, 30_000, (3, 10_000)), (3, 45_000, (5, 15_000)), (0, 45_000, (5, 45_000)), (4, 0, (0, 0))],
    ids=["at the target", "above it", "no pod yet", "nothing to do"],
)
def test_a_total_is_shared_among_the_pods(current: int, usage: int, expected: tuple[int, int]) -> None:
    assert recommend_by_share(current, usage, 10_000, EXACT) == expected


def test_tolerances_differ_by_direction() -> None:
    assert recommend_by_average(samples([1150, 1150]), 2, 1000, Tolerances(down=0.1, up=0.2)).replicas == 2
    assert recommend_by_average(samples([1150, 1150]), 2, 1000, Tolerances(down=0.2, up=0.1)).replicas == 3


def test_a_sum_does_not_overflow() -> None:
    assert add_up([2**63 - 1, 5]) == 2**63 - 1
