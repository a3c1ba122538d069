"""Tasks that run the writes of the scheduler, so that no task has to be made for each of thousands of bindings."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from pinnace.process.tasks import Tasks

Work = Callable[[], Awaitable[None]]
"""A coroutine function without parameters: nothing is begun before a worker calls it."""
_log = logging.getLogger(__name__)


class Workers:
    """Runs work, some at once, in the order in which it comes. Use it as a block: its end cancels what runs.

    Work that is added outside of the block waits for the next one. A worker that need not wait for the server goes on
    with the next work at once.
    """

    def __init__(self, most: int, notify: Callable[[], None]) -> None:
        """Run at most `most` at once. `notify` is called after each."""
        self._most = most
        self._notify = notify
        self._waiting: deque[Work] = deque()
        self._busy = 0
        self._tasks = Tasks(expected=())
        self._resting: list[asyncio.Future[None]] = []
        self._is_open = False

    def add(self, work: Work) -> None:
        self._waiting.append(work)
        if self._is_open:
            self._wake_one()

    def __len__(self) -> int:
        """Return how much work waits or runs."""
        return len(self._waiting) + self._busy

    async def __aenter__(self) -> Self:
        self._is_open = True
        for _ in range(min(len(self._waiting), self._most)):
            self._wake_one()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_open = False
        await self._tasks.close()
        self._resting.clear()
        if kind is not None:
            self._waiting.clear()

    def _wake_one(self) -> None:
        while self._resting:
            resting = self._resting.pop()
            if not resting.done():
                resting.set_result(None)
                return
        if len(self._tasks) < self._most:
            self._tasks.start(self._work())

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while self._waiting:
                work = self._waiting.popleft()
                self._busy += 1
                try:
                    await work()
                except Exception:
                    _log.exception("a write of the scheduler failed")
                finally:
                    self._busy -= 1
                self._notify()
            resting = loop.create_future()
            self._resting.append(resting)
            await resting
