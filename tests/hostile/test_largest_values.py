"""No number, list, map, text or path in an object makes the controllers, the scheduler or the nodes work without end.

Every field of every built-in kind is set to its largest valid value, with all of these at work, and the cluster starts
again with it. No step of the event loop may take longer than `LONGEST_STEP`. `make test` has the fields of workloads
that count something and a sample of the others, `make soak` all of them.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from tests.hostile.extremes import Extreme, Sizes, extremes_of, recorded_objects
from tests.stall_gate import LongTurn, StallGate

from pinnace.controllers.workloads import pod_control
from pinnace.model import errors
from pinnace.testing.cluster import Cluster, running_cluster

pytestmark = pytest.mark.stalls(reason="turns are judged here, with a lower limit")

LONGEST_STEP = 0.05
"""Seconds of CPU time of one step of a task. A turn of the loop has a step of each task that is ready; the gate of all
tests limits it."""
TRIES = 3
SAMPLE = 40
PARTS = 24
COUNTING = {"apps", "batch", "autoscaling", "policy"}
PYTHON_ERRORS = ("OverflowError", "ValueError", "TypeError", "KeyError", "IndexError", "RecursionError", "MemoryError")
ON_PURPOSE = ("resource-claim-pods: ValueError: resource claim template", "ephemeral-volume: ValueError: PVC")
"""Errors with a message for the user of the object."""
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.fixture
def gate(stall_gate: StallGate) -> Iterator[StallGate]:
    with stall_gate.measuring_steps(LONGEST_STEP):
        yield stall_gate


@pytest.fixture(autouse=True)
def _few_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same code with smaller limits: tests of workloads reach them with few pods."""
    monkeypatch.setattr(pod_control, "BURST", 50)
    monkeypatch.setattr(pod_control, "MOST_UNSCHEDULED", 100)
    monkeypatch.setattr("pinnace.testing.cluster.PATIENCE", 120.0)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with running_cluster() as fresh:
        await fresh.add_nodes(2)
        yield fresh


def all_extremes(cluster: Cluster) -> list[Extreme]:
    recorded, seen = recorded_objects(), set[tuple[str, str, str]]()
    extremes: list[Extreme] = []
    for resource in sorted(cluster.plane.registry, key=lambda served: (served.group, served.plural, served.version)):
        base = recorded.get((resource.kind.api_version, resource.kind.name))
        if base is not None and resource.kind == resource.stored and "create" in resource.verbs:
            extremes += extremes_of(resource, base, seen)
    return extremes


def counts(extreme: Extreme) -> bool:
    is_number = not isinstance(extreme.values, Sizes) and isinstance(extreme.values[0], int)
    return (
        is_number
        and extreme.resource.group in COUNTING
        and extreme.path[0] == "spec"
        and "template" not in extreme.path
    )


