"""Tasks with an owner: cancelled and awaited when the owner ends, and logged when they fail.

`contain` is for code of others, and for code whose end must be noticed: it runs in a task of its own, and nothing that
it does to that task, or raises, ends its caller.

    async with Tasks() as tasks:
        reading = tasks.start(session.run())
        ...                                  # the tasks end with the block

Use it where a TaskGroup does not fit: the tasks only assist the block, so that the end of one must not end the others,
and a lost connection is no error. Tasks whose result matters belong to a TaskGroup.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

Result = TypeVar("Result")
_log = logging.getLogger(__name__)


class Interrupted(Exception):
    """Work ended with CancelledError although no one had cancelled it, or with an exception that ends a process.

    `__cause__` is that exception. To the caller it is a failure like others.
    """


class StopRequested(KeyboardInterrupt):
    """A signal asks the process to stop at once. Unlike any other KeyboardInterrupt, `contain` lets it through."""


async def contain(call: Callable[..., Awaitable[Result]], *arguments: object) -> Result:
    """Await a call in a task of its own, and return its result or raise its error, which is always an Exception.

    The effects of the call stay in that task: a count of cancellations (a TaskGroup of Python 3.11.2 leaves
    one), context variables, a cancellation that no one has awaited. CancelledError means that the caller is cancelled;
    in every other case it becomes Interrupted, and so do SystemExit and KeyboardInterrupt, which would end the loop.
    """
    caller = asyncio.current_task()
    assert caller is not None
    task = asyncio.get_running_loop().create_task(_call(call, arguments))
    try:
        return await task
    except asyncio.CancelledError as error:
        if caller.cancelling():
            raise
        raise Interrupted("it was cancelled, although its owner goes on") from error
    except Exception:
        raise
    except BaseException as error:
        if not task.done() or task.exception() is not error:
            raise
        raise Interrupted(f"it raised {_describe(error)}") from error
    finally:
        del task  # The error has this frame in its traceback: a cycle would keep both.


async def _call(call: Callable[..., Awaitable[Result]], arguments: tuple[object, ...]) -> Result:
    own = asyncio.current_task()
    try:
        return await call(*arguments)
    except StopRequested:
        raise
    except (SystemExit, KeyboardInterrupt) as error:  # A task that raises one of these ends the event loop.
        raise Interrupted(f"it raised {_describe(error)}") from error
    except GeneratorExit as error:  # It would close the coroutines of the caller, one after the other.
        if not _is_running(own):
            raise  # This coroutine is being closed, because its loop has ended.
        raise Interrupted(f"it raised {_describe(error)}") from error


def _is_running(task: asyncio.Task[Any] | None) -> bool:
    try:
        return asyncio.current_task() is task
    except RuntimeError:
        return False


def _describe(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


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
        if task.cancelled():
            if not task.cancelling():
                _log.error("%s ended with CancelledError, although no one had cancelled it", _name_of(task))
            return
        error = task.exception()
        if error is not None and not isinstance(error, self._expected):
            _log.error("%s failed", _name_of(task), exc_info=error)


def _name_of(task: asyncio.Task[Any]) -> str:
    return str(getattr(task.get_coro(), "__qualname__", task.get_name()))
