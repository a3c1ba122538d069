"""Several replicas of one operator share its objects by shards: each object is handled by one of them at a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.sdk.operator.test_turns_and_threads import reach
from tests.sdk.websites import Website, website

from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.client.kubeconfig import access_of
from pinnace.client.kubeconfig_files import kubeconfig_of
from pinnace.cluster.cluster import running
from pinnace.cluster.settings import Settings
from pinnace.model import errors
from pinnace.reconcile.manager import Manager
from pinnace.reconcile.shards import Shards, assign
from pinnace.sdk import Context, Operator
from pinnace.testing.cluster import Cluster

WEBSITE = "extensions.example.com/v1/Website"
LEASE = "coordination.k8s.io/v1/Lease"
CONFIG_MAP = "v1/ConfigMap"


@dataclass
class Replica:
    """One replica of an operator with four shards, in this process."""

    handled: list[str] = field(default_factory=list)
    related: list[str] = field(default_factory=list)
    triggers: list[str] = field(default_factory=list)
    changed: list[tuple[str, str]] = field(default_factory=list)
    running: set[str] = field(default_factory=set)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    """The calls wait until it is set."""
    manager: Manager | None = None
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    @property
    def shards(self) -> Shards:
        assert self.manager is not None and self.manager.shards is not None
        return self.manager.shards

    def operator(self, count: int) -> Operator:
        operator = Operator("shared", shards=count)

        @operator.reconcile(Website, owns=[CONFIG_MAP])
        async def handle(site: Website, ctx: Context) -> None:
            self.handled.append(site.metadata.name)
            await self.gate.wait()
            self.triggers.append(ctx.trigger)
            if ctx.trigger == "related":
                self.related.append(site.metadata.name)
            await ctx.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": site.metadata.name}})

        @operator.on_change(Website)
        async def note(old: Website | None, new: Website | None) -> None:
            latest = new or old
            assert latest is not None
            kind = "created" if old is None else "deleted" if new is None else "changed"
            self.changed.append((kind, latest.metadata.name))

        @operator.daemon(Website)
        async def follow(site: Website, ctx: Context) -> None:
            self.running.add(site.metadata.name)
            try:
                await asyncio.Event().wait()
            finally:
                self.running.discard(site.metadata.name)

        return operator

    async def start(self, cluster: Cluster, count: int = 4) -> None:
        started = asyncio.Event()

        async def run() -> None:
            async with self.operator(count).running(cluster.client) as self.manager:
                cluster.managers.append(self.manager)
                started.set()
                await self.stop.wait()
                cluster.managers.remove(self.manager)

        self.task = asyncio.create_task(run())
        await asyncio.wait([self.task, asyncio.create_task(started.wait())], return_when=asyncio.FIRST_COMPLETED)

    async def end(self) -> None:
        self.stop.set()
        assert self.task is not None
        await self.task


@pytest.fixture
async def replicas(cluster: Cluster) -> AsyncIterator[list[Replica]]:
    replicas = [Replica(), Replica()]
    for replica in replicas:
        replica.gate.set()
    yield replicas
    for replica in replicas:
        if replica.task is not None and not replica.task.done():
            await replica.end()


async def create(cluster: Cluster, count: int) -> dict[str, str]:
    """The uids of new objects by their names."""
    sites = [await cluster.client.create(website(f"site-{number}")) for number in range(count)]
    return {site["metadata"]["name"]: site["metadata"]["uid"] for site in sites}


async def share(cluster: Cluster, replicas: list[Replica]) -> None:
    """Return when the replicas have half of the shards each."""
    await reach(lambda: all(len(replica.shards.held) == 2 for replica in replicas))
    await cluster.settle()


def names_of(replica: Replica, uids: dict[str, str]) -> set[str]:
    return {name for name, uid in uids.items() if replica.shards.holds(uid)}


async def test_two_replicas_have_half_of_the_objects_each(cluster: Cluster, replicas: list[Replica]) -> None:
    for replica in replicas:
        await replica.start(cluster)
    await share(cluster, replicas)
    uids = await create(cluster, 24)
    await cluster.settle()
    for replica in replicas:
        assert set(replica.handled) == names_of(replica, uids)
        assert {name for kind, name in replica.changed if kind == "created"} == names_of(replica, uids)
        assert replica.running == names_of(replica, uids)
    assert {*replicas[0].handled, *replicas[1].handled} == set(uids)
    assert not {*replicas[0].handled} & {*replicas[1].handled}


async def test_a_new_replica_takes_over_objects_without_reports_of_changes(
    cluster: Cluster, replicas: list[Replica]
) -> None:
    first, second = replicas
    await first.start(cluster)
    uids = await create(cluster, 24)
    await cluster.settle()
    assert set(first.handled) == first.running == set(uids)
    first.changed.clear()
    await second.start(cluster)
    await share(cluster, replicas)
    assert set(second.handled) == names_of(second, uids)
    assert set(second.triggers) <= {"resumed", "related"}
    assert first.running == names_of(first, uids)
    assert second.running == names_of(second, uids)
    assert first.changed == second.changed == []


async def test_a_replica_that_stops_gives_its_objects_at_once(cluster: Cluster, replicas: list[Replica]) -> None:
    first, second = replicas
    for replica in replicas:
        await replica.start(cluster)
    await share(cluster, replicas)
    uids = await create(cluster, 24)
    await cluster.settle()
    before = cluster.clock.monotonic()
    await first.end()
    await reach(lambda: len(second.shards.held) == 4)
    await cluster.settle()
    assert set(second.handled) == second.running == set(uids)
    assert cluster.clock.monotonic() == before
    leases = await cluster.client.list(LEASE, namespace="default", labels="pinnace.dev/member")
    assert [lease["spec"]["holderIdentity"] for lease in leases] == [second.shards.member]


async def test_a_shard_is_given_when_the_last_call_for_its_objects_has_ended(
    cluster: Cluster, replicas: list[Replica]
) -> None:
    first, second = replicas
    first.gate.clear()
    await first.start(cluster)
    [name] = await create(cluster, 1)
    await reach(lambda: first.handled == [name])
    [shard] = [first.shards.shard_of(site["metadata"]["uid"]) for site in await cluster.client.list(WEBSITE)]
    await second.start(cluster)
    await reach(lambda: len(first.shards.held) == 2)
    is_given = shard not in first.shards.held
    await reach(lambda: len(second.shards.held) == (1 if is_given else 2))
    lease = await cluster.client.get(LEASE, f"shared-shard-{shard}-of-4")
    assert lease["spec"]["holderIdentity"] == first.shards.member
    assert second.handled == []
    first.gate.set()
    await share(cluster, replicas)
    assert second.handled == ([name] if is_given else [])


async def test_a_replica_that_loses_its_leases_writes_no_more(cluster: Cluster, replicas: list[Replica]) -> None:
    first, _ = replicas
    first.gate.clear()
    await first.start(cluster)
    [name] = await create(cluster, 1)
    await reach(lambda: first.handled == [name])
    for number in range(4):
        spec = {"holderIdentity": "another", "leaseDurationSeconds": 600}
        await cluster.client.patch(LEASE, f"shared-shard-{number}-of-4", {"spec": spec})
    await cluster.clock.advance(3)
    await reach(lambda: not first.shards.held)
    first.gate.set()
    await cluster.settle()
    assert not [obj for obj in await cluster.client.list(CONFIG_MAP) if obj["metadata"]["name"] == name]


async def test_children_follow_their_owner(cluster: Cluster, replicas: list[Replica]) -> None:
    for replica in replicas:
        await replica.start(cluster)
    await share(cluster, replicas)
    uids = await create(cluster, 12)
    await cluster.settle()
    for replica in replicas:
        replica.related.clear()
    for name in uids:
        await cluster.client.delete(CONFIG_MAP, name)
    await cluster.settle()
    for replica in replicas:
        assert set(replica.related) == names_of(replica, uids)
    assert {obj["metadata"]["name"] for obj in await cluster.client.list(CONFIG_MAP)} >= set(uids)


async def test_a_replica_with_another_number_of_shards_waits_for_the_others(
    cluster: Cluster, replicas: list[Replica]
) -> None:
    first, second = replicas
    await first.start(cluster, 4)
    uids = await create(cluster, 12)
    await cluster.settle()
    await second.start(cluster, 3)
    await cluster.advance(60)
    assert (len(first.shards.held), len(second.shards.held)) == (4, 0)
    assert second.handled == []
    await first.end()
    await reach(lambda: len(second.shards.held) == 3)
    await cluster.settle()
    assert set(second.handled) == set(uids)


def test_shards_are_assigned_evenly_and_few_move() -> None:
    for count in (2, 4, 7, 16, 64):
        members = tuple(f"member-{number}" for number in range(5))
        assigned = assign(count, members)
        loads = [list(assigned.values()).count(member) for member in members]
        assert sum(loads) == count
        assert max(loads) - min(loads) <= 1
    before, after = assign(64, members), assign(64, members[:4])
    assert sum(before[shard] != after[shard] for shard in before) <= 32


@pytest.mark.parametrize("count", [1, -1, 65])
def test_a_number_of_shards_that_cannot_be_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"shared cannot have {count} shards: choose 2 to 64"):
        Operator("shared", shards=count)


def test_a_source_with_a_path_is_refused() -> None:
    operator = Operator("shared", shards=2)
    with pytest.raises(ValueError, match="/hooks/git reaches one process"):

        @operator.source(Website, path="/hooks/git")
        async def pushed(request: Any) -> list[Any]:
            return []


# Real processes

PROGRAM = """
import asyncio, json, os, sys, time
from pathlib import Path
from pinnace.sdk import Context, CustomResource, Model, Operator, Terms

