"""Background parts: a failure is logged, counted, reported and followed by a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pinnace.process.backoff import Backoff
from pinnace.process.supervisor import RECOVERY_SECONDS, Supervisor
from pinnace.testing.clock import ManualClock


class Fragile:
    """A part that fails when the test says so."""

    def __init__(self) -> None:
        self.starts = 0
        self._fail = asyncio.Event()

    async def run(self) -> None:
        self.starts += 1
        self._fail.clear()
        await self._fail.wait()
        raise LookupError("the odd answer")

    def fail(self) -> None:
        self._fail.set()


def supervisor(clock: ManualClock) -> Supervisor:
    return Supervisor(clock, backoff=Backoff(first=1.0, longest=4.0, jitter=0.0))


@asynccontextmanager
async def failing_part() -> AsyncIterator[tuple[ManualClock, Fragile, Supervisor]]:
    """Run a part, and let it fail for the first time."""
    clock, part = ManualClock(), Fragile()
    parts = supervisor(clock)
    parts.add("odd", part.run)
    async with parts.running():
        await clock.advance(0)
        part.fail()
        yield clock, part, parts


async def test_a_part_that_fails_is_logged_counted_and_restarted(caplog: pytest.LogCaptureFixture) -> None:
    clock, part = ManualClock(), Fragile()
    parts = supervisor(clock)
    parts.add("odd", part.run)
    async with parts.running():
        await clock.advance(0)
        assert (part.starts, parts.failures["odd"], parts.down_seconds()) == (1, 0, {})
        part.fail()
        await clock.advance(0)
        assert (part.starts, parts.failures["odd"], parts.down_seconds()) == (1, 1, {"odd": 0.0})
        await clock.advance(1)
        assert part.starts == 2
    assert "odd failed, restarting it in 1.0 s" in caplog.text
    assert "LookupError: the odd answer" in caplog.text


async def test_a_repeated_failure_is_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async with failing_part() as (clock, part, _):
        await clock.advance(1)
        part.fail()
        await clock.advance(0)
    first, second = caplog.records
    assert first.exc_info is not None
    assert second.exc_info is None
    assert second.getMessage() == "odd failed again, restarting it in 2.0 s: LookupError: the odd answer"


async def test_a_restarted_part_counts_as_down_until_it_has_run_for_a_while() -> None:
    async with failing_part() as (clock, _, parts):
        await clock.advance(1)
        assert parts.down_seconds() == {"odd": 1.0}
        await clock.advance(RECOVERY_SECONDS)
        assert parts.down_seconds() == {}


async def test_restarts_back_off_and_begin_anew_after_a_recovery() -> None:
    clock, part = ManualClock(), Fragile()
    parts = supervisor(clock)
    parts.add("odd", part.run)
    async with parts.running():
        await clock.advance(0)
        for delay in (1, 2, 4, 4):
            part.fail()
            await clock.advance(delay - 0.5)
            before = part.starts
            await clock.advance(0.5)
            assert part.starts == before + 1
        assert parts.down_seconds() == {"odd": 11.0}
        await clock.advance(RECOVERY_SECONDS)
        part.fail()
        await clock.advance(1)
        assert part.starts == 6
        assert parts.down_seconds() == {"odd": 1.0}


async def test_a_part_that_ends_has_failed() -> None:
    clock = ManualClock()
    parts = supervisor(clock)

    async def end() -> None:
        return None

    parts.add("short", end)
    async with parts.running():
        await clock.advance(0)
        assert parts.failures["short"] == 1


async def test_other_parts_go_on_and_all_are_cancelled_at_the_end() -> None:
    clock, part, other = ManualClock(), Fragile(), Fragile()
    parts = supervisor(clock)
    parts.add("odd", part.run)
    async with parts.running():
        parts.add("late", other.run)
        await clock.advance(0)
        part.fail()
        await clock.advance(20)
        assert (part.starts, other.starts) == (2, 1)
    await clock.advance(60)
    assert (part.starts, other.starts) == (2, 1)
    assert parts.down_seconds() == {}


async def test_parts_of_parts_are_kept_and_forgotten_when_they_are_cancelled() -> None:
    clock, part = ManualClock(), Fragile()
    parts = supervisor(clock)
    task = asyncio.create_task(parts.keep("informer/v1/Pod", part.run))
    await clock.advance(0)
    part.fail()
    await clock.advance(0)
    assert (parts.names, list(parts.down_seconds())) == ([], ["informer/v1/Pod"])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert parts.down_seconds() == {}
    assert parts.failures["informer/v1/Pod"] == 1


async def test_a_name_is_used_once() -> None:
    parts = supervisor(ManualClock())
    parts.add("odd", Fragile().run)
    with pytest.raises(ValueError, match="give this one another name"):
        parts.add("odd", Fragile().run)


async def test_a_part_that_fails_while_it_is_stopped_is_not_started_again(caplog: pytest.LogCaptureFixture) -> None:
    clock, starts = ManualClock(), 0
    parts = supervisor(clock)

    async def stop_badly() -> None:
        nonlocal starts
        starts += 1
        try:
            await asyncio.Event().wait()
        finally:
            raise TimeoutError("its process did not end")

    parts.add("odd", stop_badly)
    async with asyncio.timeout(60), parts.running():
        await clock.advance(0)
    assert starts == 1
    assert "odd failed while it stopped" in caplog.text
