"""SPDY/3.1 sessions: many byte streams over one connection, for either side of it.

There is no flow control by windows: Kubernetes' clients and kubelets neither send nor respect them. As there, a stream
whose reader is slow blocks the other streams of its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from pinnace.process.byte_streams import Duplex
from pinnace.server.streaming import spdy_frames as frames
from pinnace.server.streaming.channels import BytePipe
from pinnace.server.streaming.spdy_frames import SpdyError

_PIECE = 64 * 1024
_MOST_STREAMS = 1000
OPEN_SECONDS = 30.0
"""How long the peer may take to accept a stream that we open."""


class SpdyStream:
    """A `ByteReader` and a `ByteWriter`, either of which may end before the other."""

    def __init__(self, session: SpdySession, number: int, headers: Mapping[str, str]) -> None:
        self.number = number
        self.headers = headers
        self.pipe = BytePipe()
        self.replied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.replied.add_done_callback(_retrieve_error)
        self._session = session
        self._is_finished = False

    async def read(self, n: int, /) -> bytes:
        return await self.pipe.read(n)

    def write(self, data: bytes, /) -> None:
        if data and not self._is_finished:
            self._session.send_data(self.number, data)

    async def drain(self) -> None:
        if self._is_finished:
            raise ConnectionError("the stream was closed")
        await self._session.drain()

    def write_eof(self) -> None:
        if not self._is_finished:
            self._is_finished = True
            self._session.send_data(self.number, b"", flags=frames.FIN)

    def close(self) -> None:
        """Stop sending and reading."""
        self.write_eof()
        self.pipe.discard()
        self._session.forget(self)

    def reset(self) -> None:
        """End both directions at once."""
        if not self._is_finished:
            self._is_finished = True
            self._session.send_reset(self.number, frames.CANCEL)
        self.pipe.discard()
        self._session.forget(self)

    def abandon(self, error: ConnectionError | None) -> None:
        """End both directions: the peer has reset the stream, or the connection is lost."""
        self._is_finished = True
        self.pipe.end(error)
        if not self.replied.done():
            self.replied.set_exception(error or ConnectionResetError("the stream was refused"))


class SpdySession:
    """`run` reads frames until the connection ends, and calls `on_stream` for each stream that the peer opens.

    `on_stream` refuses a stream by raising ValueError. It must not write to the stream before it returns: the peer
    discards data that arrives before the reply to the opening.
    """

    def __init__(
        self, connection: Duplex, on_stream: Callable[[SpdyStream], None] | None = None, *, is_client: bool = False
    ) -> None:
        self._reader, self._writer = connection
        self._on_stream = on_stream
        self._next = 1 if is_client else 2
        self._last = 0
        self._pings = self._next
        self._streams: dict[int, SpdyStream] = {}
        self._packer = frames.HeaderPacker()
        self._unpacker = frames.HeaderUnpacker()
        self._buffer = b""
        self._is_lost = False

    async def run(self) -> None:
        """Return when the peer closes. Raise ConnectionError, of which SpdyError is one."""
        error: ConnectionError | None = None
        try:
            await self._read()
        except OSError as lost:
            error = lost if isinstance(lost, ConnectionError) else ConnectionError(str(lost))
            raise error from None
        finally:
            self._is_lost = True
            for stream in list(self._streams.values()):
                stream.abandon(error)
                stream.pipe.end(error)
            self._streams.clear()

    async def open(self, headers: Mapping[str, str]) -> SpdyStream:
        """Open a stream, and return it when the peer has accepted it. Raise ConnectionError."""
        if self._is_lost:
            raise ConnectionError("the connection was closed")
        stream = SpdyStream(self, self._next, headers)
        self._next += 2
        self._streams[stream.number] = stream
        self._writer.write(frames.syn_stream(stream.number, self._packer.pack(headers)))
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                await stream.replied
        except TimeoutError:
            self.forget(stream)
            raise ConnectionError("no answer to the opening of a stream") from None
        return stream

    def ping(self) -> None:
        self._write(frames.ping(self._pings))

    def close(self) -> None:
        """Send GOAWAY and close the connection."""
        self._write(frames.goaway(self._last))
        self._writer.close()

    def forget(self, stream: SpdyStream) -> None:
        self._streams.pop(stream.number, None)

    def send_data(self, number: int, data: bytes, *, flags: int = 0) -> None:
        for start in range(0, len(data) or 1, frames.LARGEST_DATA):
            self._write(frames.data(number, data[start : start + frames.LARGEST_DATA], flags=flags))

    def send_reset(self, number: int, status: int) -> None:
        self._write(frames.rst_stream(number, status))

    async def drain(self) -> None:
        await self._writer.drain()

    def _write(self, frame: bytes) -> None:
        if not self._is_lost:
            self._writer.write(frame)

    # Reading.

    async def _read(self) -> None:
        while head := await self._take(frames.HEAD, may_end=True):
            kind, number, flags, size = frames.head_of(head)
            if kind:
                body = await self._take(size) if size else b""
                if not await self._control(kind, flags, body):
                    return
            else:
                await self._data(number, flags, size)

    async def _data(self, number: int, flags: int, size: int) -> None:
        """Feed the data piece by piece: a frame may be 16 MiB long."""
        stream = self._streams.get(number)
        while size:
            piece = await self._some(min(size, _PIECE))
            size -= len(piece)
            if stream is not None:
                await stream.pipe.feed(piece)
        if stream is not None and flags & frames.FIN:
            stream.pipe.end()

    async def _control(self, kind: int, flags: int, body: bytes) -> bool:
        """Handle a control frame. Return False for GOAWAY."""
        match kind:
            case frames.SYN_STREAM:
                self._accept_stream(frames.number_of(body), flags, self._unpacker.unpack(body[10:]))
                await self.drain()
            case frames.SYN_REPLY:
                stream = self._streams.get(frames.number_of(body))
                self._unpacker.unpack(body[4:])
                if stream is not None and not stream.replied.done():
                    stream.replied.set_result(None)
                if stream is not None and flags & frames.FIN:
                    stream.pipe.end()
            case frames.HEADERS:
                self._unpacker.unpack(body[4:])  # Unused, but later headers are compressed relative to them.
            case frames.RST_STREAM:
                stream = self._streams.pop(frames.number_of(body), None)
                if stream is not None:
                    stream.abandon(None)
            case frames.PING:
                if frames.number_of(body) % 2 != self._pings % 2:
                    self._write(frames.ping(frames.number_of(body)))
                    await self.drain()
            case frames.GOAWAY:
                return False
            case frames.SETTINGS | frames.WINDOW_UPDATE:
                pass
            case _:
                raise SpdyError(f"unknown control frame of type {kind}")
        return True

    def _accept_stream(self, number: int, flags: int, headers: dict[str, str]) -> None:
        if number <= self._last or number % 2 == self._next % 2:
            raise SpdyError(f"expected a new stream number of the peer's parity, found {number}")
        self._last = number
        stream = SpdyStream(self, number, headers)
        if self._on_stream is None or len(self._streams) >= _MOST_STREAMS:
            self.send_reset(number, frames.REFUSED_STREAM)
            return
        if flags & frames.FIN:
            stream.pipe.end()
        self._streams[number] = stream
        try:
            self._on_stream(stream)
        except ValueError:
            stream.reset()
        else:
            self._write(frames.syn_reply(number, self._packer.pack({})))

    async def _take(self, size: int, *, may_end: bool = False) -> bytes:
        parts: list[bytes] = []
        held = 0
        while held < size:
            piece = self._buffer or await self._reader.read(_PIECE)
            if not piece:
                if may_end and not held:
                    return b""
                raise SpdyError("the connection ended within a frame")
            self._buffer = piece[size - held :]
            parts.append(piece[: size - held])
            held += len(parts[-1])
        return b"".join(parts)

    async def _some(self, most: int) -> bytes:
        piece = self._buffer or await self._reader.read(_PIECE)
        if not piece:
            raise SpdyError("the connection ended within a frame")
        self._buffer = piece[most:]
        return piece[:most]


def _retrieve_error(replied: asyncio.Future[None]) -> None:
    """Mark the error as retrieved: no task awaits the reply to a stream that the peer has opened."""
    if not replied.cancelled():
        replied.exception()
