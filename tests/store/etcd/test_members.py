"""A cluster of three members that are killed, paused and restarted under writers: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.etcd.processes import EtcdMember, etcd_cluster

from pinnace.store.etcd import client, transactions
from pinnace.store.etcd.settings import EtcdSettings
from pinnace.store.etcd.store import EtcdStore
from pinnace.store.store import Batch, Conflict, StoreError

WRITERS = 8


@pytest.fixture
def members(tmp_path: Path) -> Iterator[list[EtcdMember]]:
    members = etcd_cluster(tmp_path)
    for member in members:
        member.start()
    yield members
    for member in members:
        member.stop()


@pytest.mark.parametrize("rounds", [1, pytest.param(12, marks=pytest.mark.soak)])
async def test_nothing_acknowledged_is_lost_when_members_fail(
    members: list[EtcdMember], monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    monkeypatch.setattr(client, "ATTEMPT_SECONDS", 1.0)
    monkeypatch.setattr(transactions, "CALL_SECONDS", 20.0)
    settings = EtcdSettings(endpoints=tuple(("127.0.0.1", member.port) for member in members))
    store = await EtcdStore.open(settings, prefix="/a/")
    followed: Batch = []
    store.follow(followed.extend)
    acknowledged: dict[str, tuple[int, bytes]] = {}
    finished = asyncio.Event()

    async def write(writer: int) -> int:
        """Count up one key with a comparison each time; how often that succeeded."""
        key, revision, turn = f"/a/{writer}", 0, 0
        while not finished.is_set():
            try:
                revision = await store.put(key, b"%d" % turn, expected=revision)
                acknowledged[key] = (revision, b"%d" % turn)
                turn += 1
            except Conflict as conflict:
                current = conflict.current
                assert current is not None and int(current.value) >= turn - 1, "an acknowledged write was taken back"
                revision, turn = current.revision, int(current.value) + 1
            except StoreError:
                await asyncio.sleep(0.05)
        return turn

    async def progress() -> None:
        """Wait until every writer has succeeded again."""
        before = dict(acknowledged)
        async with asyncio.timeout(60):
            while any(acknowledged.get(f"/a/{n}") == before.get(f"/a/{n}") for n in range(WRITERS)):
                await asyncio.sleep(0.05)

    async with asyncio.TaskGroup() as group:
        writers = [group.create_task(write(writer)) for writer in range(WRITERS)]
        await progress()
        for turn in range(rounds):
            member = members[turn % 3]
            member.pause()
            await progress()
            member.resume()
            await progress()
            member = members[(turn + 1) % 3]
            member.kill()
            await progress()
            member.start()
            await progress()
        finished.set()
    assert all(writer.result() > 5 for writer in writers)
    await store.sync()
    revisions = [change.revision for change in followed]
    assert revisions == sorted(set(revisions)), "changes came twice or out of order"
    for key, (revision, value) in acknowledged.items():
        assert any(change.key == key and change.revision == revision for change in followed)
        record = await store.get(key)
        assert record is not None and int(record.value) >= int(value)
    other = await EtcdStore.open(settings, prefix="/a/")
    assert await other.list("") == await store.list("")
    await other.close()
    await store.close()
