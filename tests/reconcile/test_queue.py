"""The queue under a clock that the test owns."""

from __future__ import annotations

import asyncio

import pytest

from pinnace.process.backoff import Backoff
from pinnace.reconcile.queue import Closed, Queue
from pinnace.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(clock: ManualClock) -> Queue[str]:
    return Queue(clock=clock, backoff=Backoff(first=1.0, longest=8.0, jitter=0))


async def drain(queue: Queue[str]) -> list[str]:
    """All that is to be done now, in order."""
    items = []
    while queue.depth:
        item = await queue.take()
        items.append(item)
        queue.done(item)
    return items


async def test_an_item_is_held_once_however_often_it_is_added(queue: Queue[str]) -> None:
    for item in ("a", "b", "a", "a"):
        queue.add(item)
    assert await drain(queue) == ["a", "b"]


async def test_an_item_that_is_worked_on_is_given_out_again_after(queue: Queue[str]) -> None:
    queue.add("a")
    await queue.take()
    queue.add("a")
    queue.add("a")
    assert queue.depth == 0
    queue.done("a")
    assert await drain(queue) == ["a"]


async def test_the_urgent_come_first_and_of_these_the_oldest(queue: Queue[str]) -> None:
    queue.add("low", priority=-100)
    queue.add("first")
    queue.add("second")
    queue.add("high", priority=5)
    assert await drain(queue) == ["high", "first", "second", "low"]


async def test_an_item_can_become_more_urgent_but_not_less(queue: Queue[str]) -> None:
    queue.add("slow", priority=-100)
    queue.add("other")
    queue.add("slow", priority=10)
    queue.add("slow", priority=-50)
    assert await drain(queue) == ["slow", "other"]


async def test_a_delayed_item_comes_later_and_the_shorter_delay_counts(queue: Queue[str], clock: ManualClock) -> None:
    queue.add_after("a", 10)
    queue.add_after("a", 5)
    queue.add_after("a", 20)
    queue.add_after("b", 7)
    assert queue.delayed == 2
    await clock.advance(4.9)
    assert queue.is_idle
    await clock.advance(0.2)
    assert await drain(queue) == ["a"]
    await clock.advance(100)
    assert await drain(queue) == ["b"]


async def test_failures_in_a_row_are_tried_again_more_and_more_rarely(queue: Queue[str]) -> None:
    assert [queue.retry("a") for _ in range(5)] == [1, 2, 4, 8, 8]
    assert queue.failures("a") == 5
    queue.forget("a")
    assert queue.retry("a") == 1


def test_delays_have_chance_in_them() -> None:
    backoff = Backoff(first=1.0, longest=8.0, jitter=0.5, random=lambda: 0.5)
    assert backoff.delay(1) == 0.75
    assert backoff.delay(10_000) == 6.0


async def test_a_waiting_worker_is_woken_by_the_next_item(queue: Queue[str]) -> None:
    takers = [asyncio.create_task(queue.take()) for _ in range(3)]
    await asyncio.sleep(0)
    for item in ("a", "b", "c"):
        queue.add(item)
    assert await asyncio.gather(*takers) == ["a", "b", "c"]


async def test_a_taker_that_is_cancelled_loses_nothing(queue: Queue[str]) -> None:
    first, second = asyncio.create_task(queue.take()), asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    queue.add("a")  # Wakes the first, which is cancelled before it runs.
    first.cancel()
    assert await asyncio.wait_for(second, 60) == "a"


async def test_idle_waits_for_the_work_not_for_what_is_later(queue: Queue[str]) -> None:
    queue.add_after("later", 10)
    queue.add("a")
    idle = asyncio.create_task(queue.idle())
    item = await queue.take()
    await asyncio.sleep(0)
    assert not idle.done()
    queue.done(item)
    await asyncio.wait_for(idle, 60)


async def test_a_closed_queue_gives_out_nothing_until_it_is_opened(queue: Queue[str], clock: ManualClock) -> None:
    taker = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    queue.close()
    with pytest.raises(Closed):
        await taker
    queue.add("a")
    queue.add_after("b", 1)
    with pytest.raises(Closed):
        await queue.take()
    queue.open()
    await clock.advance(1)
    assert await drain(queue) == ["a", "b"]