class SiteSpec(Model):
    turn: int = 0

class Site(CustomResource[SiteSpec, None], group="example.com", version="v1"):
    pass

operator = Operator("shared", shards=6)
log = open(sys.argv[2], "a", buffering=1)

def note(event, site):
    now = time.clock_gettime(time.CLOCK_MONOTONIC)
    log.write(json.dumps([now, os.getpid(), event, site.metadata.name, site.spec.turn]) + "\\n")

@operator.reconcile(Site)
async def handle(site: Site, ctx: Context) -> None:
    note("begin", site)
    await asyncio.sleep(0.02)
    note("end", site)

operator.serve(kubeconfig=Path(sys.argv[1]), lease=Terms(lease_seconds=6, renew_seconds=4, retry_seconds=0.5))
"""


@dataclass
class Handled:
    """The log of the calls of all processes."""

    path: Path

    def entries(self) -> list[tuple[float, int, str, str, int]]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return sorted(tuple(json.loads(line)) for line in lines)

    def processes(self) -> set[int]:
        return {entry[1] for entry in self.entries()}

    def is_done(self, turn: int, names: list[str]) -> bool:
        """Whether all objects were handled since a turn."""
        return {name for _, _, event, name, at in self.entries() if event == "end" and at >= turn} == set(names)

    def check_no_two_at_once(self, *, killed: int) -> None:
        """Fail if two processes handled an object at the same time. The calls of a killed process have no end."""
        holder: dict[str, int] = {}
        for _, process, event, name, _ in self.entries():
            if event == "end":
                assert holder.pop(name) == process
            else:
                assert holder.get(name) in (None, killed), f"{name} is handled by {process} and {holder.get(name)}"
                holder[name] = process


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(240):
        while not condition():
            await asyncio.sleep(0.1)


async def until_created(client: Client, names: list[str]) -> None:
    """Create the objects as soon as their definition is served."""
    for name in names:
        site = {"apiVersion": "example.com/v1", "kind": "Site", "metadata": {"name": name, "namespace": "default"}}
        async with asyncio.timeout(240):
            while True:
                try:
                    await client.create({**site, "spec": {}})
                    break
                except errors.NoSuchPath:
                    await asyncio.sleep(0.1)


async def touch_until(client: Client, handled: Handled, names: list[str], turn: int, processes: set[int]) -> int:
    """Change all objects until all of these processes have handled some; each change is handled once."""
    while turn == 0 or handled.processes() != processes:
        turn += 1
        for name in names:
            await client.patch("example.com/v1/Site", name, {"spec": {"turn": turn}})
        await until(partial(handled.is_done, turn, names))
    return turn


@pytest.mark.parametrize("gates", ["ShardedListAndWatch=true", ""], ids=["gate on", "gate off"])
async def test_real_processes_share_the_objects_and_take_over_from_one_that_is_killed(
    tmp_path: Path, gates: str
) -> None:
    program, handled = tmp_path / "program.py", Handled(tmp_path / "handled.jsonl")
    program.write_text(PROGRAM)
    config = tmp_path / "kubeconfig"
    names = [f"site-{number}" for number in range(40)]
    settings = Settings(controllers=False, kubernetes_version="1.37", feature_gates=gates)
    async with running(settings) as cluster, contextlib.AsyncExitStack() as stack:
        written = kubeconfig_of(cluster.access)
        config.write_text(json.dumps(written))
        client = await stack.enter_async_context(connect(access_of(written)))

        def start() -> subprocess.Popen[bytes]:
            command = [sys.executable, str(program), str(config), str(handled.path)]
            process = subprocess.Popen(command, env={**os.environ, "PINNACE_OFFLINE": "1"})
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        first, second = start(), start()
        await until_created(client, names)
        await until(partial(handled.is_done, 0, names))
        turn = await touch_until(client, handled, names, 0, {first.pid, second.pid})
        first.kill()
        third = start()
        await touch_until(client, handled, names, turn, {first.pid, second.pid, third.pid})
        handled.check_no_two_at_once(killed=first.pid)
        for process in (second, third):
            process.terminate()
            assert await asyncio.to_thread(process.wait) == 0
        leases = await client.list(LEASE, namespace="default")
        holders = {lease["spec"].get("holderIdentity") for lease in leases if "-shard-" in lease["metadata"]["name"]}
        assert holders == {""}, "all shards were released at the end"
