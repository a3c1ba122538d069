"""Concurrent clients at one and several servers, on SQLite and etcd, with kills and pauses: no history is inconsistent.

The short runs are for every change; `make soak` runs the long ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest
from tests.consistency.checker import violations
from tests.consistency.history import History
from tests.consistency.servers import ServerProcess
from tests.consistency.workload import Client, Workload
from tests.store.etcd.processes import EtcdMember, etcd_cluster
from tests.store.etcd.proxy import Proxy

SHORT, LONG = 1, 40
LONGEST_ROUND = 8

Faults = Callable[[], Awaitable[None]]


def flags_of(ports: list[int]) -> tuple[str, ...]:
    return ("--store", "etcd://" + ",".join(f"127.0.0.1:{port}" for port in ports)) if ports else ()


@asynccontextmanager
async def started(
    directory: Path, *, servers: int, members: list[EtcdMember], proxy: Proxy | None = None
) -> AsyncIterator[list[ServerProcess]]:
    """Start the members and the servers. The last server reaches etcd through the proxy."""
    flags = [flags_of([member.port for member in members])] * servers
    if proxy is not None:
        await proxy.start()
        flags[-1] = flags_of([proxy.port])
    processes = [ServerProcess(directory / f"server{number}", *own) for number, own in enumerate(flags)]
    for member in members:
        member.start()
    try:
        for process in processes:
            await process.start()
        yield processes
    finally:
        for process in processes:
            await process.stop()
        if proxy is not None:
            await proxy.stop()
        for member in members:
            member.stop()


async def run(servers: list[ServerProcess], name: str, faults_of: Callable[[History], Faults]) -> History:
    client = Client(list(servers), servers[0].token, seed=1, request_seconds=3.0)
    workload = Workload(client, name)
    try:
        await workload.start()
        await workload.run(faults_of(workload.history), writers=4, readers=3, watchers=2)
    finally:
        await client.close()
    return workload.history


async def more(history: History, operations: int) -> None:
    """Wait for more acknowledged writes."""
    goal = len(history.writes) + operations
    async with asyncio.timeout(120):
        while len(history.writes) < goal:
            await asyncio.sleep(0.02)


def server_faults(servers: list[ServerProcess], rounds: int) -> Callable[[History], Faults]:
    """Pause and kill each server in turn."""

    def faults_of(history: History) -> Faults:
        async def faults() -> None:
            await more(history, 60)
            for turn in range(rounds):
                server = servers[turn % len(servers)]
                server.pause()
                await asyncio.sleep(0.3)
                server.resume()
                await more(history, 40)
                await server.kill()
                if len(servers) > 1:
                    await more(history, 20)
                await server.start()
                await more(history, 40)

        return faults

    return faults_of


def member_faults(members: list[EtcdMember], rounds: int) -> Callable[[History], Faults]:
    """Pause and kill each member of etcd in turn."""

    def faults_of(history: History) -> Faults:
        async def faults() -> None:
            await more(history, 60)
            for turn in range(rounds):
                member = members[turn % len(members)]
                member.pause()
                await more(history, 20)
                member.resume()
                member = members[(turn + 1) % len(members)]
                member.kill()
                await more(history, 20)
                member.start()
                await more(history, 40)

        return faults

    return faults_of


def connection_faults(proxy: Proxy, rounds: int) -> Callable[[History], Faults]:
    """Cut the connection to etcd, and let it be silent for a while."""

    def faults_of(history: History) -> Faults:
        async def faults() -> None:
            await more(history, 80)
            for _ in range(rounds):
                proxy.cut()
                await more(history, 5)
                proxy.mend()
                await more(history, 20)
                proxy.hold()
                await more(history, 5)
                proxy.release()
                await more(history, 20)

        return faults

    return faults_of


async def check(
    servers: list[ServerProcess], rounds: int, faults: Callable[[int], Callable[[History], Faults]]
) -> None:
    """Run in pieces that are shorter than the history that servers keep."""
    for number in count():
        part = min(rounds - number * LONGEST_ROUND, LONGEST_ROUND)
        if part <= 0:
            return
        history = await run(servers, f"run{number}", faults(part))
        assert violations(history) == []
        assert len(history.writes) >= 100 and history.reads and history.lists and history.audit.seen
        assert any(listed.pages > 1 for listed in history.lists)
        print(f"{history.operations} operations, {history.open_writes} of them open")


ROUNDS = pytest.mark.parametrize("rounds", [SHORT, pytest.param(LONG, marks=pytest.mark.soak)], ids=["short", "long"])


@ROUNDS
async def test_one_server_on_sqlite(tmp_path: Path, rounds: int) -> None:
    async with started(tmp_path, servers=1, members=[]) as servers:
        await check(servers, rounds, lambda part: server_faults(servers, part))


@ROUNDS
@pytest.mark.parametrize("count_of_servers", [pytest.param(1, marks=pytest.mark.soak), 2])
async def test_servers_on_etcd(tmp_path: Path, count_of_servers: int, rounds: int) -> None:
    members = [EtcdMember(tmp_path / "etcd")]
    async with started(tmp_path, servers=count_of_servers, members=members) as servers:
        await check(servers, rounds, lambda part: server_faults(servers, part))


@ROUNDS
async def test_a_server_that_is_far_from_etcd_and_cut_off_at_times(tmp_path: Path, rounds: int) -> None:
    member = EtcdMember(tmp_path / "etcd")
    proxy = Proxy(member.port, delay=0.03)
    async with started(tmp_path, servers=2, members=[member], proxy=proxy) as servers:
        await check(servers, rounds, lambda part: connection_faults(proxy, part))


@ROUNDS
async def test_members_of_etcd_that_fail_under_two_servers(tmp_path: Path, rounds: int) -> None:
    members = etcd_cluster(tmp_path)
    async with started(tmp_path, servers=2, members=members) as servers:
        await check(servers, rounds, lambda part: member_faults(members, part))
