"""The body of an endless response, for a reader in this process: a client of the server, or another HTTP library."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

from pinnace.model.objects import ObjectEvent
from pinnace.process.tasks import Tasks
from pinnace.serving.messages import StreamingResponse, unframe

log = logging.getLogger(__name__)


class LocalStream:
    """A response stream whose reader is in this process. Iterate over it, and close it when done."""

    def __init__(self, stream: StreamingResponse) -> None:
        self.status = stream.status
        self._chunks: asyncio.Queue[bytes | ObjectEvent | None] = asyncio.Queue()
        self._callbacks: list[Callable[[], None]] = []
        self._buffered = 0
        self._taken = asyncio.Event()
        self._closed = False
        self._error: Exception | None = None
        self._tasks = Tasks()
        started = stream.start(self)
        if started is not None:
            self._tasks.start(self._finish(started))

    async def _finish(self, work: Awaitable[None]) -> None:
        """Await the coroutine of a stream, then end the stream."""
        try:
            await work
        except Exception as error:
            log.error("a stream failed", exc_info=error)
            self._error = error
        self.finish()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self.parts():
            assert isinstance(chunk, bytes), "only a LocalWatch has events that are not framed"
            yield chunk
            del chunk  # It may be large, and the next one may be long in coming.

    async def parts(self) -> AsyncGenerator[bytes | ObjectEvent, None]:
        """Yield chunks, and the events of a `LocalWatch`."""
        while (part := await self._chunks.get()) is not None:
            self._buffered -= len(part.body) if isinstance(part, ObjectEvent) else len(part)
            self._taken.set()
            yield part
            del part
        if self._error is not None:
            raise ConnectionResetError(f"the stream broke off: {self._error}") from self._error

    # The ResponseStream interface.

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def buffered(self) -> int:
        return self._buffered

    def write(self, chunk: bytes) -> None:
        if self._closed:
            return
        data = unframe(chunk)
        if data:
            self._buffered += len(data)
            self._chunks.put_nowait(data)

    async def drain(self) -> None:
        while self._buffered and not self._closed:
            self._taken.clear()
            await self._taken.wait()

    def on_close(self, callback: Callable[[], None]) -> None:
        if self._closed:
            callback()
        else:
            self._callbacks.append(callback)

    def finish(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._taken.set()
        self._chunks.put_nowait(None)
        self._tasks.cancel()
        for callback in self._callbacks:
            callback()

    async def close(self) -> None:
        """End the stream and wait for the task that fills it."""
        self.finish()
        await self._tasks.close()


class LocalWatch(LocalStream):
    """A watch whose reader takes cached objects. Iterate over its `parts`."""

    def write_object(self, event: ObjectEvent) -> None:
        if not self._closed:
            self._buffered += len(event.body)
            self._chunks.put_nowait(event)
