"""What waits to be written to one client: handed over slice by slice, no faster than the client takes it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from pinnace.server.http.tls import RECORD

SLICE = 2 * 1024 * 1024
"""The most that is handed over at once: about a millisecond's work, for which others wait."""
LARGE = 64 * 1024
"""What is so large is not copied to be sent with what is small, but for what fills a record of TLS."""
TURN = 2 * SLICE
"""What is handed over, to one client or to all together, before others get their turn."""


class HeldResponse(Protocol):
    """A connection with an answer that is held back."""

    def release(self) -> int:
        """Send it; how much that was."""


class LargeResponseQueue:
    """Holds large answers back until all those have been heard who have asked meanwhile.

    Who wants little need not wait until megabytes are encrypted for others. And it is cheaper: what the requests of
    many clients need is in the caches when it is needed again, from which a large answer drives it.
    """

    __slots__ = ("_held", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._held: deque[HeldResponse] = deque()

    def hold(self, connection: HeldResponse) -> None:
        if not self._held:
            self._loop.call_soon(self._end)
        self._held.append(connection)

    def _end(self) -> None:
        given = 0
        try:
            while self._held and given < TURN:
                given += self._held.popleft().release()
        finally:  # Whatever is wrong with one of them, the others have waited long enough.
            if self._held:
                self._loop.call_soon(self._end)


class OutputQueue:
    """Paces writes to a transport. What waits here is neither copied nor encrypted, and shared with other clients."""

    __slots__ = ("_closed", "_go_on", "_is_held", "_pieces", "_size", "_transport", "_waiters", "is_paused")

    def __init__(self, transport: asyncio.Transport, go_on: Callable[[], None]) -> None:
        """`go_on` is called when others have had their turn, and is to call `resume`."""
        self._transport = transport
        self._go_on = go_on
        self._pieces: deque[bytes | memoryview] = deque()
        self._size = 0
        self._waiters: list[asyncio.Future[None]] = []
        self._closed = False
        self._is_held = False
        self.is_paused = False
        """The socket is full, or it is the turn of others."""

    @property
    def is_waiting(self) -> bool:
        """Something was written that the transport has not been given, and will not be by the end of the round."""
        return bool(self._pieces) and not self._is_held

    @property
    def is_free(self) -> bool:
        """What is written now goes out at once."""
        return not self._pieces and not self.is_paused

    @property
    def buffered(self) -> int:
        """Bytes written that the socket has not taken."""
        return 0 if self._closed else self._size + self._transport.get_write_buffer_size()

    @property
    def left(self) -> tuple[int, object]:
        """Another one as soon as the client has taken something of what the transport was given."""
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

    def hold(self, small: bytes, large: bytes) -> bool:
        """Write both later, when `release` is called; False if they go out behind what waits already."""
        if self._closed:
            return False
        is_first = self.is_free
        self._is_held = is_first or self._is_held
        self._pieces += (small, large)
        self._size += len(small) + len(large)
        return is_first

    def release(self) -> int:
        """Hand over what is held; how much it was."""
        pieces, size = self._pieces, self._size
        self._is_held = False
        if self.is_paused or self._closed:
            return 0
        if len(pieces) == 2 and size <= SLICE:
            small, large = pieces
            pieces.clear()
            self._size = 0
            # What is small takes as much of what is large as fills a record of TLS.
            view, taken = memoryview(large), -len(small) % RECORD
            self._transport.write(b"".join((small, view[:taken])))
            self.write(view[taken:])
        else:
            self._pump()
        if self.is_free:
            self._wake()
        return size - self._size

    def resume(self) -> bool:
        """The socket has room again: go on. True if everything is written then."""
        self.is_paused = False
        self._pump()
        if self.is_free:
            self._wake()
            return True
        return False

    async def drain(self) -> None:
        """Return when the socket has taken everything, or nothing more can be written."""
        if not self.is_free and not self._closed:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def stop(self) -> None:
        """Take no more. What waits goes out yet, as far as the connection lasts."""
        self._closed = True

    def drop(self) -> None:
        """The connection is lost, and all that waited with it."""
        self._closed = True
        self._pieces.clear()
        self._size = 0
        self._wake()

    def _pump(self) -> None:
        """Hand slices to the transport until it has had enough, or had its turn."""
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
                if is_large:
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