@dataclass(slots=True)
class Findings:
    accepted: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    long_turns: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class Trial:
    """Sets fields to their largest values, one after the other, in one cluster."""

    def __init__(self, cluster: Cluster, gate: StallGate) -> None:
        self._cluster = cluster
        self._gate = gate
        self._number = 0
        self.findings = Findings()

    async def run(self, extremes: Sequence[Extreme]) -> None:
        for extreme in extremes:
            value = await self._largest_valid(extreme)
            if value is None:
                self.findings.refused.append(str(extreme))
                continue
            self.findings.accepted.append(str(extreme))
            await self._try(extreme, value)

    async def _largest_valid(self, extreme: Extreme) -> object:
        for value in extreme.values:
            with suppress(errors.ApiError):
                await self._cluster.client.create(extreme.object("candidate", value), dry_run=True)
                return value
        return None

    async def _try(self, extreme: Extreme, value: object) -> None:
        """Let all parts work on an object with the value; again if a turn took long, which may be the machine."""
        turns: list[LongTurn] = []
        for _ in range(TRIES):
            self._gate.turns.clear()
            self._gate.begin()
            try:
                await self._live(extreme, value)
            except TimeoutError as error:
                raise AssertionError(f"{extreme}: {error}") from None
            turns = [turn for turn in self._gate.turns if turn.is_of_product]
            if not turns:
                break
        if turns:
            self.findings.long_turns.append(f"{extreme}: {max(turns, key=lambda turn: turn.cpu_seconds)}")
        self.findings.failures += [f"{extreme}: {failure}" for failure in self._failures()]

    async def _live(self, extreme: Extreme, value: object) -> None:
        """Create the object, let time pass, print it, start a second cluster with it, and delete it."""
        cluster, kind, self._number = self._cluster, extreme.resource.kind, self._number + 1
        obj = extreme.object(f"extreme-{self._number}", value)
        created = await cluster.client.create(obj)
        if obj.get("status"):
            with suppress(errors.ApiError):
                await cluster.client.update_status({**created, "status": obj["status"]})
        await cluster.settle()
        await cluster.advance(75)
        namespace = "default" if extreme.resource.namespaced else ""
        await print_table(cluster, extreme)
        async with await cluster.fork() as restarted:
            await restarted.settle()
            await restarted.advance(5)
        with suppress(errors.ApiError):
            await cluster.client.delete(
                kind, created["metadata"]["name"], propagation="Background", namespace=namespace
            )
        await cluster.settle()
        await cluster.advance(40)

    def _failures(self) -> list[str]:
        """Return the failures that no input may cause, and forget them."""
        errors = [f"{name} failed" for name, count in self._cluster.plane.supervisor.failures.items() if count]
        for manager in self._cluster.managers:
            for controller in manager.controllers:
                for run in controller.latest():
                    if run.error.startswith(PYTHON_ERRORS) and f"extreme-{self._number}" in str(run.key):
                        errors.append(f"{controller.name}: {run.error[:200]}")
        return list(dict.fromkeys(failure for failure in errors if not failure.startswith(ON_PURPOSE)))


async def print_table(cluster: Cluster, extreme: Extreme) -> None:
    resource = extreme.resource
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    reply = await cluster.plane.local().request("GET", f"{root}/{resource.plural}", b"", {"accept": TABLE})
    assert reply.status == 200


def warm_up(extremes: Sequence[Extreme]) -> list[Extreme]:
    """Return a field of each kind: what is compiled and imported for a kind is made with its first object."""
    return list({extreme.resource.kind: extreme for extreme in reversed(extremes)}.values())


async def check(cluster: Cluster, gate: StallGate, extremes: Sequence[Extreme]) -> Findings:
    warm = Trial(cluster, gate)
    await warm.run(warm_up(extremes))
    trial = Trial(cluster, gate)
    await trial.run(extremes)
    findings = trial.findings
    assert not findings.long_turns, "\n".join(findings.long_turns)
    assert not findings.failures, "\n".join(findings.failures)
    return findings


async def test_the_fields_are_those_of_all_kinds(cluster: Cluster) -> None:
    extremes = all_extremes(cluster)
    assert len(extremes) > 2000
    stored = {
        served.kind for served in cluster.plane.registry if served.kind == served.stored and "get" in served.verbs
    }
    assert {kind for kind in stored if kind.name != "ComponentStatus"} == {
        extreme.resource.kind for extreme in extremes
    }
    named = {str(extreme) for extreme in extremes}
    assert {
        "StatefulSet (1) spec.replicas",
        "Job spec.completions",
        "Deployment spec.strategy.rollingUpdate.maxSurge",
        "HorizontalPodAutoscaler spec.maxReplicas",
        "CronJob spec.startingDeadlineSeconds",
        "Pod spec.tolerations",
        "Service spec.ports",
        "ControllerRevision data",
        "CustomResourceDefinition spec.versions.0.additionalPrinterColumns",
    } <= named


async def test_numbers_of_workloads_hold_up_nothing(cluster: Cluster, gate: StallGate) -> None:
    findings = await check(cluster, gate, [extreme for extreme in all_extremes(cluster) if counts(extreme)])
    assert {"StatefulSet (1) spec.replicas", "ReplicaSet spec.replicas"} <= set(findings.accepted)


async def test_a_sample_of_the_largest_values_holds_up_nothing(cluster: Cluster, gate: StallGate) -> None:
    others = [extreme for extreme in all_extremes(cluster) if not counts(extreme)]
    await check(cluster, gate, random.Random(28).sample(others, SAMPLE))


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS))
async def test_every_largest_value_holds_up_nothing(cluster: Cluster, gate: StallGate, part: int) -> None:
    await check(cluster, gate, all_extremes(cluster)[part::PARTS])
