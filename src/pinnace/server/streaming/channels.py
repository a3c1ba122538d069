"""Several byte streams over one WebSocket: each message begins with the number of its channel."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable

from pinnace.server.streaming.byte_pipe import BytePipe
from pinnace.server.streaming.websocket import WebSocket, WebSocketError

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
