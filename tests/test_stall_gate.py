"""The gate that fails tests notices the product's long turns of the loop, and nothing else."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.stall_gate import MOST_CPU_SECONDS, StallGate

pytestmark = pytest.mark.stalls(reason="the gate needs something to notice")

_SOURCE = """
def work(seconds, each=lambda: None):
    end = thread_time() + seconds
    while thread_time() < end:
        each()
"""


def product_function() -> Callable[..., None]:
    """Return a function that works for a while and whose code seems to be a file of the product."""
    names: dict[str, Any] = {"thread_time": time.thread_time}
    exec(compile(_SOURCE, "/somewhere/src/pinnace/work.py", "exec"), names)
    work: Callable[..., None] = names["work"]
    return work


def work_here(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def test_a_long_turn_in_the_product_is_noticed(stall_gate: StallGate) -> None:
    await asyncio.sleep(0)
    product_function()(2 * MOST_CPU_SECONDS)
    await asyncio.sleep(0)
    assert [turn.is_of_product for turn in stall_gate.turns] == [True]
    assert "src/pinnace/work.py" in str(stall_gate.turns[0])


async def test_many_short_callbacks_of_one_turn_count_together(stall_gate: StallGate) -> None:
    work = product_function()
    loop = asyncio.get_running_loop()
    for _ in range(10):
        loop.call_soon(work, MOST_CPU_SECONDS / 5)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [turn.is_of_product for turn in stall_gate.turns] == [True]
    assert stall_gate.turns[0].callbacks >= 10


async def test_the_work_of_the_test_itself_is_none_of_the_products(stall_gate: StallGate) -> None:
    await asyncio.sleep(0)
    work_here(2 * MOST_CPU_SECONDS)
    await asyncio.sleep(0)
    assert not any(turn.is_of_product for turn in stall_gate.turns)


async def test_work_in_several_turns_is_no_stall(stall_gate: StallGate) -> None:
    work = product_function()
    for _ in range(20):
        work(MOST_CPU_SECONDS / 10)
        await asyncio.sleep(0)
    assert stall_gate.turns == []


async def test_garbage_collection_does_not_count(stall_gate: StallGate) -> None:
    await asyncio.sleep(0)
    product_function()(2 * MOST_CPU_SECONDS, gc.collect)
    await asyncio.sleep(0)
    assert stall_gate.turns == []


async def test_time_asleep_does_not_count(stall_gate: StallGate) -> None:
    await asyncio.sleep(0)
    time.sleep(2 * MOST_CPU_SECONDS)
    await asyncio.sleep(0)
    assert stall_gate.turns == []
