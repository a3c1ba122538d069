"""A server with its controllers in this process, which can be killed and started again over the same store."""

from __future__ import annotations

from contextlib import AsyncExitStack

from tests.testing.both_ways import TOKENS, reached

from pinnace.client.transport import Transport
from pinnace.cluster.control_plane import SYSTEM, ControlPlane, build
from pinnace.cluster.controllers import controllers_of
from pinnace.cluster.server_jobs import add_extension_parts
from pinnace.cluster.settings import Settings
from pinnace.reconcile.manager import Manager
from pinnace.server.bootstrap.creation import bootstrap
from pinnace.store.memory import MemoryStore
from pinnace.testing.clock import ManualClock


class MortalServer:
    """A server whose stored objects outlive it, and nothing else."""

    def __init__(self, clock: ManualClock, way: str) -> None:
        self.clock = clock
        self._way = way
        self._doors = AsyncExitStack()
        self.deaths = 0
        self._store = MemoryStore()
        self._plane: ControlPlane | None = None
        self._background = AsyncExitStack()
        self.manager: Manager | None = None

    async def start(self) -> Transport:
        """The way to it, until it dies."""
        plane = await build(Settings(), self._store, clock=self.clock, tokens=TOKENS)
        if self.deaths == 0:
            await bootstrap(plane.foundation, plane.local(), ("127.0.0.1", 6443))
        plane.health.is_ready = True
        self.manager = controllers_of(plane, None, clock=self.clock)
        add_extension_parts(plane)
        plane.supervisor.add(self.manager.name, self.manager.run)
        self._background = AsyncExitStack()
        await self._background.enter_async_context(plane.supervisor.running())
        self._plane = plane
        transport_of = await self._doors.enter_async_context(reached(plane, self._way))
        return transport_of(SYSTEM)

    async def kill(self) -> None:
        """All at once, whatever it is doing."""
        self.deaths += 1
        self.manager = None
        await self._background.aclose()
        await self._doors.aclose()

    async def close(self) -> None:
        if self.manager is not None:
            await self.kill()
        await self._store.close()
