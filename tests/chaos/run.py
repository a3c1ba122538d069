"""Random faults over a three-node cluster with real processes, while its invariants are checked.

    python -m tests.chaos.run [--minutes 30] [--seed NUMBER] [--longest 60] [--keep]

The seed decides the schedule; it is printed first, and each step before it happens.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.cluster import ChaosCluster
from tests.chaos.faults import Outages, inflict
from tests.chaos.invariants import Outage, forgotten_lives, lost_writes, overlapping_lives, untrue_conditions
from tests.chaos.observer import Observer
from tests.chaos.schedule import Fault, Schedule, Step
from tests.chaos.workload import WORKLOADS, job, manifests, read_beats

from pinnace.client.connect import connect
from pinnace.model.objects import Object

_RECOVERY_SECONDS = 120.0
_START_SECONDS = 90.0
_PAUSE_SECONDS = 0.25


@dataclass(slots=True)
class Report:
    seed: int
    steps: int = 0
    writes: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    slowest: float = 0.0
    """The longest recovery, in seconds."""

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in self.faults.most_common())
        head = f"seed {self.seed}: {self.steps} steps, {self.faults.total()} faults ({counts}), {self.writes} writes"
        lines = [f"{head}, slowest recovery {self.slowest:.1f} s, {len(self.violations)} violations"]
        return "\n".join([*lines, *self.violations])


class Run:
    def __init__(self, cluster: ChaosCluster, observer: Observer, schedule: Schedule, report: Report) -> None:
        self._cluster = cluster
        self._observer = observer
        self._schedule = schedule
        self._report = report
        self._outages = Outages()
        self._chance = random.Random(report.seed)

    async def create_workloads(self) -> None:
        for manifest in manifests(self._cluster.shared):
            await self._observer.client.create(manifest)
        if reasons := await self._await_recovery(_START_SECONDS):
            raise AssertionError(f"the cluster does not start: {reasons}")
        self._outages.of_cluster.append(Outage("start", 0.0, time.monotonic()))
        for part in self._cluster.parts.values():
            if self._cluster.abilities.moves_clocks:
                part.clock.shift(0)

    async def run(self, minutes: float) -> None:
        until = time.monotonic() + 60 * minutes
        while time.monotonic() < until and not self._report.violations:
            await self._step(self._schedule.next_step())
        self._report.writes = self._observer.writes
        self._check(await self._observer.stored())
        self._report.violations += await self._cluster.stop()

    async def _step(self, step: Step) -> None:
        print(f"{step.number}: {'; '.join(map(str, step.faults))}; {step.action}", flush=True)
        async with asyncio.TaskGroup() as group:
            for fault in step.faults:
                group.create_task(self._inflict(fault))
            group.create_task(self._act(step))
        self._report.steps += 1
        began = time.monotonic()
        reasons = await self._await_recovery(_RECOVERY_SECONDS)
        recovery = time.monotonic() - began
        print(f"  recovered after {recovery:.1f} s", flush=True)
        self._report.slowest = max(self._report.slowest, recovery)
        self._report.violations += [f"step {step.number}: not recovered: {reason}" for reason in reasons]
        self._check_lives()

    async def _inflict(self, fault: Fault) -> None:
        begin = time.monotonic()
        await inflict(self._cluster, fault)
        self._outages.add(fault, begin, time.monotonic())
        self._report.faults[fault.kind.value] += 1

    async def _act(self, step: Step) -> None:
        """Do what a user does meanwhile; an action that fails is not repeated."""
        client = self._observer.client
        match step.action:
            case "job":
                await self._observer.attempt(lambda: client.create(job(f"job-{step.number}", self._cluster.shared)))
            case "roll":
                await self._patch_web({"template": {"metadata": {"annotations": {"step": str(step.number)}}}})
            case "delete pod":
                pods = sorted(pod.name for pod in await self._observer.pods() or () if pod.app in {"web", "member"})
                if pods:
                    await self._observer.delete_pod(self._chance.choice(pods))
            case "scale":
                await self._patch_web({"replicas": 5})

    async def _patch_web(self, spec: Object) -> None:
        async def patch() -> Object:
            return await self._observer.client.patch("apps/v1/Deployment", "web", {"spec": spec}, namespace="default")

        await self._observer.attempt(patch)

    async def _await_recovery(self, seconds: float) -> list[str]:
        """Wait until the cluster does all that is wanted. Return what it does not do after so many seconds."""
        begin, earlier = time.monotonic(), list[str]()
        deadline = begin + seconds
        await self._restart_ended()
        writes, pages = self._observer.writes, self._pages()
        while True:
            await self._patch_web({"replicas": 3})
            reasons = await self._observer.unrecovered(WORKLOADS)
            if self._observer.writes == writes:
                reasons.append("no write succeeds")
            if self._pages() == pages:
                reasons.append("no page of the Service reaches its client")
            if not reasons or time.monotonic() > deadline:
                return reasons
            if reasons != earlier:
                print(f"  after {time.monotonic() - begin:.1f} s: {'; '.join(reasons)}", flush=True)
            earlier = reasons
            await self._restart_ended()
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _restart_ended(self) -> None:
        """Start parts again that ended by themselves, as systemd would."""
        for part in self._cluster.parts.values():
            if not part.is_running:
                part.ends += 1
                print(f"{part.name} ended by itself: {part.log()[-300:]}", flush=True)
                await part.start()

    def _pages(self) -> int:
        file = self._cluster.shared / "client"
        return file.stat().st_size if file.exists() else 0

    def _check_lives(self) -> None:
        for file in sorted(self._cluster.shared.glob("member-*")):
            beats = read_beats(file)
            twice, forgotten = overlapping_lives(beats), forgotten_lives(beats)
            self._report.violations += [f"{file.name} ran twice: life {life}" for life in twice]
            self._report.violations += [f"{file.name} lost data of its volume: life {life}" for life in forgotten]

    def _check(self, stored: dict[str, int]) -> None:
        lost = lost_writes(self._observer.acknowledged, stored)
        self._report.violations += [f"an acknowledged write of {name} is lost" for name in lost]
        outages = self._outages
        self._report.violations += untrue_conditions(self._observer.samples, outages.of_nodes, outages.of_cluster)


@asynccontextmanager
async def _observed(cluster: ChaosCluster) -> AsyncIterator[Observer]:
    """Write and read all the time."""
    async with connect(kubeconfig=cluster.kubeconfig) as client:
        observer = Observer(client)
        tasks = [asyncio.create_task(observer.write()), asyncio.create_task(observer.sample())]
        try:
            yield observer
        finally:
            for task in tasks:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks)


async def run(directory: Path, *, seed: int, minutes: float, longest: float) -> Report:
    """Run the cluster under faults for so many minutes, or until the first violation."""
    report = Report(seed)
    cluster = ChaosCluster(directory)
    print(f"seed {seed}, {minutes:g} minutes, pauses up to {longest:g} s, {cluster.abilities}", flush=True)
    schedule = Schedule(seed, cluster.abilities, longest=longest)
    async with cluster.running(), _observed(cluster) as observer:
        chaos = Run(cluster, observer, schedule, report)
        await chaos.create_workloads()
        await chaos.run(minutes)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.run")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--longest", type=float, default=60.0, help="seconds of the longest pause")
    parser.add_argument("--keep", action="store_true", help="leave the logs in the directory that is printed")
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="pinnace-chaos-"))
    print(directory)
    try:
        report = asyncio.run(run(directory, seed=arguments.seed, minutes=arguments.minutes, longest=arguments.longest))
    finally:
        if not arguments.keep:
            shutil.rmtree(directory, ignore_errors=True)
    print(report)
    sys.exit(1 if report.violations else 0)


if __name__ == "__main__":
    main()
