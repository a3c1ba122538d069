"""Freed memory is given back after the process has grown, and only then."""

from __future__ import annotations

from pinnace.process.memory_trim import (
    BUSY_SECONDS,
    COLLECT_EVERY,
    GROWTH,
    TIMES,
    MemoryTrim,
    glibc_trim,
    process_memory,
)

START = 100 << 20


class Process:
    """A process of a given size; what is above `needed` is given back."""

    def __init__(self) -> None:
        self.size = START
        self.needed = START
        self.trims = 0

    def measure(self) -> int:
        return self.size

    def trim(self) -> None:
        self.trims += 1
        self.size = self.needed


async def test_memory_is_given_back_after_the_process_has_grown() -> None:
    process = Process()
    trim = MemoryTrim(trim=process.trim, measure=process.measure)
    await trim.check()
    process.size = process.needed = START + GROWTH
    await trim.check()
    process.needed = START  # A client has closed its connection: the process is no smaller for that.
    await trim.check()
    assert (process.trims, process.size) == (2, START)


async def test_garbage_in_cycles_is_collected_after_the_process_has_grown() -> None:
    process, collections, cpu = Process(), 0, 0.0

    def collect() -> None:
        nonlocal collections
        collections += 1

    trim = MemoryTrim(trim=process.trim, measure=process.measure, collect=collect, cpu_time=lambda: cpu)
    await trim.check()
    assert collections == 0
    process.size = process.needed = START + GROWTH
    cpu = BUSY_SECONDS
    await trim.check()
    assert (collections, process.trims) == (0, 1), "requests would wait for a collection"
    for _ in range(2 * TIMES):
        await trim.check()
    assert collections == TIMES // COLLECT_EVERY


async def test_a_process_that_hardly_grows_is_left_alone() -> None:
    process = Process()
    trim = MemoryTrim(trim=process.trim, measure=process.measure)
    for _ in range(5):
        await trim.check()
        process.size += GROWTH // 10
    assert process.trims == 0


async def test_memory_that_is_needed_is_not_asked_for_again_and_again() -> None:
    process = Process()
    trim = MemoryTrim(trim=process.trim, measure=process.measure)
    await trim.check()
    process.size = process.needed = START + 2 * GROWTH
    for _ in range(3 * TIMES):
        await trim.check()
    assert process.trims == TIMES


def test_the_process_knows_its_size_and_can_trim() -> None:
    assert process_memory() > 1 << 20
    trim = glibc_trim()
    if trim is not None:
        trim()
