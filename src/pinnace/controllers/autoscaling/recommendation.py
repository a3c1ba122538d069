"""The number of replicas that a metric asks for: pure functions of pods, values and a target.

The controller and the backtest use the same functions. All values are thousandths (milli-values), all times are seconds
since the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

TOLERANCE = 0.1
CPU_INITIALIZATION = 300.0
"""Seconds after its start in which the CPU usage of a pod counts only while it is ready."""
READINESS_DELAY = 30.0
"""A pod that became unready within this time after its start, and stays so, was never ready."""
MAX_REPLICAS = 2**31 - 1
_MOST = 2**63 - 1
_NO_POD = "no pods returned by selector while calculating replica count"
_NO_METRICS = "did not receive metrics for targeted pods (pods might be unready)"


class NoRecommendation(Exception):
    """The metric gives no number of replicas; the message is Kubernetes' own."""


class PodMetric(NamedTuple):
    """The value of a metric for one pod, and the seconds over which it was measured until `at`."""

    value: int
    at: float = 0.0
    window: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """The Ready condition of a pod."""

    status: str
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PodState:
    """The fields of a pod that decide whether and how its metrics count."""

    name: str
    phase: str = "Running"
    is_terminating: bool = False
    ready: Readiness | None = None
    started: float | None = None
    containers: Mapping[str, Mapping[str, int]] | None = None
    """The requests of each container that runs all the time."""
    pod_requests: Mapping[str, int] | None = None
    """The requests of the pod as a whole, if it sets them."""


