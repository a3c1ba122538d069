"""Tests that tasks end with their owner and that their errors are logged."""

from __future__ import annotations

import asyncio

import pytest

from pinnace.process.tasks import Tasks


async def _wait_forever(seen: list[str]) -> None:
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        await asyncio.sleep(0)
        seen.append("ended")


async def _raise(error: Exception) -> None:
    raise error


async def test_tasks_are_cancelled_and_awaited_at_the_end_of_the_block() -> None:
    seen: list[str] = []
    async with Tasks() as tasks:
        tasks.start(_wait_forever(seen))
        await asyncio.sleep(0)
        assert len(tasks) == 1
    assert seen == ["ended"]
    assert len(tasks) == 0


async def test_a_task_that_another_starts_while_it_ends_is_cancelled_too() -> None:
    seen: list[str] = []

    async def start_another() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            tasks.start(_wait_forever(seen))
            await asyncio.sleep(0)

    async with asyncio.timeout(60), Tasks() as tasks:
        tasks.start(start_another())
        await asyncio.sleep(0)
    assert seen == ["ended"]


@pytest.mark.parametrize(
    ("error", "is_logged"),
    [
        pytest.param(RuntimeError("broken"), True, id="unexpected"),
        pytest.param(ConnectionResetError("gone"), False, id="a lost connection"),
    ],
)
async def test_an_unexpected_error_is_logged_when_it_happens(
    error: Exception, is_logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with Tasks() as tasks:
        await asyncio.wait((tasks.start(_raise(error)),))
        logged = [(record.getMessage(), record.exc_info[1]) for record in caplog.records if record.exc_info]
        assert logged == ([("_raise failed", error)] if is_logged else [])
