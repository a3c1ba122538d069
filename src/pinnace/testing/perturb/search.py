"""The search: an undisturbed run, then one run for each disturbance at each point."""

from __future__ import annotations

import asyncio
import gc
import itertools
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace

from pinnace.store.store import Record
from pinnace.testing.cluster import Cluster, running_cluster
from pinnace.testing.live_clock import LiveClock
from pinnace.testing.perturb.run import PerturbedRun, RunOutcome
from pinnace.testing.perturb.scenario import Scenario, ScenarioFailed, SearchResult, TimingBug
from pinnace.testing.perturb.schedule import KINDS, Disturbance, DisturbanceKind
from pinnace.testing.perturb.state import NormalizedObjects, compare, normalize, random_secrets

_RUNS_PER_COLLECTION = 8
_TEST = """\
async def test_{name}(cluster: Cluster) -> None:
    assert await replay(SCENARIO, "{disturbance}", base=cluster) == []
"""


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """The state of a search after one of its disturbances."""

    done: int
    total: int
    findings: int
    seconds: float

    @property
    def seconds_left(self) -> float:
        """The time that the other disturbances will take, at the present rate."""
        return self.seconds / self.done * (self.total - self.done)


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the disturbances, for one of several processes: each `of`-th one, beginning with `number`."""

    number: int = 0
    of: int = 1


async def search(
    scenario: Scenario,
    *,
    base: Cluster | None = None,
    kinds: Sequence[DisturbanceKind] = KINDS,
    limit: int = 500,
    share: Share | None = None,
    on_progress: Callable[[SearchProgress], None] | None = None,
) -> SearchResult:
    """Run a scenario with each disturbance of these kinds at each point, and compare the end states.

    `base` is a cluster that has what the scenario needs; each run gets a fork of it. Raise ScenarioFailed if the
    undisturbed scenario raises or does not settle.
    """
    if base is None:
        async with _fresh_cluster(scenario) as fresh:
            return await search(scenario, base=fresh, kinds=kinds, limit=limit, share=share, on_progress=on_progress)
    async with _prepared(base, scenario) as prepared:
        result = SearchResult(scenario.name)
        expected, again = await prepared.run_twice()
        if secrets := random_secrets(expected.state, again.state):
            prepared, result.random = prepared.with_random(secrets), secrets
            expected, again = await prepared.run_twice()
        result.unstable = compare(expected.state, again.state)
        if result.unstable:
            return result
        chosen = list(_points(expected, kinds))[:limit]
        chosen = chosen[share.number :: share.of] if share is not None else chosen
        began = time.perf_counter()
        with _rare_collections() as collect:
            for done, disturbance in enumerate(chosen, 1):
                outcome = await prepared.run(disturbance, expected)
                await asyncio.sleep(0)  # The turn of the loop that has ended the run holds its objects.
                collect()
                result.tried.append(disturbance)
                if not outcome.has_verdict:
                    result.without_verdict.append(disturbance)
                if differences := _differences(expected, outcome):
                    result.findings.append(_finding(scenario, disturbance, differences, outcome))
                if on_progress is not None:
                    seconds = time.perf_counter() - began
                    on_progress(SearchProgress(done, len(chosen), len(result.findings), seconds))
        result.seconds = time.perf_counter() - began
        return result


@contextmanager
def _rare_collections() -> Iterator[Callable[[], None]]:
    """Collect garbage only between some of the runs, by the function that is yielded after each run.

    A run makes many objects that live as long as it does: a collection in the middle visits them for nothing.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    runs = itertools.count(1)

    def collect() -> None:
        if next(runs) % _RUNS_PER_COLLECTION == 0:
            gc.collect(0)

    try:
        yield collect
    finally:
        if was_enabled:
            gc.enable()


async def replay(scenario: Scenario, disturbance: str, *, base: Cluster | None = None) -> list[str]:
    """Run a scenario once undisturbed and once with a disturbance such as "crash:2"; return the differences."""
    if base is None:
        async with _fresh_cluster(scenario) as fresh:
            return await replay(scenario, disturbance, base=fresh)
    planned = Disturbance.parse(disturbance)
    async with _prepared(base, scenario) as prepared:
        expected, again = await prepared.run_twice()
        if secrets := random_secrets(expected.state, again.state):
            prepared = prepared.with_random(secrets)
            expected, _ = await prepared.run_twice()
        return _differences(expected, await prepared.run(planned, expected))


def _fresh_cluster(scenario: Scenario) -> AbstractAsyncContextManager[Cluster]:
    """Return a new cluster. For programs of their own its time passes as theirs does."""
    return running_cluster(clock=None if scenario.operator is not None else LiveClock())


@dataclass(frozen=True, slots=True)
class _PreparedScenario:
    """A cluster in which the operator has been installed and does not run. Each run gets a fork of it."""

    cluster: Cluster
    scenario: Scenario
    records: Sequence[Record]
    objects: NormalizedObjects

    def with_random(self, patterns: Sequence[str]) -> _PreparedScenario:
        """Return the same with more places whose values are random."""
        scenario = replace(self.scenario, random=(*self.scenario.random, *patterns))
        return replace(self, scenario=scenario, objects=normalize(self.records, scenario.differing))

    async def run_twice(self) -> tuple[RunOutcome, RunOutcome]:
        """Run the scenario twice without a disturbance. Raise ScenarioFailed if it fails."""
        expected = await self.run(None)
        if expected.error:
            raise ScenarioFailed(f"{self.scenario.name} fails without a disturbance: {expected.error}")
        return expected, await self.run(None, expected)

    async def run(self, disturbance: Disturbance | None, expected: RunOutcome | None = None) -> RunOutcome:
        """Run the scenario once. A program gets some time to reach the `expected` end state."""
        async with await self.cluster.fork() as fork:
            try:
                wanted = expected.state if expected is not None else None
                return await PerturbedRun(fork, self.scenario, disturbance, wanted, self.objects).go()
            finally:
                fork.faults.rules.clear()


@asynccontextmanager
async def _prepared(base: Cluster, scenario: Scenario) -> AsyncIterator[_PreparedScenario]:
    async with await base.fork() as cluster:
        if scenario.setup is not None:
            await scenario.setup(cluster)
        if scenario.operator is not None:
            manager = await cluster.run(scenario.operator())
            await cluster.settle()
            await cluster.kill(manager)
        page = await cluster.plane.store.list("/registry/")
        records = list(page.records)
        yield _PreparedScenario(cluster, scenario, records, normalize(records, scenario.differing))


def _points(expected: RunOutcome, kinds: Sequence[DisturbanceKind]) -> Iterator[Disturbance]:
    for point in range(1, max(expected.writes, expected.events) + 1):
        for kind in kinds:
            if point <= (expected.events if kind == "missed-state" else expected.writes):
                yield Disturbance(point, kind)


def _differences(expected: RunOutcome, actual: RunOutcome) -> list[str]:
    if not actual.has_verdict:
        return []
    differences = compare(expected.state, actual.state)
    return [*([actual.error] if actual.error else []), *differences]


def _finding(scenario: Scenario, disturbance: Disturbance, differences: list[str], outcome: RunOutcome) -> TimingBug:
    name = re.sub(r"\W+", "_", f"{scenario.name}_{disturbance}".lower()).strip("_")
    test = _TEST.format(name=name, disturbance=disturbance)
    return TimingBug(disturbance, differences, outcome.timeline, scenario.name, test)
