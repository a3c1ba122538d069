"""Drive an asynchronous client from synchronous code: an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from pinnace.client.client import Client

Answer = TypeVar("Answer")


class Driver:
    """An asynchronous client, and the thread in which its event loop runs until `close`."""

    def __init__(self, make: Callable[[], Client]) -> None:
        """`make` is called in the thread of the loop."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pinnace-sync-client", daemon=True)
        self._thread.start()
        try:
            self.client = self._call(_call_in_loop(make))
            """The asynchronous client, which belongs to the loop of the thread."""
            self._driven: Any = self.client  # Its overloads are those of the verbs, which pass all arguments on.
        except BaseException:
            self._stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def namespace(self) -> str:
        """The namespace of requests that name none."""
        return self.client.namespace

    def close(self) -> None:
        """Close the connections and end the thread. It may be called twice."""
        if self._loop.is_closed():
            return
        try:
            self._call(self.client.close())
        finally:
            self._stop()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Return the result of a coroutine that runs in the loop. An interrupt, such as Ctrl-C, cancels it."""
        if self._loop.is_closed():
            work.close()
            raise RuntimeError("the client is closed")
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("this is the thread of the client's loop: await the methods of its `client` here")
        future: Future[Answer] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _iterate(self, items: AsyncGenerator[Answer, None]) -> Generator[Answer, None, None]:
        """Yield what an asynchronous generator yields. Closing this one closes it, too."""
        try:
            while True:
                item = self._call(_next(items))
                if item is None:
                    return
                yield item[0]
        finally:
            if not self._loop.is_closed():
                self._call(_close(items))


async def _call_in_loop(make: Callable[[], Client]) -> Client:
    return make()


async def _next(items: AsyncGenerator[Answer, None]) -> tuple[Answer] | None:
    """Return the next item in a tuple; None at the end."""
    async for item in items:
        return (item,)
    return None


async def _close(items: AsyncGenerator[Any, None]) -> None:
    await items.aclose()
