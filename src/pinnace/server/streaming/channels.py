"""Several byte streams over one WebSocket: each message begins with the number of its channel."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections import deque
from collections.abc import Iterable

from pinnace.server.streaming.websocket import WebSocket, WebSocketError

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


CLOSE_SIGNAL = 255
_LARGEST_PIECE = 256 * 1024


class Channels:
    """`run` feeds received data to the pipes of the channels that are read; other data is discarded."""

    def __init__(self, socket: WebSocket, read: Iterable[int], *, is_base64: bool = False, half_closes: bool = False):
        self._socket = socket
        self._is_base64 = is_base64
        self._half_closes = half_closes
        self.pipes = {number: BytePipe() for number in read}

    def writer(self, number: int) -> ChannelWriter:
        return ChannelWriter(self, number)

    async def run(self) -> None:
        """Return when the client closes. Raise ConnectionError, of which WebSocketError is one."""
        error: ConnectionError | None = None
        try:
            while (message := await self._socket.receive()) is not None:
                await self._take(message)
        except WebSocketError as bad:
            error = bad
            self._socket.close(bad.code)
            raise
        except OSError as lost:
            error = lost if isinstance(lost, ConnectionError) else ConnectionError(str(lost))
            raise error from None
        finally:
            for pipe in self.pipes.values():
                pipe.end(error)

    def send(self, number: int, data: bytes) -> None:
        if self._is_base64:
            self._socket.send(b"%d" % number + base64.b64encode(data), is_text=True)
        else:
            self._socket.send(bytes((number,)) + data)

    async def drain(self) -> None:
        await self._socket.drain()

    def close(self, code: int) -> None:
        self._socket.close(code)

    def ping(self) -> None:
        self._socket.ping()

    async def _take(self, message: bytes) -> None:
        if not message:
            return
        number, data = message[0], message[1:]
        if self._half_closes and number == CLOSE_SIGNAL:
            if len(data) != 1:
                raise WebSocketError(f"expected one byte, the channel to close, found {len(data)}")
            if (closed := self.pipes.get(data[0])) is not None:
                closed.end()
            return
        if self._is_base64:
            number -= ord("0")
            try:
                data = base64.b64decode(data, validate=True)
            except binascii.Error:
                return  # As Kubernetes does: ignore malformed data.
        pipe = self.pipes.get(number)
        if pipe is not None:
            await pipe.feed(data)


class ChannelWriter:
    """A `ByteWriter`. The protocol has no end of a channel: only closing the connection ends it."""

    def __init__(self, channels: Channels, number: int) -> None:
        self._channels = channels
        self._number = number

    def write(self, data: bytes, /) -> None:
        for start in range(0, len(data), _LARGEST_PIECE):
            self._channels.send(self._number, data[start : start + _LARGEST_PIECE])

    async def drain(self) -> None:
        await self._channels.drain()

    def write_eof(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
