"""Measure what a put costs: CPU per put, and puts per second, with many writers on one store."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from pinnace.store.memory import MemoryStore
from pinnace.store.sqlite.store import SqliteStore
from pinnace.store.store import Store

WRITERS = 64
PUTS_PER_WRITER = 1000
VALUE = b"v" * 1024


async def measure(name: str, store: Store) -> None:
    """Let every writer overwrite keys of its own, compare-and-set, and print the cost."""

    async def write(writer: int) -> None:
        revisions = [0] * 10
        for turn in range(PUTS_PER_WRITER):
            slot = turn % 10
            key = f"/registry/configmaps/default/writer-{writer}-{slot}"
            revisions[slot] = await store.put(key, VALUE, expected=revisions[slot])

    wall, cpu = time.perf_counter(), time.process_time()
    async with asyncio.TaskGroup() as group:
        for writer in range(WRITERS):
            group.create_task(write(writer))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    puts = WRITERS * PUTS_PER_WRITER
    print(f"{name:8} {WRITERS} writers: {cpu / puts * 1e6:6.1f} µs CPU per put, {puts / wall:9,.0f} puts/s")
    await store.close()


async def main() -> None:
    """Measure each store."""
    sys.setswitchinterval(0.0005)
    await measure("memory", MemoryStore())
    with tempfile.TemporaryDirectory() as directory:
        await measure("sqlite", await SqliteStore.open(Path(directory) / "bench.db"))


if __name__ == "__main__":
    uvloop.run(main())
