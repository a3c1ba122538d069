"""A member of etcd that is cut off from the others: its server moves to another one, and clients see nothing stale."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.server.in_process import CONFIG_MAPS, InProcess, config_map
from tests.store.etcd.peer_network import peer_network
from tests.store.etcd.processes import EtcdMember

from pinnace.cluster.cluster import running
from pinnace.cluster.settings import Settings
from pinnace.store.etcd import client
from pinnace.store.etcd.settings import EtcdSettings

COUNT = f"{CONFIG_MAPS}/count"
KEY = "/registry/core/configmaps/default/count"
WRITES_WHILE_CUT = 20


@asynccontextmanager
async def server_at(data: Path, *members: EtcdMember) -> AsyncIterator[InProcess]:
    """Run a server that uses the first of these members while that works."""
    etcd = EtcdSettings(endpoints=tuple(("127.0.0.1", member.port) for member in members))
    async with running(Settings(data_dir=data, etcd=etcd, controllers=False, scheduler=False)) as cluster:
        yield InProcess(cluster.plane)


async def count_up(api: InProcess, number: int) -> None:
    """Write a number. An answer may be lost while members change; then the write is repeated."""
    async with asyncio.timeout(60):
        while (await api.patch(COUNT, {"data": {"n": str(number)}})).status != 200:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("is_leader", [True, pytest.param(False, marks=pytest.mark.soak)], ids=["leader", "follower"])
async def test_a_server_leaves_a_member_that_is_cut_off_and_answers_no_read_with_an_older_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_leader: bool
) -> None:
    monkeypatch.setattr(client, "ATTEMPT_SECONDS", 1.0)
    async with peer_network(tmp_path) as network:
        leader = await network.find_leader()
        cut_off = next(member for member in network.members if (member is leader) == is_leader)
        others = [member for member in network.members if member is not cut_off]
        async with (
            server_at(tmp_path / "one", cut_off, *others) as first,
            server_at(tmp_path / "two", *others) as two,
        ):
            await two.made(CONFIG_MAPS, {**config_map("count"), "data": {"n": "0"}})
            version = (await first.get(COUNT)).json["metadata"]["resourceVersion"]
            watch = await first.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={version}")
            await network.cut_off(cut_off)
            fresh = 0
            for number in range(1, WRITES_WHILE_CUT + 1):
                await count_up(two, number)
                read = await first.get(COUNT)
                if read.status == 200:
                    assert int(read.json["data"]["n"]) == number, "a read does not see an acknowledged write"
                    fresh += 1
                else:
                    assert read.status == 500, read.body
            async with asyncio.timeout(60):
                while not fresh:
                    fresh += (await first.get(COUNT)).status == 200
            await count_up(first, WRITES_WHILE_CUT + 1)
            async with asyncio.timeout(60):
                events = [await watch.take(1) for _ in range(WRITES_WHILE_CUT + 1)]
            seen = [int(event["object"]["data"]["n"]) for (event,) in events]
            assert seen == list(range(1, WRITES_WHILE_CUT + 2)), "the watch has a gap, a repetition or another order"
            watch.close()
            stored = await asyncio.to_thread(cut_off.control, "get", "--consistency=s", "--print-value-only", KEY)
            assert f'"n":"{WRITES_WHILE_CUT}"' not in stored, "the member was not cut off"
            network.mend()
        async with server_at(tmp_path / "one", cut_off) as again:
            assert (await again.get(COUNT)).json["data"]["n"] == str(WRITES_WHILE_CUT + 1)
