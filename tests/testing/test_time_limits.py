"""A wait is given up after its time, to which a busy machine adds the time in which the process could not work."""

from __future__ import annotations

import asyncio

import pytest

from pinnace.testing import cluster as time_limits
from pinnace.testing.cluster import limit_working_time


async def test_a_wait_without_end_is_given_up() -> None:
    with pytest.raises(TimeoutError):
        async with limit_working_time(0.05):
            await asyncio.Event().wait()


async def test_the_time_without_a_processor_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, is_extended = iter([0.0, 600.0, 600.0]), asyncio.Event()

    def waited() -> float:
        answer = next(answers)
        if answer:
            is_extended.set()
        return answer

    monkeypatch.setattr(time_limits, "seconds_without_processor", waited)
    async with limit_working_time(0.05):
        await is_extended.wait()
        await asyncio.sleep(0)  # The first end would be here.
