"""Slices of long work: one in a turn of the loop, and few while the store has a write."""

from __future__ import annotations

import asyncio

import pytest

from pinnace.process import work_slices
from pinnace.process.work_slices import SliceQueue

SHORT_SECONDS = 0.05


@pytest.fixture
def queue() -> SliceQueue:
    return SliceQueue()


async def test_each_turn_has_one_slice(queue: SliceQueue) -> None:
    turns: list[int] = []
    turn = 0

    async def work() -> None:
        await queue.wait()
        turns.append(turn)

    working = asyncio.gather(*(work() for _ in range(5)))
    while not working.done():
        await asyncio.sleep(0)
        turn += 1
    assert len(set(turns)) == 5


async def test_a_slice_waits_for_the_end_of_a_write(queue: SliceQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_slices, "DEFERRED_SECONDS", 3600.0)
    monkeypatch.setattr(work_slices, "LONGEST_DEFERRED_SECONDS", 3600.0)
    monkeypatch.setattr(work_slices, "DEFERRING_SECONDS", 3600.0)
    await queue.wait()
    queue.begin_write()
    waiting = asyncio.ensure_future(queue.wait())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    queue.end_write()
    async with asyncio.timeout(60):
        await waiting


async def test_a_write_that_takes_long_does_not_stop_the_slices(
    queue: SliceQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_slices, "LONGEST_DEFERRED_SECONDS", SHORT_SECONDS)
    queue.begin_write()
    async with asyncio.timeout(60):
        for _ in range(3):
            await queue.wait()
    queue.end_write()
    assert queue.is_idle


async def test_a_write_that_waits_for_others_defers_no_slices(
    queue: SliceQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_slices, "DEFERRED_SECONDS", 3600.0)
    monkeypatch.setattr(work_slices, "LONGEST_DEFERRED_SECONDS", 3600.0)
    monkeypatch.setattr(work_slices, "DEFERRING_SECONDS", 0.0)
    usual = queue.slice_seconds
    queue.begin_write()
    async with asyncio.timeout(60):
        await queue.wait()
        await queue.wait()
    assert queue.slice_seconds == usual


async def test_slices_are_shorter_while_there_is_a_write(queue: SliceQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_slices, "DEFERRING_SECONDS", 3600.0)
    usual = queue.slice_seconds
    queue.begin_write()
    assert queue.slice_seconds < usual
    queue.end_write()
    assert queue.slice_seconds == usual


async def test_a_callback_gets_a_slice_of_its_own(queue: SliceQueue) -> None:
    was_called = asyncio.Event()
    queue.call(was_called.set)
    assert not queue.is_idle
    async with asyncio.timeout(60):
        await was_called.wait()
    assert queue.is_idle
