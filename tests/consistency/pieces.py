"""One checked piece of a run: clients, faults, and a history without violations."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.consistency.checker import violations
from tests.consistency.history import History
from tests.consistency.scene import Faults, Scene
from tests.consistency.workload import Client, Workload

LONGEST_SECONDS = 90.0
"""A piece is shorter than the history that servers keep."""

FEWEST_WRITES = 100


@dataclass(frozen=True, slots=True)
class Piece:
    """One run of the workload: its history, its faults and its violations."""

    history: History
    faults: list[str]
    violations: list[str]
    seconds: float

    def __str__(self) -> str:
        history = self.history
        return (
            f"{history.operations} operations ({len(history.writes)} writes, {len(history.reads)} reads, "
            f"{len(history.lists)} lists, {history.open_writes} unanswered) in {self.seconds:.1f} s, "
            f"{len(self.faults)} faults, {len(self.violations)} violations"
        )


async def run_piece(scene: Scene, name: str, *, operations: int, chance: random.Random) -> Piece:
    """Run clients until there are so many operations, with one fault after the other, each kind at least once.

    A piece that takes too long ends with fewer operations.
    """
    client = Client(list(scene.servers), scene.servers[0].token, seed=chance.randrange(1 << 30), request_seconds=3.0)
    workload = Workload(client, name)
    happened: list[str] = []
    began = time.monotonic()

    async def happen() -> None:
        history = workload.history
        faults = Faults(scene, history, chance)
        waiting: list[Callable[[], Awaitable[None]]] = []
        is_complete = False
        while not is_complete or history.operations < operations or len(history.writes) < FEWEST_WRITES:
            if time.monotonic() - began > LONGEST_SECONDS:
                return
            if not waiting:
                waiting = faults.possible
                chance.shuffle(waiting)
            fault = waiting.pop()
            happened.append(fault.__name__)
            await fault()
            is_complete = is_complete or not waiting

    try:
        await workload.start()
        await workload.run(happen, writers=6, readers=3, watchers=2)
    finally:
        await client.close()
    inconsistencies = await asyncio.to_thread(violations, workload.history)
    return Piece(workload.history, happened, inconsistencies, time.monotonic() - began)
