"""Threads for `def` handlers, so that one that blocks delays neither the event loop nor other objects."""

from __future__ import annotations

import asyncio
import linecache
import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from pinnace.process.thread_stacks import stacks_of_threads

MAX_THREADS = 32


@dataclass(frozen=True, slots=True)
class _Call:
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    context: Context
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class HandlerThreads:
    """At most `most` threads, started when they are needed. Further calls wait for a free one.

    They are daemon threads: a handler that never returns does not keep the process alive.
    """

    def __init__(self, most: int = MAX_THREADS, *, name: str = "handler") -> None:
        if most < 1:
            raise ValueError(f"max_threads={most}: `def` handlers need at least one thread")
        self._most = most
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        self._running: dict[int, str] = {}
        """The function that each busy thread runs, by the thread's number."""

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in a thread, and return its result. A cancelled call goes on in its thread."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._calls.put(_Call(function, arguments, copy_context(), loop, future))
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
            thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return await future

    @property
    def running(self) -> list[str]:
        """The functions that run now, each with the line at which it is."""
        stacks = stacks_of_threads()
        handlers = []
        for number, name in list(self._running.items()):
            own = next((frame for frame in reversed(stacks.get(number, ())) if frame.function == name), None)
            handlers.append(
                f"{name} at {own.file}:{own.line}: {linecache.getline(own.file, own.line).strip()}"
                if own is not None
                else name
            )
        return handlers

    def close(self) -> None:
        """End the threads that have no work; the others end after their call."""
        for _ in self._threads:
            self._calls.put(None)
        self._threads.clear()

    def _work(self) -> None:
        number = threading.get_ident()
        while (call := self._calls.get()) is not None:
            self._running[number] = getattr(call.function, "__name__", repr(call.function))
            try:
                result, error = call.context.run(call.function, *call.arguments), None
            except BaseException as raised:  # It belongs to the caller, as do SystemExit and KeyboardInterrupt.
                result, error = None, raised
            del self._running[number]
            self._idle.release()
            try:
                call.loop.call_soon_threadsafe(_finish, call.future, result, error)
            except RuntimeError:  # The loop is closed: the operator has stopped without waiting for this call.
                return


def _finish(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, Exception) and not isinstance(error, StopIteration):
        future.set_exception(error)
    else:
        future.set_exception(RuntimeError(f"the handler raised {error!r}"))
