"""Where streams write: chunks gathered over one turn of the loop, then handed to the connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from pinnace.server.http.messages import unframe

LAST_CHUNK = b"0\r\n\r\n"

log = logging.getLogger(__name__)


class ChunkWriter(Protocol):
    """What a stream needs of its connection."""

    @property
    def buffered(self) -> int: ...
    def write_chunks(self, chunks: list[bytes]) -> None: ...
    async def drain(self) -> None: ...


class WriteCoalescer:
    """Gathers what streams write in one turn of the loop, so that a burst of events is one write per client."""

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
    """The `Sink` that writes a stream's chunks to its connection."""

    __slots__ = ("_callbacks", "_chunks", "_closed", "_coalescer", "_pending", "_pending_size", "_wire")

    def __init__(self, wire: ChunkWriter, coalescer: WriteCoalescer, *, chunks: bool) -> None:
        self._wire = wire
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
        return 0 if self._closed else self._pending_size + self._wire.buffered

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
        """Pass on what was written in this turn of the loop."""
        if self._pending:
            pending, self._pending, self._pending_size = self._pending, [], 0
            self._wire.write_chunks(pending)

    async def drain(self) -> None:
        self.flush()
        if not self._closed:
            await self._wire.drain()

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
            self._wire.write_chunks([LAST_CHUNK])
        self.lost()

    def lost(self) -> None:
        """Nothing more can be written."""
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
