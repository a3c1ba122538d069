import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from pinnace.process import stall_watch
from pinnace.process.stall_watch import SAMPLE_SECONDS, STALL_SECONDS, WAIT, WORK, Stall, StallWatch
from pinnace.process.thread_stacks import Frame
from pinnace.server.metrics import RequestMetrics

ON_PURPOSE = pytest.mark.stalls(reason="the watch needs something to notice")


def work(seconds: float) -> None:
    """Use the CPU, and release the interpreter's lock as Python does."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@asynccontextmanager
async def watched(watch: StallWatch) -> AsyncIterator[None]:
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@ON_PURPOSE
async def test_work_that_holds_the_loop_is_counted_and_its_place_is_found() -> None:
    stalls: list[Stall] = []
    watch = StallWatch(on_stall=stalls.append)
    async with watched(watch):
        await asyncio.sleep(0)
        work(0.5)
    stall = max(stalls, key=lambda stall: stall.cpu_seconds)
    assert stall.cpu_seconds >= 0.5
    assert stall.seconds >= STALL_SECONDS
    assert any(frame.function == "work" for frame in stall.stack)


async def test_an_idle_loop_is_not_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, woken, looks = asyncio.get_running_loop(), 0, threading.Semaphore(0)
    look, call = StallWatch._look, loop.call_soon_threadsafe

    def count_look(watch: StallWatch, *arguments: Any) -> float:
        try:
            return look(watch, *arguments)
        finally:
            looks.release()

    def count_call(*arguments: Any, **options: Any) -> asyncio.Handle:
        nonlocal woken
        woken += getattr(arguments[0], "__name__", "") == "_answer"
        return call(*arguments, **options)

    monkeypatch.setattr(StallWatch, "_look", count_look)
    monkeypatch.setattr(loop, "call_soon_threadsafe", count_call)
    async with watched(StallWatch()):
        await asyncio.to_thread(lambda: [looks.acquire(timeout=60) for _ in range(5)])
    assert woken <= 1, "only the start of the test itself may be seen as work"


async def test_a_loop_that_turns_has_no_stalls_of_its_own() -> None:
    watch = StallWatch(least=3600)
    async with watched(watch):
        for _ in range(3):
            await asyncio.sleep(SAMPLE_SECONDS)
    assert watch.counts == {WORK: 0, WAIT: 0}


@ON_PURPOSE
async def test_a_blocking_call_is_a_wait() -> None:
    stalls: list[Stall] = []
    async with watched(StallWatch(on_stall=stalls.append)):
        threading.Event().wait(0.4)
    assert max(stalls, key=lambda stall: stall.seconds).cause == WAIT


@ON_PURPOSE
async def test_a_place_is_logged_once_and_counted_each_time(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stall_watch, "_PACKAGE", "test_stall_watch")
    watch = StallWatch()
    with caplog.at_level(logging.INFO):
        async with watched(watch):
            for _ in range(2):
                work(0.5)
                await asyncio.sleep(2 * SAMPLE_SECONDS)
    lines = [record.getMessage() for record in caplog.records if " in work;" in record.getMessage()]
    assert len(lines) == 1, caplog.text
    assert sum(watch.counts.values()) >= 2
    metrics = RequestMetrics()
    for name, about, read in watch.gauges():
        metrics.gauge(name, about, read)
    assert f'pinnace_loop_stalls_total{{cause="work"}} {watch.counts[WORK]}' in metrics.text()


@pytest.mark.parametrize(("seconds", "cpu_seconds", "cause"), [(1.0, 0.9, WORK), (2.0, 0.1, WORK), (1.0, 0.09, WAIT)])
def test_the_cause_follows_from_the_cpu_time(seconds: float, cpu_seconds: float, cause: str) -> None:
    assert Stall(seconds, cpu_seconds, ()).cause == cause


def test_the_place_is_the_innermost_function_of_the_package() -> None:
    inner, ours = Frame("/lib/json.py", 1, "loads"), Frame("/site/pinnace/server/x.py", 2, "render")
    outer = Frame("/site/pinnace/server/y.py", 3, "answer")
    assert Stall(1, 1, (inner, ours, outer)).place == ours
    assert Stall(1, 1, (inner,)).place is None
