"""Counts the turns of the event loop, for tests of work that leaves the loop to others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass
class LoopTurns:
    count: int = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.count += 1


@asynccontextmanager
async def counting_turns() -> AsyncIterator[LoopTurns]:
    turns = LoopTurns()
    others = asyncio.create_task(turns.run())
    try:
        yield turns
    finally:
        others.cancel()
