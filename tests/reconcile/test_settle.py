"""`Manager.settle` returns only when nothing is left to do, also for workers that were busy when it looked."""

from __future__ import annotations

import asyncio

import pytest
from tests.server.in_process import config_map

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.model.objects import Key
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.informer import LastChange
from pinnace.reconcile.manager import Manager

BUSY_SECONDS = 0.05


async def test_settle_waits_for_a_kind_that_a_busy_worker_begins_to_follow(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = Manager(client)
    followed: list[str] = []
    may_follow = asyncio.Event()

    def note(old: Snapshot | None, new: Snapshot | None) -> None:
        if new is not None:
            followed.append(new.key.name)

    async def follow(key: Key) -> None:
        await may_follow.wait()
        manager.informer("v1/ConfigMap").on_change(note)

    async def do_nothing(key: Key) -> None: ...

    follower = manager.add(Controller("follower", follow))
    other = manager.add(Controller("other", do_nothing))
    known = manager.informer("v1/Secret")
    idle = other.queue.idle

    async def become_busy() -> None:
        """Give the first controller work after its queue was found idle."""
        if not may_follow.is_set():
            follower.enqueue(Key("", "kinds"), "test")
            while not follower.queue.working:
                await asyncio.sleep(0)
            asyncio.get_running_loop().call_later(BUSY_SECONDS, may_follow.set)
        await idle()

    async def outlast_the_worker(last_change: LastChange | None = None) -> None:
        """The worker ends while the caches are compared."""
        may_follow.set()
        await follower.queue.idle()

    await client.create(config_map("there"))
    async with asyncio.timeout(60), manager.running():
        monkeypatch.setattr(other.queue, "idle", become_busy)
        monkeypatch.setattr(known, "catch_up", outlast_the_worker)
        await manager.settle()
        assert "there" in followed
