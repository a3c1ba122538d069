"""Replays a load through the arithmetic of the autoscaler, in virtual time and without a cluster."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

from pinnace.controllers.autoscaling.behavior import ScaleHistory, ScalingLimits, decide, limits_of
from pinnace.controllers.autoscaling.recommendation import (
    NoRecommendation,
    PodMetric,
    PodState,
    Readiness,
    Samples,
    recommend_by_average,
    recommend_by_share,
    recommend_by_utilization,
    recommend_by_value,
)
from pinnace.model import quantity
from pinnace.model.objects import Object
from pinnace.model.typed_objects import HorizontalPodAutoscalerSpec, MetricSpec

PERIOD = 15.0
MOST_PODS = 20_000
"""Each pod is an object, and each step reads all of them."""
_CONTAINER = "main"
_SOURCES = {
    "Resource": "resource",
    "ContainerResource": "containerResource",
    "Pods": "pods",
    "Object": "object",
    "External": "external",
}


class LoadPoint(NamedTuple):
    """The load of all pods together from a time on, in thousandths."""

    at: float
    value: int


class BacktestStep(NamedTuple):
    """One evaluation: the load, the replicas, and the ready pods that share the load."""

    at: float
    load: int
    replicas: int
    ready: int
    capacity: int
    """The load that the ready pods can take."""

    @property
    def unmet(self) -> int:
        """The load above the capacity."""
        return max(0, self.load - self.capacity)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodShape:
    """How long a pod takes until it is ready, and its request of the resource that is measured, in thousandths."""

    startup: float = 30.0
    request: int = 1000


class Backtest:
    """One autoscaler under a load. Ready pods share the load evenly; a new pod has none until it is ready."""

    def __init__(self, spec: HorizontalPodAutoscalerSpec, shape: PodShape) -> None:
        self._metrics = [_Metric(metric, shape) for metric in spec["metrics"]]
        self._limits: ScalingLimits = limits_of(spec)
        self._shape = shape
        self._history = ScaleHistory()
        self._pods: list[PodState] = []
        self._made = 0

    def run(self, load: Sequence[LoadPoint]) -> list[BacktestStep]:
        """Return the steps from the first to the last point of the load. The first pods are ready at once."""
        start, end = load[0].at, load[-1].at
        times = [point.at for point in load]
        self._add(self._limits.least, start - 3600.0)
        self._history.begin(len(self._pods), start)
        steps = []
        now = start
        while now <= end:
            value = load[bisect.bisect_right(times, now) - 1].value
            steps.append(self._step(value, now))
            now += PERIOD
        return steps

    def _step(self, load: int, now: float) -> BacktestStep:
        self._pods = [self._mature(pod, now) for pod in self._pods]
        ready = sum(1 for pod in self._pods if pod.ready is not None and pod.ready.status == "True")
        before = len(self._pods)
        proposals = []
        for metric in self._metrics:
            try:
                proposals.append(metric.propose(self._pods, load, ready, self._limits, now))
            except NoRecommendation:
                continue  # All pods are new: the autoscaler waits, as in a cluster.
        if proposals:
            after = decide(self._history, self._limits, before, max(proposals), now).replicas
            if after != before:
                self._history.note_scale(self._limits, before, after, now)
                self._add(after - before, now)
                del self._pods[after:]
        capacity = min(metric.capacity for metric in self._metrics)
        return BacktestStep(now, load, len(self._pods), ready, ready * capacity)

    def _add(self, count: int, now: float) -> None:
        if len(self._pods) + count > MOST_PODS:
            wanted = len(self._pods) + count
            raise ValueError(f"the autoscaler wants {wanted} pods, and at most {MOST_PODS} can be replayed")
        for _ in range(count):
            self._made += 1
            state = Readiness(status="False", since=now)
            requests = {_CONTAINER: dict.fromkeys((metric.resource for metric in self._metrics), self._shape.request)}
            self._pods.append(PodState(name=f"pod-{self._made}", ready=state, started=now, containers=requests))

    def _mature(self, pod: PodState, now: float) -> PodState:
        assert pod.started is not None
        assert pod.ready is not None
        since = pod.started + self._shape.startup
        if pod.ready.status == "True" or since > now:
            return pod
        return replace(pod, ready=Readiness(status="True", since=since))


class _Metric:
    """One metric of an autoscaler, whose value is the load."""

    def __init__(self, written: MetricSpec, shape: PodShape) -> None:
        self.type: str = written["type"]
        source = cast("Object", written)[_SOURCES[self.type]]
        target = source["target"]
        self.resource: str = source.get("name", "")
        self.percent: int | None = target.get("averageUtilization")
        average, value = target.get("averageValue"), target.get("value")
        self.is_shared = average is not None
        self.target = _milli(average if average is not None else value) if self.percent is None else 0
        self.capacity = shape.request if self.percent is not None else self.target
        """The load that one pod can take."""

    def propose(self, pods: list[PodState], load: int, ready: int, limits: ScalingLimits, now: float) -> int:
        if self.type in ("Object", "External"):
            if self.is_shared:
                return recommend_by_share(len(pods), load, self.target, limits.tolerances).replicas
            return recommend_by_value(pods, len(pods), load, self.target, limits.tolerances).replicas
        share = load // ready if ready else 0
        idle, busy = PodMetric(0, now, PERIOD), PodMetric(share, now, PERIOD)
        metrics = {pod.name: busy if pod.ready is not None and pod.ready.status == "True" else idle for pod in pods}
        samples = Samples(pods=pods, metrics=metrics, now=now, resource=self.resource)
        if self.percent is not None:
            return recommend_by_utilization(samples, len(pods), self.percent, limits.tolerances).replicas
        return recommend_by_average(samples, len(pods), self.target, limits.tolerances).replicas


def _milli(value: str | int) -> int:
    return quantity.parse(value).milli_value
