"""The read barrier: many readers share one question to etcd's leader, asked after the last of them came."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pinnace.store.store import StoreError


class ReadBarrier:
    """Calls `ask` in rounds. A reader waits for the first round that begins after it came."""

    def __init__(self, ask: Callable[[], Awaitable[None]]) -> None:
        self._ask = ask
        self._waiting: list[asyncio.Future[None]] = []
        self._wanted = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def wait(self) -> None:
        """Wait for a round. Raise the StoreError of its question."""
        reader: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(reader)
        self._wanted.set()
        await reader

    async def run(self) -> None:
        """Ask for the readers that come, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            readers, self._waiting = self._waiting, []
            error: StoreError | None = None
            try:
                await self._ask()
            except StoreError as refused:
                error = refused
            except BaseException:
                self._waiting += readers
                raise
            for reader in readers:
                if reader.done():
                    continue
                if error is None:
                    reader.set_result(None)
                else:
                    reader.set_exception(type(error)(*error.args))

    def close(self, error: StoreError) -> None:
        """Fail the readers that wait, after `run` has ended."""
        for reader in self._waiting:
            if not reader.done():
                reader.set_exception(error)
        self._waiting = []
