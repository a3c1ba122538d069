"""Decides from what was recorded whether a cluster kept its promises. Nothing here runs or reads anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

READY_AGAIN_SECONDS = 30.0
"""How soon a node that can run pods again is Ready."""
UNREADY_SECONDS = 60.0
"""How soon a node without an agent is not Ready: Kubernetes' grace of 40 s (50 s from 1.32), and the next check."""

_NAMED = 4
"""How many pods a violation names."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A line that the process of a StatefulSet's member wrote. The kernel has ordered the lines of a file."""

    life: str
    """New for each process."""
    earlier: int
    """How many lives the volume of the member had seen when this one began."""


def overlapping_lives(beats: Sequence[Beat]) -> list[str]:
    """Name the lives that went on after a newer one had begun: the member ran twice."""
    order: dict[str, int] = {}
    newest, twice = -1, []
    for beat in beats:
        if beat.life not in order:
            newest = order[beat.life] = len(order)
        elif order[beat.life] < newest and beat.life not in twice:
            twice.append(beat.life)
    return twice


def forgotten_lives(beats: Sequence[Beat]) -> list[str]:
    """Name the lives whose volume had lost an earlier one."""
    expected: dict[str, int] = {}
    for beat in beats:
        expected.setdefault(beat.life, len(expected))
    return [life for life, count in expected.items() if any(b.life == life and b.earlier < count for b in beats)]


def lost_writes(acknowledged: Mapping[str, int], stored: Mapping[str, int]) -> list[str]:
    """Name the objects that are older than the newest acknowledged write. A write without an answer may be there."""
    return sorted(name for name, number in acknowledged.items() if stored.get(name, -1) < number)


@dataclass(frozen=True, slots=True)
class Sample:
    """A node's Ready condition at a time, as a client read it."""

    at: float
    node: str
    is_ready: bool


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which the agent of a node could not run pods or reach the server."""

    node: str
    begin: float
    end: float


def untrue_conditions(samples: Iterable[Sample], outages: Sequence[Outage], disturbed: Sequence[Outage]) -> list[str]:
    """Name the samples that were not true.

    `disturbed` are the times in which conditions could not be written for other reasons: no server, no controllers.
    A sample counts only when the last of these is so long ago that the cluster must have noticed.
    """
    untrue = []
    for sample in samples:
        own = [outage for outage in outages if outage.node == sample.node]
        inside = [outage for outage in own if outage.begin <= sample.at < outage.end]
        quiet = _quiet_since(sample.at, disturbed)
        if inside:
            since = max(quiet, min(outage.begin for outage in inside))
            if sample.is_ready and sample.at - since > UNREADY_SECONDS:
                untrue.append(f"{sample.node} is Ready {sample.at - since:.0f} s after its agent stopped")
        else:
            since = max([quiet, *(outage.end for outage in own if outage.end <= sample.at)])
            if not sample.is_ready and sample.at - since > READY_AGAIN_SECONDS:
                untrue.append(f"{sample.node} is not Ready {sample.at - since:.0f} s after its agent works again")
    return untrue


def _quiet_since(at: float, disturbed: Sequence[Outage]) -> float:
    """Return since when nothing disturbed the cluster: the time itself while something does."""
    begun = [outage for outage in disturbed if outage.begin <= at]
    return max([0.0, *(min(outage.end, at) for outage in begun)])


@dataclass(frozen=True, slots=True)
class Workload:
    """The number of Ready pods with a label that a user wants."""

    app: str
    replicas: int


@dataclass(frozen=True, slots=True)
class PodView:
    app: str
    name: str
    is_ready: bool
    is_deleted: bool
    waits: str = ""
    """The reason for which a container waits."""


def unrecovered(
    workloads: Sequence[Workload], pods: Sequence[PodView], nodes: Mapping[str, bool], wanted_nodes: Sequence[str]
) -> list[str]:
    """Say why the cluster has not recovered; nothing if it has."""
    reasons = [f"{node} is not Ready" for node in wanted_nodes if not nodes.get(node)]
    for workload in workloads:
        own = [pod for pod in pods if pod.app == workload.app]
        ready = [pod for pod in own if pod.is_ready and not pod.is_deleted]
        if len(ready) != workload.replicas or len(own) != workload.replicas:
            others = [f"{pod.name} {pod.waits or 'not ready'}" for pod in own if pod not in ready]
            some = "; ".join(others[:_NAMED]) + ("; …" if len(others) > _NAMED else "")
            counts = f"{len(ready)} of {workload.replicas} pods are ready, of {len(own)}"
            reasons.append(f"{workload.app}: {counts} ({some})")
    return reasons
