"""Tasks with an owner: cancelled and awaited when the owner ends, and logged when they fail.

    async with Tasks() as tasks:
        reading = tasks.start(session.run())
        ...                                  # the tasks end with the block

Use it where a TaskGroup does not fit: the tasks only assist the block, so that the end of one must not end the others,
and a lost connection is no error. Tasks whose result matters belong to a TaskGroup.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

Result = TypeVar("Result")
_log = logging.getLogger(__name__)


class Tasks:
    """The tasks of one connection, stream or block. Close it, or enter it with `async with`."""

    def __init__(self, *, expected: tuple[type[Exception], ...] = (OSError,)) -> None:
        """`expected` are the errors that are not logged: by default those of a lost connection."""
        self._expected = expected
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)
        return task

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        """Yield the tasks that run."""
        return iter(list(self._tasks))

    def __len__(self) -> int:
        return len(self._tasks)

    def cancel(self) -> None:
        """Cancel the tasks without waiting for them, where the owner's `close` cannot wait."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """Cancel the tasks and wait for them."""
        while self._tasks:
            self.cancel()
            await asyncio.wait(self._tasks)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, self._expected):
            _log.error("%s failed", getattr(task.get_coro(), "__qualname__", task.get_name()), exc_info=error)
