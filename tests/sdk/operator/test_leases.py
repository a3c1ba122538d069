"""Two replicas under leader election: one works, and a lost lease stops its work before the other begins."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.sdk.operator.test_turns_and_threads import reach
from tests.sdk.websites import Website, website
from tests.testing.both_ways import in_process_only

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.reconcile.leader import LeaseLost, WorkGoesOn
from pinnace.reconcile.manager import Manager
from pinnace.sdk import Context, Operator, Terms
from pinnace.testing.cluster import Cluster

WEBSITE = "extensions.example.com/v1/Website"
LEASE = "coordination.k8s.io/v1/Lease"


def operator_that_notes(name: str, calls: list[str]) -> Operator:
    operator = Operator("pair")

    @operator.timer(Website, seconds=1)
    async def note(site: Website, ctx: Context) -> None:
        calls.append(name)

    return operator


async def start(cluster: Cluster, operator: Operator, **options: Any) -> tuple[asyncio.Event, asyncio.Task[None]]:
    """Run a replica of its own, until the event is set."""
    stop, started = asyncio.Event(), asyncio.Event()

    async def run() -> None:
        async with operator.running(cluster.client, leader_election=True, **options) as manager:
            cluster.managers.append(manager)
            started.set()
            await stop.wait()
            cluster.managers.remove(manager)

    task = asyncio.create_task(run())
    await asyncio.wait([task, asyncio.create_task(started.wait())], return_when=asyncio.FIRST_COMPLETED)
    return stop, task


async def test_a_replica_that_stops_hands_over_without_a_delay(cluster: Cluster) -> None:
    calls: list[str] = []
    stop, task = await start(cluster, operator_that_notes("one", calls))
    await cluster.client.create(website())
    await reach(lambda: calls == ["one"])
    await start_second(cluster, calls)
    before = cluster.clock.monotonic()
    stop.set()
    await task
    await reach(lambda: "two" in calls)  # No time has to pass: the standby sees that the lease is released.
    assert cluster.clock.monotonic() == before


async def start_second(cluster: Cluster, calls: list[str]) -> Manager:
    manager = await cluster.run(operator_that_notes("two", calls), leader_election=True)
    await cluster.advance(5)
    assert "two" not in calls
    assert not manager.is_active
    return manager


async def test_the_lease_has_the_durations_that_were_chosen(cluster: Cluster) -> None:
    terms = Terms(lease_seconds=60, renew_seconds=40, retry_seconds=5)
    await cluster.run(operator_that_notes("one", []), leader_election=True, lease=terms)
    await reach_lease(cluster.client)
    assert (await cluster.client.get(LEASE, "pair"))["spec"]["leaseDurationSeconds"] == 60


async def reach_lease(client: Client) -> None:
    async with asyncio.timeout(60):
        while await client.get_or_none(LEASE, "pair") is None:
            await asyncio.sleep(0.01)


@in_process_only
async def test_a_replica_that_cannot_renew_stops_and_writes_nothing_before_its_lease_ends(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    manager = await cluster.run(operator_that_notes("one", calls), leader_election=True)
    await cluster.client.create(website())
    await cluster.settle()
    assert manager.is_active
    is_cut_off = True
    update = Client.update

    async def cut(self: Client, obj: Any, **options: Any) -> Any:
        if is_cut_off and isinstance(obj, dict) and obj.get("kind") == "Lease":
            raise errors.Unavailable("cut off")
        return await update(self, obj, **options)

    monkeypatch.setattr(Client, "update", cut)
    for _ in range(14):
        await cluster.clock.advance(1)
    assert not manager.is_active  # After ten seconds; another replica may lead after fifteen.
    calls.clear()
    await cluster.clock.advance(5)
    assert calls == []
    with pytest.raises(LeaseLost, match="must not write"):
        await manager.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}})
    is_cut_off = False
    await cluster.clock.advance(20)
    await reach(lambda: bool(calls))


async def test_a_thread_that_outlives_the_lease_ends_the_process(cluster: Cluster) -> None:
    operator = Operator("stuck")
    begun, release = threading.Event(), threading.Event()

    @operator.reconcile(Website)
    def reconcile(site: Website, ctx: Context) -> None:
        begun.set()
        release.wait(60)

    terms = Terms(lease_seconds=1.1, renew_seconds=1.0, retry_seconds=0.5)
    stop, task = await start(cluster, operator, lease=terms)
    await cluster.client.create(website())
    await reach(begun.is_set)
    stop.set()
    try:
        with pytest.raises(BaseExceptionGroup) as raised:
            await task
        assert raised.group_contains(WorkGoesOn, match=r"reconcile at .*: release\.wait\(60\)")
        lease = await cluster.client.get(LEASE, "stuck")
        assert lease["spec"]["holderIdentity"], "released: another replica would lead while the thread works"
    finally:
        release.set()
