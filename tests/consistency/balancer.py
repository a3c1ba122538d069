"""A TCP load balancer in front of several servers, as a rolling restart needs one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import count

import aiohttp
from tests.consistency.servers import ServerProcess
from tests.store.etcd.proxy import Proxy

_PROBE_SECONDS = 0.05


class Balancer(Proxy):
    """Gives each connection to the next server whose /readyz answers ok."""

    def __init__(self, servers: Sequence[ServerProcess]) -> None:
        super().__init__(0)
        self._servers = servers
        self._turns = count()
        self._probing: asyncio.Task[None] | None = None
        self.ready: set[ServerProcess] = set()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    async def start(self) -> None:
        await super().start()
        self._probing = asyncio.create_task(self._probe())

    async def stop(self) -> None:
        if self._probing is not None:
            self._probing.cancel()
        await super().stop()

    async def _probe(self) -> None:
        timeout = aiohttp.ClientTimeout(total=1)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False), timeout=timeout) as session:
            while True:
                await asyncio.gather(*(self._probe_one(session, server) for server in self._servers))
                await asyncio.sleep(_PROBE_SECONDS)

    async def _probe_one(self, session: aiohttp.ClientSession, server: ServerProcess) -> None:
        if await _is_ready(session, server):
            self.ready.add(server)
        else:
            self.ready.discard(server)

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        ready = [server for server in self._servers if server in self.ready]
        first = next(self._turns)
        for turn in range(len(ready)):
            server = ready[(first + turn) % len(ready)]
            with suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
        raise ConnectionRefusedError("no server is ready")


async def _is_ready(session: aiohttp.ClientSession, server: ServerProcess) -> bool:
    try:
        async with session.get(f"{server.url}/readyz") as answer:
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False
