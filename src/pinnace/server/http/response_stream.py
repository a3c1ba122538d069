"""The body of a streaming response: chunks of one turn of the loop are written to the connection together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from pinnace.server.http.messages import unframe

LAST_CHUNK = b"0\r\n\r\n"

log = logging.getLogger(__name__)


class ChunkWriter(Protocol):
    """The connection of a stream."""

    @property
    def buffered(self) -> int: ...
    def write_chunks(self, chunks: list[bytes]) -> None: ...
    async def drain(self) -> None: ...


class WriteCoalescer:
    """Flushes streams at the end of a turn of the loop, so that a burst of events is one write per client."""

    __slots__ = ("_loop", "_pending")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pending: list[ChunkedStream] = []

    def add(self, stream: ChunkedStream) -> None:
        if not self._pending:
            self._loop.call_soon(self._flush)
        self._pending.append(stream)

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        for stream in pending:
            stream.flush()


class ChunkedStream:
    """The `ResponseStream` that writes chunks to a connection."""

    __slots__ = ("_callbacks", "_chunks", "_closed", "_coalescer", "_pending", "_pending_size", "_writer")

    def __init__(self, writer: ChunkWriter, coalescer: WriteCoalescer, *, chunks: bool) -> None:
        self._writer = writer
        self._coalescer = coalescer
        self._chunks = chunks
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._closed = False
        self._callbacks: list[Callable[[], object]] = []

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def buffered(self) -> int:
        return 0 if self._closed else self._pending_size + self._writer.buffered

    def write(self, chunk: bytes) -> None:
        if self._closed or not chunk:
            return
        if not self._chunks:
            chunk = unframe(chunk)
        if not self._pending:
            self._coalescer.add(self)
        self._pending.append(chunk)
        self._pending_size += len(chunk)

    def flush(self) -> None:
        """Write the chunks of this turn of the loop to the connection."""
        if self._pending:
            pending, self._pending, self._pending_size = self._pending, [], 0
            self._writer.write_chunks(pending)

    async def drain(self) -> None:
        self.flush()
        if not self._closed:
            await self._writer.drain()

    def on_close(self, callback: Callable[[], object]) -> None:
        if self._closed:
            callback()
        else:
            self._callbacks.append(callback)

    def finish(self) -> None:
        if self._closed:
            return
        self.flush()
        if self._chunks:
            self._writer.write_chunks([LAST_CHUNK])
        self.abandon()

    def abandon(self) -> None:
        """Close without the last chunk: nothing more can be written."""
        if self._closed:
            return
        self._closed = True
        self._pending, self._pending_size = [], 0
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception as error:
                log.error("a stream's callback failed", exc_info=error)
