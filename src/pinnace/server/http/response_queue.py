"""The output of one connection: handed to the transport in slices, no faster than the client reads."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from email.utils import formatdate
from typing import Protocol, cast

from pinnace.server.http.tls_transport import RECORD
from pinnace.serving.messages import status_line, unframe

SLICE = 512 * 1024
"""The most that is written at once: about a millisecond of work."""
LARGE = 64 * 1024
"""A larger piece is not copied to be sent with small ones, except to fill a TLS record."""
JOINED = 128 * 1024
"""The most bytes of small pieces that are joined: a client that does not read holds them alone."""
TURN = 2 * SLICE
"""The most that is written, to one client or to all, before the loop handles other events."""


class LargeResponseQueue:
    """Holds large responses back until the requests that arrived meanwhile are handled.

    A small request need not wait until megabytes are encrypted for others. It is also cheaper: a large response evicts
    from the CPU's caches what the requests of many clients need.
    """

    __slots__ = ("_held", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._held: deque[Callable[[], int]] = deque()

    def hold(self, release: Callable[[], int]) -> None:
        """Call `release` later: it sends a response, and returns its size."""
        if not self._held:
            self._loop.call_soon(self._release)
        self._held.append(release)

    def _release(self) -> None:
        given = 0
        try:
            while self._held and given < TURN:
                given += self._held.popleft()()
        finally:  # Also if one of them failed.
            if self._held:
                self._loop.call_soon(self._release)


class OutputQueue:
    """Paces writes to a transport. Waiting pieces are neither copied nor encrypted, and may be shared."""

    __slots__ = ("_closed", "_go_on", "_is_held", "_pieces", "_size", "_transport", "_waiters", "is_paused")

    def __init__(self, transport: asyncio.Transport, go_on: Callable[[], None]) -> None:
        """`go_on` is called when the loop has handled other events, and must call `resume`."""
        self._transport = transport
        self._go_on = go_on
        self._pieces: deque[bytes | memoryview] = deque()
        self._size = 0
        self._waiters: list[asyncio.Future[None]] = []
        self._closed = False
        self._is_held = False
        self.is_paused = False
        """The socket is full, or other events come first."""

    @property
    def is_waiting(self) -> bool:
        """Pieces wait that the transport will not get in this turn of the loop."""
        return bool(self._pieces) and not self._is_held

    @property
    def is_free(self) -> bool:
        """A write goes to the transport at once."""
        return not self._pieces and not self.is_paused

    @property
    def buffered(self) -> int:
        """Bytes that are written and not yet sent."""
        return 0 if self._closed else self._size + self._transport.get_write_buffer_size()

    @property
    def left(self) -> tuple[int, object]:
        """A value that changes as soon as the client has read something."""
        return self._transport.get_write_buffer_size(), self._transport.get_extra_info("parts_sent")

    def write(self, data: bytes | memoryview) -> None:
        if self._closed:
            return
        if self._pieces or self.is_paused:
            self._pieces.append(data)
            self._size += len(data)
        else:
            self._transport.write(data)

    def write_all(self, pieces: list[bytes | memoryview]) -> None:
        if self._closed:
            return
        self._pieces.extend(pieces)
        self._size += sum(map(len, pieces))
        self._pump()

    def write_chunks(self, chunks: list[bytes]) -> None:
        """Write chunks of a streaming response."""
        if len(chunks) == 1 and len(chunks[0]) < LARGE:  # One event, as most are.
            self.write(chunks[0])
        else:
            self.write_all(cast("list[bytes | memoryview]", chunks))

    def hold(self, small: bytes, large: bytes) -> bool:
        """Write both pieces when `release` is called. Return False if they follow pieces that wait already."""
        if self._closed:
            return False
        is_first = self.is_free
        self._is_held = is_first or self._is_held
        self._pieces += (small, large)
        self._size += len(small) + len(large)
        return is_first

    def release(self) -> int:
        """Write the held pieces, and return their size."""
        pieces, size = self._pieces, self._size
        self._is_held = False
        if self.is_paused or self._closed:
            return 0
        if len(pieces) == 2 and size <= SLICE:
            small, large = pieces
            pieces.clear()
            self._size = 0
            # Send the small piece with enough of the large one to fill a TLS record.
            view, taken = memoryview(large), -len(small) % RECORD
            self._transport.write(b"".join((small, view[:taken])))
            self.write(view[taken:])
        else:
            self._pump()
        if self.is_free:
            self._wake()
        return size - self._size

    def resume(self) -> bool:
        """Write more, since the socket has room again. Return True if everything is written."""
        self.is_paused = False
        self._pump()
        if self.is_free:
            self._wake()
            return True
        return False

    async def drain(self) -> None:
        """Return when everything is sent, or nothing more can be written."""
        if not self.is_free and not self._closed:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def stop(self) -> None:
        """Take no more pieces. Waiting ones are still sent while the connection lasts."""
        self._closed = True

    def drop(self) -> None:
        """Drop all waiting pieces: the connection is lost."""
        self._closed = True
        self._pieces.clear()
        self._size = 0
        self._wake()

    def _pump(self) -> None:
        """Write slices until the transport is full or the turn is over."""
        pieces, given = self._pieces, 0
        self._is_held = False
        while given < TURN:
            if not pieces or self.is_paused or self._closed:
                return
            batch: list[bytes | memoryview] = []
            room = SLICE
            while pieces and room:
                piece = pieces.popleft()
                is_large = len(piece) >= LARGE
                most = (room - SLICE) % RECORD if is_large and batch else room
                if len(piece) > most:
                    view = memoryview(piece)
                    pieces.appendleft(view[most:])
                    piece = view[:most]
                batch.append(piece)
                room -= len(piece)
                if is_large or SLICE - room >= JOINED:
                    break
            given += SLICE - room
            self._size -= SLICE - room
            self._transport.write(batch[0] if len(batch) == 1 else b"".join(batch))
        if pieces and not self.is_paused:
            self.is_paused = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


LAST_CHUNK = b"0\r\n\r\n"

log = logging.getLogger(__name__)


class ChunkWriter(Protocol):
    """The output of a stream's connection."""

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


class StatusLines:
    """The first two lines of responses, status and date, made once per second."""

    __slots__ = ("_lines", "_until")

    def __init__(self) -> None:
        self._lines: dict[int, bytes] = {}
        self._until = 0.0

    def of(self, status: int) -> bytes:
        now = time.time()
        if now >= self._until or now < self._until - 1:
            self._until = float(int(now) + 1)
            self._lines.clear()
        lines = self._lines.get(status)
        if lines is None:
            date = formatdate(now, usegmt=True).encode()
            lines = self._lines[status] = b"%bDate: %b\r\n" % (status_line(status), date)
        return lines