class Tolerances(NamedTuple):
    """How far the ratio of usage and target may differ from one before the number of replicas changes."""

    down: float = TOLERANCE
    up: float = TOLERANCE

    def cover(self, ratio: float) -> bool:
        return 1.0 - self.down <= ratio <= 1.0 + self.up


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The pods of a target with the values of one metric. `resource` is empty for a metric that is no resource."""

    pods: Sequence[PodState]
    metrics: Mapping[str, PodMetric]
    now: float
    resource: str = ""


class UtilizationReplicas(NamedTuple):
    replicas: int
    percent: int
    average: int


class UsageReplicas(NamedTuple):
    replicas: int
    value: int


class _Groups(NamedTuple):
    ready: int
    unready: set[str]
    missing: set[str]
    ignored: set[str]


def recommend_by_utilization(
    samples: Samples, current: int, target: int, tolerances: Tolerances, *, container: str = ""
) -> UtilizationReplicas:
    """Return the replicas at which pods use `target` percent of their requests. Raise NoRecommendation."""
    groups, values = _group(samples)
    requests = {pod.name: _request(pod, samples.resource, container) for pod in samples.pods}

    def measure(values: Mapping[str, int]) -> tuple[int, int]:
        """Return the utilization in percent, and the average value."""
        used = [name for name in values if name in requests]
        total = sum(requests[name] for name in used)
        if not total:
            raise NoRecommendation("no metrics returned matched known pods")
        usage = sum(values[name] for name in used)
        return _quotient(usage * 100, total), _quotient(usage, len(used))

    def fallback(name: str) -> int:
        return _quotient(requests[name] * max(100, target), 100)

    percent, average = measure(values)
    replicas = _replicas(groups, values, current, tolerances, lambda filled: measure(filled)[0] / target, fallback)
    return UtilizationReplicas(replicas, percent, average)


def recommend_by_average(samples: Samples, current: int, target: int, tolerances: Tolerances) -> UsageReplicas:
    """Return the replicas at which the average pod has the target value. Raise NoRecommendation."""
    groups, values = _group(samples)
    average = _average(values)
    replicas = _replicas(
        groups, values, current, tolerances, lambda filled: _average(filled) / target, lambda _: target
    )
    return UsageReplicas(replicas, average)


def recommend_by_value(
    pods: Sequence[PodState], current: int, usage: int, target: int, tolerances: Tolerances
) -> UsageReplicas:
    """Return the replicas for one value that all ready pods share, such as a value of an object."""
    ratio = usage / target
    if current == 0:
        return UsageReplicas(_ceil(ratio), usage)
    if tolerances.cover(ratio):
        return UsageReplicas(current, usage)
    if not pods:
        raise NoRecommendation(f"unable to calculate ready pods: {_NO_POD}")
    ready = sum(1 for pod in pods if pod.phase == "Running" and pod.ready is not None and pod.ready.status == "True")
    return UsageReplicas(_ceil(ratio * ready), usage)


def recommend_by_share(replicas: int, usage: int, target: int, tolerances: Tolerances) -> UsageReplicas:
    """Return the replicas among which a total divides into shares of the target value.

    `replicas` is the number in the status of the target. Without any, the usage is not divided.
    """
    wanted = replicas
    if not replicas or not tolerances.cover(usage / (target * replicas)):
        wanted = _ceil(usage / target)
    return UsageReplicas(wanted, math.ceil(usage / replicas) if replicas and usage < _MOST else usage)


def add_up(values: Iterable[int]) -> int:
    """Return the sum of the values of an external metric, at most the largest int64."""
    total = 0
    for value in values:
        total += value
        if total > _MOST:
            return _MOST
    return total


def _replicas(
    groups: _Groups,
    values: dict[str, int],
    current: int,
    tolerances: Tolerances,
    ratio_of: Callable[[Mapping[str, int]], float],
    fallback: Callable[[str], int],
) -> int:
    """Return the replicas by the ratio; pods without values count such that they only ever damp the change."""
    ratio = ratio_of(values)
    counts_unready = bool(groups.unready) and ratio > 1.0
    if not counts_unready and not groups.missing:
        return current if tolerances.cover(ratio) else _ceil(ratio * groups.ready)
    if ratio < 1.0:
        values |= {name: fallback(name) for name in groups.missing}
    elif ratio > 1.0:
        values |= dict.fromkeys(groups.missing, 0)
    if counts_unready:
        values |= dict.fromkeys(groups.unready, 0)
    damped = ratio_of(values)
    if tolerances.cover(damped) or (ratio < 1.0 < damped) or (damped < 1.0 < ratio):
        return current
    replicas = _ceil(damped * len(values))
    has_turned = (damped < 1.0 and replicas > current) or (damped > 1.0 and replicas < current)
    return current if has_turned else replicas


def _group(samples: Samples) -> tuple[_Groups, dict[str, int]]:
    if not samples.pods:
        raise NoRecommendation(_NO_POD)
    groups = _Groups(0, set(), set(), set())
    ready = 0
    for pod in samples.pods:
        metric = samples.metrics.get(pod.name)
        if pod.is_terminating or pod.phase == "Failed":
            groups.ignored.add(pod.name)
        elif pod.phase == "Pending":
            groups.unready.add(pod.name)
        elif metric is None:
            groups.missing.add(pod.name)
        elif samples.resource == "cpu" and _is_unready(pod, metric, samples.now):
            groups.unready.add(pod.name)
        else:
            ready += 1
    left_out = groups.ignored | groups.unready
    values = {name: metric.value for name, metric in samples.metrics.items() if name not in left_out}
    if not values:
        raise NoRecommendation(_NO_METRICS)
    return groups._replace(ready=ready), values


def _is_unready(pod: PodState, metric: PodMetric, now: float) -> bool:
    if pod.ready is None or pod.started is None:
        return True
    if pod.started + CPU_INITIALIZATION > now:
        return pod.ready.status == "False" or metric.at < pod.ready.since + metric.window
    return pod.ready.status == "False" and pod.started + READINESS_DELAY > pod.ready.since


def _request(pod: PodState, resource: str, container: str) -> int:
    if pod.pod_requests is not None and not container:
        requested = pod.pod_requests.get(resource)
        if requested is None:
            raise NoRecommendation(f"missing pod-level request for {resource} in Pod {pod.name}")
        return requested
    containers = pod.containers or {}
    if container and container not in containers:
        raise NoRecommendation(f"container {container} not found in Pod {pod.name}")
    total = 0
    for name in (container,) if container else containers:
        amount = containers[name].get(resource)
        if amount is None:
            raise NoRecommendation(f"missing request for {resource} in container {name} of Pod {pod.name}")
        total += amount
    return total


def _average(values: Mapping[str, int]) -> int:
    return _quotient(sum(values.values()), len(values))


def _quotient(value: int, by: int) -> int:
    """Divide as Go does: toward zero."""
    quotient = abs(value) // abs(by)
    return quotient if (value < 0) == (by < 0) else -quotient


def _ceil(value: float) -> int:
    return MAX_REPLICAS if value > MAX_REPLICAS else math.ceil(value)
