"""A server with its controllers in this process, which can be killed and started again over the same store."""

from __future__ import annotations

import asyncio

from pinnace.cluster.cluster import ControlPlane, Settings, build, give_birth
from pinnace.cluster.controllers import controllers_of
from pinnace.cluster.in_process import InProcessTransport, in_process_client
from pinnace.reconcile.manager import Manager
from pinnace.store.memory import MemoryStore
from pinnace.testing.clock import ManualClock


class MortalServer:
    """What it has stored outlives it; nothing else does."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.deaths = 0
        self._store = MemoryStore()
        self._plane: ControlPlane | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.manager: Manager | None = None

    async def start(self) -> InProcessTransport:
        """The way to it, until it dies."""
        plane = await build(Settings(), self._store, clock=self.clock)
        if self.deaths == 0:
            await give_birth(plane, address="127.0.0.1", port=6443)
        plane.readiness.is_reached = True
        definer = in_process_client(plane.local(), clock=self.clock)
        self.manager = controllers_of(plane, None, clock=self.clock)
        self._tasks = [
            asyncio.create_task(work)
            for work in (plane.custom_resources.run(definer), plane.aggregation.run(definer), self.manager.run())
        ]
        self._plane = plane
        return InProcessTransport(plane.local())

    async def kill(self) -> None:
        """All at once, whatever it is doing."""
        self.deaths += 1
        self.manager = None
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def close(self) -> None:
        if self.manager is not None:
            await self.kill()
        await self._store.close()
