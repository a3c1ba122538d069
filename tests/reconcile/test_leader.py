"""Elections on a Lease, in time that the test owns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.client.connecting import WAYS, connected

from pinnace.client.client import Client
from pinnace.reconcile.leader import LeaderElection, Terms
from pinnace.testing.clock import ManualClock

LEASE = "coordination.k8s.io/v1/Lease"


class Candidate:
    """Leads when it can, and says whether it does."""

    def __init__(self, client: Client, name: str) -> None:
        self.election = LeaderElection(client, "lock", identity=name)
        self.terms = 0
        self.is_working = False
        self.task = asyncio.create_task(self.election.lead(self._work))

    async def _work(self) -> None:
        self.terms += 1
        self.is_working = True
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.is_working = False

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


async def holder(client: Client) -> str:
    lease = await client.get(LEASE, "lock")
    return str(lease["spec"].get("holderIdentity") or "")


async def reach(clock: ManualClock, condition: Callable[[], bool], *, within: float) -> float:
    """Let time pass until something holds; how long that took."""
    for step in range(int(within) + 1):
        if condition():
            return step
        await clock.advance(1)
    raise AssertionError(f"not within {within} s")


async def test_one_leads_and_the_other_takes_over_at_once_when_it_stops(client: Client, clock: ManualClock) -> None:
    first = Candidate(client, "one")
    await reach(clock, lambda: first.is_working, within=1)
    second = Candidate(client, "two")
    await clock.advance(60)
    assert (first.is_working, second.is_working) == (True, False)
    await first.stop()
    assert await holder(client) == ""
    assert await reach(clock, lambda: second.is_working, within=10) <= 3
    assert await holder(client) == "two"
    lease = await client.get(LEASE, "lock")
    assert lease["spec"]["leaseTransitions"] == 1
    await second.stop()


async def test_one_that_dies_is_followed_when_its_lease_has_run_out(client: Client, clock: ManualClock) -> None:
    spec = {"holderIdentity": "dead", "leaseDurationSeconds": 15, "renewTime": "2020-01-01T00:00:00.000000Z"}
    metadata = {"name": "lock", "namespace": "default"}
    await client.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec})
    first = Candidate(client, "one")
    # It does not believe the old time in the lease: the other's clock may be wrong.
    assert 14 <= await reach(clock, lambda: first.is_working, within=30) <= 18
    await first.stop()


async def test_one_whose_lease_was_taken_stops_and_stands_again(client: Client, clock: ManualClock) -> None:
    first = Candidate(client, "one")
    await reach(clock, lambda: first.is_working, within=1)
    await client.patch(LEASE, "lock", {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 15}})
    await reach(clock, lambda: not first.is_working, within=4)
    await reach(clock, lambda: first.is_working, within=30)
    assert first.terms == 2
    await first.stop()


async def test_work_that_ends_gives_the_lease_back(client: Client) -> None:
    async def work() -> None:
        return

    await asyncio.wait_for(LeaderElection(client, "lock", identity="one").lead(work), 60)
    assert await holder(client) == ""


async def test_work_that_fails_gives_the_lease_back_and_says_why(client: Client) -> None:
    async def work() -> None:
        raise RuntimeError("sorry")

    with pytest.raises((RuntimeError, ExceptionGroup)):
        await asyncio.wait_for(LeaderElection(client, "lock", identity="one").lead(work), 60)
    assert await holder(client) == ""


def test_terms_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="must be greater"):
        Terms(lease_seconds=5, renew_seconds=10)


@pytest.mark.parametrize("way", WAYS)
async def test_over_any_way_to_the_server_the_next_one_leads_when_the_first_has_released(way: str) -> None:
    async with connected(way) as client, asyncio.timeout(60):
        quick = Terms(lease_seconds=60.0, renew_seconds=40.0, retry_seconds=0.05)
        leads = {name: asyncio.Event() for name in ("one", "two")}

        async def work(name: str) -> None:
            leads[name].set()
            await asyncio.get_running_loop().create_future()

        def candidate(name: str) -> asyncio.Task[None]:
            election = LeaderElection(client, "lock", identity=name, terms=quick)
            return asyncio.create_task(election.lead(lambda: work(name)))

        first = candidate("one")
        await leads["one"].wait()
        second = candidate("two")
        first.cancel()
        await leads["two"].wait()
        assert await holder(client) == "two"
        second.cancel()
        await asyncio.wait([first, second])
        assert await holder(client) == ""
