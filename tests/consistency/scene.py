"""Servers, members of etcd and the connections between them, and the faults that can happen to each."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.consistency.history import History
from tests.consistency.servers import QUIET, ServerProcess
from tests.store.etcd.processes import EtcdMember, etcd_cluster
from tests.store.etcd.proxy import Proxy

_MOST_SECONDS = 120
_STALLS = 10
_FEW, _SOME = 5, 25
"""Acknowledged writes to wait for: while a fault lasts, and after it."""


@dataclass(slots=True)
class Scene:
    """One cluster. The last server reaches etcd through `proxy`, if there is one."""

    servers: list[ServerProcess]
    members: list[EtcdMember] = field(default_factory=list)
    proxy: Proxy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneSize:
    """How many processes a scene has. Without members the server keeps its objects in SQLite."""

    servers: int = 1
    members: int = 0
    is_proxied: bool = False
    write_seconds: float = 0.0
    """How much longer the disk of SQLite takes for each write."""


@asynccontextmanager
async def staged(directory: Path, size: SceneSize) -> AsyncIterator[Scene]:
    """Start the members and the servers, and end them."""
    members = [EtcdMember(directory / "etcd")] if size.members == 1 else etcd_cluster(directory, size.members)
    for member in members:
        member.start()
    proxy = Proxy(members[0].port, delay=0.01) if size.is_proxied else None
    flags = [_store_flags([member.port for member in members])] * size.servers
    if proxy is not None:
        await proxy.start()
        flags[-1] = _store_flags([proxy.port])
    program = ("tests.consistency.slow_disk", str(size.write_seconds)) if size.write_seconds else ("pinnace.cli.main",)
    servers = [
        ServerProcess(directory / f"server{number}", *QUIET, *own, program=program) for number, own in enumerate(flags)
    ]
    try:
        await servers[0].start()  # The others take its credentials over.
        await asyncio.gather(*(server.start() for server in servers[1:]))
        yield Scene(servers, members, proxy)
    finally:
        await asyncio.gather(*(server.stop() for server in servers))
        if proxy is not None:
            await proxy.stop()
        for member in members:
            member.stop()


def _store_flags(ports: list[int]) -> tuple[str, ...]:
    if not ports:
        return ()
    address = "etcd://" + ",".join(f"127.0.0.1:{port}" for port in ports)
    return ("--store", address, "--shutdown-delay-duration", "100ms")


class Faults:
    """Faults that happen to a scene while clients write; each waits until writes succeed again."""

    def __init__(self, scene: Scene, history: History, chance: random.Random) -> None:
        self._scene = scene
        self._history = history
        self._chance = chance

    @property
    def possible(self) -> list[Callable[[], Awaitable[None]]]:
        """The faults that this scene can have."""
        faults: list[Callable[[], Awaitable[None]]] = [self.pause_server, self.kill_server, self.restart_server]
        if self._scene.members:
            faults += [self.pause_member, self.stall_member, self.kill_member]
        if self._scene.proxy is not None:
            faults += [self.cut_connection, self.silence_connection]
        return faults

    async def pause_server(self) -> None:
        server = self._server()
        server.pause()
        await asyncio.sleep(0.3)
        server.resume()
        await self._more(_SOME)

    async def kill_server(self) -> None:
        server = self._server()
        await server.kill()
        if len(self._scene.servers) > 1:
            await self._more(_FEW)
        await server.start()
        await self._more(_SOME)

    async def restart_server(self) -> None:
        server = self._server()
        await server.stop()
        await server.start()
        await self._more(_SOME)

    async def pause_member(self) -> None:
        member = self._member()
        member.pause()
        if len(self._scene.members) > 1:
            await self._more(_FEW)
        else:
            await asyncio.sleep(0.3)
        member.resume()
        await self._more(_SOME)

    async def stall_member(self) -> None:
        """Let a member run for a tenth of the time, as on a disk that is too slow for it."""
        member = self._member()
        for _ in range(_STALLS):
            member.pause()
            await asyncio.sleep(0.045)
            member.resume()
            await asyncio.sleep(0.005)
        await self._more(_SOME)

    async def kill_member(self) -> None:
        member = self._member()
        member.kill()
        if len(self._scene.members) > 1:
            await self._more(_FEW)
        member.start()
        await self._more(_SOME)

    async def cut_connection(self) -> None:
        proxy = self._scene.proxy
        assert proxy is not None
        proxy.cut()
        if len(self._scene.servers) > 1:
            await self._more(_FEW)
        proxy.mend()
        await self._more(_SOME)

    async def silence_connection(self) -> None:
        """Leave the connection open, but let nothing through for a while."""
        proxy = self._scene.proxy
        assert proxy is not None
        proxy.hold()
        if len(self._scene.servers) > 1:
            await self._more(_FEW)
        else:
            await asyncio.sleep(0.3)
        proxy.release()
        await self._more(_SOME)

    def _server(self) -> ServerProcess:
        return self._chance.choice(self._scene.servers)

    def _member(self) -> EtcdMember:
        return self._chance.choice(self._scene.members)

    async def _more(self, writes: int) -> None:
        """Wait for more acknowledged writes."""
        goal = len(self._history.writes) + writes
        async with asyncio.timeout(_MOST_SECONDS):
            while len(self._history.writes) < goal:
                await asyncio.sleep(0.01)
