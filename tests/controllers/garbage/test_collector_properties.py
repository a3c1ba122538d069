"""Random graphs of owners: whatever is deleted in whatever way, nothing with a living owner is ever removed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.controllers.world import World, config_map
from tests.server.in_process import control_plane
from tests.testing.both_ways import IN_PROCESS, OVER_HTTP, TOKENS, reached

from pinnace.client.client import Propagation
from pinnace.cluster.controllers import controllers_of
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.reconcile.owners import owner_reference
from pinnace.testing.clock import ManualClock

KIND = "v1/ConfigMap"
NODES = 7
PROPAGATIONS: list[Propagation] = ["Background", "Foreground", "Orphan"]


@dataclass(frozen=True)
class Plan:
    """The owners (dependent, owner, blocking), and the deletions, one after the other or all at once."""

    edges: tuple[tuple[int, int, bool], ...]
    deletions: tuple[tuple[int, Propagation], ...]
    at_once: bool


def plans() -> st.SearchStrategy[Plan]:
    node = st.integers(0, NODES - 1)
    edge = st.tuples(node, node, st.booleans()).filter(lambda edge: edge[0] != edge[1])
    edges = st.lists(edge, max_size=12)
    deletions = st.lists(st.tuples(node, st.sampled_from(PROPAGATIONS)), max_size=3)
    # Circles in which each waits for the next are what chance does not find by itself.
    circles: st.SearchStrategy[list[int]] = st.one_of(st.just([]), st.permutations(range(NODES)).flatmap(_circle_of))
    return st.builds(_plan, circles, edges, deletions, node, st.booleans())


def _circle_of(nodes: list[int]) -> st.SearchStrategy[list[int]]:
    return st.integers(2, 4).map(lambda size: nodes[:size])


def _plan(
    circle: list[int],
    edges: list[tuple[int, int, bool]],
    deletions: list[tuple[int, Propagation]],
    first: int,
    at_once: bool,
) -> Plan:
    """With a circle, one of it is deleted first, and waits for the others."""
    closed = [(node, circle[at - 1], True) for at, node in enumerate(circle)]
    every = {edge[:2]: edge for edge in (*edges, *closed)}
    begin: tuple[int, Propagation] = (circle[0], "Foreground") if circle else (first, "Background")
    return Plan(tuple(every.values()), (begin, *deletions), at_once)


def survivors(plan: Plan) -> set[int]:
    """Return the objects that are left when the deletions are done one after the other, each to its end."""
    alive = set(range(NODES))
    owners = {node: {owner for dependent, owner, _ in plan.edges if dependent == node} for node in alive}
    for node, propagation in plan.deletions:
        if node not in alive:
            continue
        if propagation == "Orphan":
            for dependents in owners.values():
                dependents.discard(node)
        going = {node}
        while True:
            # In the foreground, an owner that waits is as good as gone to those that have no other.
            more = {node for node in alive - going if owners[node] and owners[node] <= going}
            if not more:
                break
            going |= more
        alive -= going
        for survivor in alive:
            owners[survivor] -= going
    return alive


class Runner:
    """One server for all examples, each of which has a namespace of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, way: str) -> None:
        self.loop = loop
        self._way = way
        self.examples = 0

    async def start(self) -> None:
        self._clock = ManualClock()
        self._started: asyncio.Future[None] = self.loop.create_future()
        self._stopped: asyncio.Future[None] = self.loop.create_future()
        self._living = self.loop.create_task(self._live())
        await self._started

    async def stop(self) -> None:
        self._stopped.set_result(None)
        await self._living

    async def _live(self) -> None:
        async with (
            control_plane(clock=self._clock, tokens=TOKENS) as api,
            reached(api.plane, self._way) as transport_of,
        ):
            manager = controllers_of(api.plane, None, clock=self._clock, transport_of=transport_of)
            async with manager.running():
                self.world = World(transport_of, manager)
                await self.world.settle()
                self._started.set_result(None)
                await self._stopped

    async def carry_out(self, plan: Plan) -> set[int]:
        self.examples += 1
        namespace = f"example-{self.examples}"
        client = self.world.client
        await self.world.namespace(namespace)
        made = [await client.create(config_map(f"n{node}", namespace=namespace)) for node in range(NODES)]
        for node in range(NODES):
            references = [
                _reference(made[owner], blocks) for dependent, owner, blocks in plan.edges if dependent == node
            ]
            if references:
                patch = {"metadata": {"ownerReferences": references}}
                await client.patch(KIND, f"n{node}", patch, namespace=namespace)
        if not plan.at_once:
            await self.world.settle()
        for node, propagation in plan.deletions:
            with contextlib.suppress(errors.NotFound):
                await client.delete(KIND, f"n{node}", namespace=namespace, propagation=propagation)
            if not plan.at_once:
                await self._settle()
        await self._settle()
        return {int(name[1:]) for name in await self.world.names(KIND, namespace)}

    async def _settle(self) -> None:
        """Wait for retries, too: a conflict is tried again after some milliseconds."""
        collector = next(
            controller for controller in self.world.manager.controllers if controller.name == "garbage-collector"
        )
        async with asyncio.timeout(60):
            await self.world.settle()
            while collector.queue.delayed:
                await self._clock.advance(0.01)
                await self.world.settle()


def _reference(owner: Object, blocks: bool) -> Object:
    return {**owner_reference(owner, controller=False, block_deletion=blocks)}


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with runs(IN_PROCESS) as runner:
        yield runner


@pytest.fixture(scope="module")
def remote_runner() -> Iterator[Runner]:
    with runs(OVER_HTTP) as runner:
        yield runner


@contextlib.contextmanager
def runs(way: str) -> Iterator[Runner]:
    with asyncio.Runner() as loop_runner:
        runner = Runner(loop_runner.get_loop(), way)
        loop_runner.run(runner.start())
        yield runner
        loop_runner.run(runner.stop())


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(plan=plans())
def test_nothing_with_a_living_owner_is_ever_removed(runner: Runner, plan: Plan) -> None:
    check(runner, plan)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(plan=plans())
def test_nor_is_it_by_a_collector_in_another_process(remote_runner: Runner, plan: Plan) -> None:
    check(remote_runner, plan)


def check(runner: Runner, plan: Plan) -> None:
    left = runner.loop.run_until_complete(runner.carry_out(plan))
    if not plan.at_once:
        assert left == survivors(plan)
        return
    deleted = {node for node, _ in plan.deletions}
    assert not deleted & left, "what is deleted waits for ever"
    for node in set(range(NODES)) - deleted - left:
        owners = {owner for dependent, owner, _ in plan.edges if dependent == node}
        assert owners, "it never had an owner"
        assert not owners & left, "an owner of it lives"
