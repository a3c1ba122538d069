"""Long work beside the loop: that of several users in turns, stopped when its request has ended."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from pinnace.process import fair_threads
from pinnace.process.fair_threads import Abandoned, FairThreads, TooMuchWork
from pinnace.process.work_slices import give_way, paced

SECONDS = 60


class Hog:
    """Work that ends when the test ends it, or is stopped."""

    def __init__(self) -> None:
        self.begun, self.end, self.ended = threading.Event(), threading.Event(), threading.Event()

    def work(self) -> str:
        """Give way all the time."""
        self.begun.set()
        try:
            while not self.end.is_set():
                give_way()
            return "done"
        finally:
            self.ended.set()

    def block(self) -> str:
        """Never give way."""
        self.begun.set()
        assert self.end.wait(SECONDS)
        self.ended.set()
        return "done"


@pytest.fixture
async def threads() -> FairThreads:
    return FairThreads.of_loop()


@pytest.fixture
def hog() -> Hog:
    return Hog()


async def wait(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, SECONDS)


async def begin(threads: FairThreads, flow: str, work: Callable[[], str], begun: threading.Event) -> asyncio.Task[str]:
    task = asyncio.create_task(threads.run(flow, work))
    await wait(begun)
    return task


async def test_work_of_another_user_gets_its_turn(threads: FairThreads, hog: Hog) -> None:
    long = await begin(threads, "long", hog.work, hog.begun)
    assert await threads.run("short", lambda: 42) == 42
    assert not long.done()
    hog.end.set()
    assert await long == "done"


async def test_work_that_does_not_give_way_is_overtaken(threads: FairThreads, hog: Hog) -> None:
    long = await begin(threads, "long", hog.block, hog.begun)
    assert await threads.run("short", lambda: 42) == 42
    hog.end.set()
    assert await long == "done"


async def test_the_work_of_one_user_runs_in_its_order(threads: FairThreads, hog: Hog) -> None:
    order: list[int] = []
    first = await begin(threads, "one", hog.work, hog.begun)
    later = [asyncio.create_task(threads.run("one", order.append, number)) for number in range(5)]
    assert await threads.run("other", lambda: list(order)) == []
    hog.end.set()
    await asyncio.gather(first, *later)
    assert order == [0, 1, 2, 3, 4]


async def test_work_stops_with_the_task_that_waits_for_it(threads: FairThreads, hog: Hog) -> None:
    task = await begin(threads, "one", hog.work, hog.begun)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait(hog.ended)


async def test_work_that_waits_for_its_slice_stops_too(threads: FairThreads, hog: Hog) -> None:
    other = Hog()
    blocking = await begin(threads, "blocking", other.block, other.begun)
    task = await begin(threads, "one", hog.work, hog.begun)  # It overtakes the other, and runs beside it.
    third = Hog()
    waiting = await begin(threads, "third", third.work, third.begun)  # Now two take turns.
    task.cancel()
    await wait(hog.ended)
    third.end.set()
    other.end.set()
    assert await waiting == await blocking == "done"


async def test_work_that_is_not_begun_never_runs_after_its_task_was_cancelled(threads: FairThreads, hog: Hog) -> None:
    seen: list[int] = []
    first = await begin(threads, "one", hog.work, hog.begun)
    second = asyncio.create_task(threads.run("one", seen.append, 1))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    hog.end.set()
    await first
    await threads.run("one", seen.append, 2)
    assert seen == [2]


async def test_abandoned_work_ends_with_an_error(threads: FairThreads, hog: Hog) -> None:
    task = await begin(threads, "one", hog.work, hog.begun)
    threads.abandon(task)
    with pytest.raises(Abandoned):
        await task
    assert hog.ended.is_set()


async def test_an_abandoned_task_begins_no_more_work(threads: FairThreads) -> None:
    ready = asyncio.Event()

    async def run() -> None:
        await ready.wait()
        await threads.run("one", pytest.fail)

    task = asyncio.create_task(run())
    threads.abandon(task)
    ready.set()
    with pytest.raises(Abandoned):
        await task


async def test_no_handler_of_errors_in_the_work_keeps_it_from_stopping(threads: FairThreads) -> None:
    begun, caught = threading.Event(), threading.Event()

    def stubborn() -> str:
        begun.set()
        while True:
            with suppress(Exception):
                give_way()
            if caught.is_set():
                return "survived"

    task = await begin(threads, "one", stubborn, begun)
    threads.abandon(task)
    try:
        with pytest.raises(Abandoned):
            await task
    finally:
        caught.set()


async def test_the_longest_work_makes_room_for_another_user(
    threads: FairThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fair_threads, "MOST_STARTED", 3)
    monkeypatch.setattr(fair_threads, "LONGEST_SECONDS", 0.0)
    hogs = [Hog() for _ in range(3)]
    tasks = [await begin(threads, f"user-{at}", hog.work, hog.begun) for at, hog in enumerate(hogs)]
    assert await threads.run("another", lambda: 42) == 42
    stopped = [task for task in tasks if task.done()]
    for hog in hogs:
        hog.end.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert len(stopped) == 1
    assert [type(result) for result in results].count(TooMuchWork) == 1


async def test_an_error_of_the_work_is_raised(threads: FairThreads) -> None:
    with pytest.raises(ZeroDivisionError):
        await threads.run("one", lambda: 1 // 0)


async def test_pythons_switch_interval_is_as_before_after_the_work(threads: FairThreads, hog: Hog) -> None:
    task = await begin(threads, "one", hog.work, hog.begun)
    assert sys.getswitchinterval() == pytest.approx(fair_threads.SWITCH_SECONDS)
    hog.end.set()
    await task
    while sys.getswitchinterval() == pytest.approx(fair_threads.SWITCH_SECONDS):  # Work of an earlier test may end.
        await asyncio.sleep(0)


def test_beside_no_thread_nothing_gives_way() -> None:
    items = [1, 2]
    assert paced(items) is items
    give_way()
