"""Coroutines that are begun at once and finished later."""

from __future__ import annotations

import asyncio

import pytest

from pinnace.process.eager_coroutines import EagerCoroutine, run_together


async def test_a_coroutine_without_a_wait_has_ended_when_it_is_begun() -> None:
    async def work() -> int:
        return 3

    begun = EagerCoroutine(work())
    assert begun.is_done
    assert await begun == 3


async def test_several_wait_for_the_same_future_without_a_task_each() -> None:
    commit: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    seen: list[int] = []

    async def work(number: int) -> int:
        seen.append(number)
        return number + await commit

    begun = [EagerCoroutine(work(number)) for number in range(3)]
    assert seen == [0, 1, 2], "all have run up to their wait"
    asyncio.get_running_loop().call_soon(commit.set_result, 10)
    assert [await task for task in begun] == [10, 11, 12]


async def test_an_error_is_raised_where_the_result_is_awaited() -> None:
    async def fails(*, later: bool) -> None:
        if later:
            await asyncio.sleep(0)
        raise ValueError("no")

    for later in (False, True):
        begun = EagerCoroutine(fails(later=later))
        with pytest.raises(ValueError, match="no"):
            await begun


async def test_a_cancelled_wait_reaches_the_coroutine() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def wait() -> None:
        await EagerCoroutine(work())

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["cancelled"]


async def test_a_closed_coroutine_cleans_up() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("closed")

    EagerCoroutine(work()).close()
    assert ended == ["closed"]


async def test_coroutines_that_wait_several_times_wait_side_by_side() -> None:
    running: set[int] = set()
    most = 0

    async def work(number: int) -> int:
        nonlocal most
        await asyncio.sleep(0)
        running.add(number)
        most = max(most, len(running))
        await asyncio.sleep(0.001)
        running.remove(number)
        if number == 1:
            raise ValueError("no")
        return number

    result = await run_together(work(number) for number in range(3))
    assert most == 3, "a wait of one is no wait for the next"
    assert [result[0], result[2]] == [0, 2]
    assert isinstance(result[1], ValueError)


async def test_coroutines_of_a_cancelled_run_are_closed() -> None:
    ended: list[int] = []

    async def work(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    task = asyncio.create_task(run_together(work(number) for number in range(3)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(ended) == [0, 1, 2]
