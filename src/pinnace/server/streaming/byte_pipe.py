"""A bounded buffer of bytes between one task that feeds it and one that reads it."""

from __future__ import annotations

import asyncio
from collections import deque

ROOM = 256 * 1024
"""How much may be unread. One connection carries many streams, and stops while one of them is full."""


class BytePipe:
    """A `ByteReader`. One task feeds it and one task reads."""

    def __init__(self, *, room: int = ROOM) -> None:
        self._room = room
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._is_ended = False
        self._is_discarding = False
        self._error: ConnectionError | None = None
        self._arrival: asyncio.Future[None] | None = None
        self._departure: asyncio.Future[None] | None = None

    async def feed(self, data: bytes) -> None:
        """Add bytes, and return when there is room for more. After the end they are discarded."""
        if self._is_ended or self._is_discarding or not data:
            return
        self._pieces.append(data)
        self._size += len(data)
        _wake(self._arrival)
        while self._size > self._room and not self._is_discarding:
            self._departure = asyncio.get_running_loop().create_future()
            await self._departure

    def end(self, error: ConnectionError | None = None) -> None:
        """End the pipe: after the unread bytes, the reader gets the end or the error."""
        if not self._is_ended:
            self._is_ended, self._error = True, error
            _wake(self._arrival)

    def discard(self) -> None:
        """Stop reading: discard unread bytes and all that follow."""
        self._is_discarding = True
        self._pieces.clear()
        self._size = 0
        self.end()
        _wake(self._departure)

    async def read(self, n: int, /) -> bytes:
        while not self._pieces:
            if self._is_ended:
                if self._error is not None:
                    raise self._error
                return b""
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        piece = self._pieces.popleft()
        if len(piece) > n:
            self._pieces.appendleft(piece[n:])
            piece = piece[:n]
        self._size -= len(piece)
        if self._size <= self._room // 2:
            _wake(self._departure)
        return piece


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
