"""Many byte streams over one connection, as SPDY/3.1 has them, for either side of it.

Nobody counts windows here: Kubernetes' clients and kubelets neither send nor heed them. A stream whose reader is slow
holds up the others of its connection, as it does with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from pinnace.model.byte_streams import Duplex
from pinnace.server.streaming import spdy_frames as frames
from pinnace.server.streaming.byte_pipe import BytePipe
from pinnace.server.streaming.spdy_frames import SpdyError

_PIECE = 64 * 1024
_MOST_STREAMS = 1000
OPEN_SECONDS = 30.0
"""How long the other side may take to answer for a stream that we open."""


class SpdyStream:
    """A `ByteReader` and a `ByteWriter`, either of which may end before the other."""

    def __init__(self, session: SpdySession, number: int, headers: Mapping[str, str]) -> None:
        self.number = number
        self.headers = headers
        self.pipe = BytePipe()
        self.replied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.replied.add_done_callback(_seen)
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
        """Send no more, and read no more."""
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

    def lost(self, error: ConnectionError | None) -> None:
        """The other side has ended both directions, or the connection is gone."""
        self._is_finished = True
        self.pipe.end(error)
        if not self.replied.done():
            self.replied.set_exception(error or ConnectionResetError("the stream was refused"))


class SpdySession:
    """`run` reads what comes, until the connection ends; `arrived` is told of each stream that the other side opens.

    It refuses one by raising ValueError, and writes to none before it has returned: data would be thrown away that
    comes before the answer to the opening.
    """

    def __init__(
        self, connection: Duplex, arrived: Callable[[SpdyStream], None] | None = None, *, is_client: bool = False
    ) -> None:
        self._reader, self._writer = connection
        self._arrived = arrived
        self._next = 1 if is_client else 2
        self._last = 0
        self._pings = self._next
        self._streams: dict[int, SpdyStream] = {}
        self._packer = frames.HeaderPacker()
        self._unpacker = frames.HeaderUnpacker()
        self._buffer = b""
        self._is_lost = False

    async def run(self) -> None:
        """Returns when the other side closes. Raises ConnectionError if that is sudden or it speaks no SPDY."""
        error: ConnectionError | None = None
        try:
            await self._read()
        except OSError as lost:
            error = lost if isinstance(lost, ConnectionError) else ConnectionError(str(lost))
            raise error from None
        finally:
            self._is_lost = True
            for stream in list(self._streams.values()):
                stream.lost(error)
                stream.pipe.end(error)
            self._streams.clear()

    async def open(self, headers: Mapping[str, str]) -> SpdyStream:
        """A new stream, when the other side has agreed to it. Raises ConnectionError."""
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
        """Say that no more streams are taken, and end."""
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

    # What comes.

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
        """Handed on as it comes: a frame may be 16 MiB long."""
        stream = self._streams.get(number)
        while size:
            piece = await self._some(min(size, _PIECE))
            size -= len(piece)
            if stream is not None:
                await stream.pipe.feed(piece)
        if stream is not None and flags & frames.FIN:
            stream.pipe.end()

    async def _control(self, kind: int, flags: int, body: bytes) -> bool:
        """False if the other side goes away."""
        match kind:
            case frames.SYN_STREAM:
                self._opened(frames.number_of(body), flags, self._unpacker.unpack(body[10:]))
                await self.drain()
            case frames.SYN_REPLY:
                stream = self._streams.get(frames.number_of(body))
                self._unpacker.unpack(body[4:])
                if stream is not None and not stream.replied.done():
                    stream.replied.set_result(None)
                if stream is not None and flags & frames.FIN:
                    stream.pipe.end()
            case frames.HEADERS:
                self._unpacker.unpack(body[4:])  # Nothing is said in them, but the next ones build on them.
            case frames.RST_STREAM:
                stream = self._streams.pop(frames.number_of(body), None)
                if stream is not None:
                    stream.lost(None)
            case frames.PING:
                if frames.number_of(body) % 2 != self._pings % 2:
                    self._write(frames.ping(frames.number_of(body)))
                    await self.drain()
            case frames.GOAWAY:
                return False
            case frames.SETTINGS | frames.WINDOW_UPDATE:
                pass
            case _:
                raise SpdyError(f"a frame of the unknown kind {kind}")
        return True

    def _opened(self, number: int, flags: int, headers: dict[str, str]) -> None:
        if number <= self._last or number % 2 == self._next % 2:
            raise SpdyError(f"stream {number} cannot be opened")
        self._last = number
        stream = SpdyStream(self, number, headers)
        if self._arrived is None or len(self._streams) >= _MOST_STREAMS:
            self.send_reset(number, frames.REFUSED_STREAM)
            return
        if flags & frames.FIN:
            stream.pipe.end()
        self._streams[number] = stream
        try:
            self._arrived(stream)
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


def _seen(replied: asyncio.Future[None]) -> None:
    """Nobody waits for the answer to a stream that the other side has opened."""
    if not replied.cancelled():
        replied.exception()
