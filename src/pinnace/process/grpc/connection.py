"""gRPC over one HTTP/2 connection: unary calls and streams, many at a time, in few system calls.

Only what a gRPC client needs of HTTP/2 is here (docs/decisions/0023-etcd.md has the measurements behind it). Header
compression with a table is turned off, so that equal answers have equal header bytes, which are decoded once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import error as StructError
from typing import cast
from urllib.parse import unquote_to_bytes

from hpack import Decoder, HPACKError

from pinnace.process.grpc import frames
from pinnace.process.grpc.errors import GrpcCode, GrpcError, PeerLost
from pinnace.process.grpc.frames import (
    ACK,
    CANCEL,
    END_HEADERS,
    END_STREAM,
    PADDED,
    PRIORITY,
    FrameKind,
    Setting,
    frame,
    literal,
    unpad,
)

_GIVE_BACK = 1 << 28
"""After how many received bytes the peer may send as many again."""
_MOST_HEADERS = 4096
_MOST_KNOWN_BYTES = 1024
"""How many different header blocks are remembered, and how large they may be."""

SWEEP_SECONDS = 0.25
PING_SECONDS = 6.0
"""A connection that is silent for this long is tested. etcd refuses clients that ask more often than every 5 s."""
PING_ANSWER_SECONDS = 4.0


Headers = dict[str, str]


class GrpcCall:
    """One call. `on_message` gets each message, `on_end` the error, or None at a good end."""

    __slots__ = ("buffer", "credit", "expires", "needed", "on_end", "on_message", "received", "stream")

    def __init__(
        self, on_message: Callable[[bytes], None], on_end: Callable[[Exception | None], None], expires: float
    ) -> None:
        self.on_message = on_message
        self.on_end = on_end
        self.expires = expires
        self.stream = 0
        self.buffer = bytearray()  # The beginning of a message, of which `needed` bytes in all must come.
        self.needed = 0
        self.credit = 0  # How much the peer takes of this call.
        self.received = 0


class GrpcConnection(asyncio.Protocol):
    """One connection. It is good until `on_lost` is called; then every open call has ended with PeerLost."""

    def __init__(
        self,
        authority: str,
        *,
        is_tls: bool,
        on_lost: Callable[[], None],
        headers: bytes = b"",
        pings: bool = True,
        largest_message: int = frames.LARGEST_WINDOW,
    ) -> None:
        """`headers` are literals for each call. `pings` tests a silent connection; servers in Go refuse that."""
        self._authority = authority.encode()
        self._headers = headers
        self._pings = pings
        self._largest_message = largest_message
        self._is_tls = is_tls
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._calls: dict[int, GrpcCall] = {}
        self._heads: dict[tuple[bytes, bytes], bytes] = {}
        self._known_headers: dict[bytes, Headers] = {}
        self._decoder = Decoder()
        self._next_stream = 1
        self._buffer = b""
        self._partial: tuple[int, int, bytes] | None = None  # Headers that go on in the next frame.
        self._out: list[bytes] = []
        self._blocked: list[tuple[int, bytes]] = []  # Data that waits for a window, in order.
        self._window = frames.FIRST_WINDOW
        self._first_credit = frames.FIRST_WINDOW
        self._received = 0
        self._heard = self._loop.time()
        self._pinged: float | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self.error: Exception | None = None
        """The reason why the connection takes no new calls."""

    # Calls.

    def unary(self, path: bytes, message: bytes, *, token: bytes = b"", seconds: float) -> asyncio.Future[bytes]:
        """Send one message and return the future of the answer: GrpcError, or PeerLost with its outcome open."""
        answer: asyncio.Future[bytes] = self._loop.create_future()
        got: list[bytes] = []

        def end(error: Exception | None) -> None:
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            elif got:
                answer.set_result(got[0])
            else:
                answer.set_exception(GrpcError(GrpcCode.INTERNAL, "the answer has no message"))

        call = GrpcCall(got.append, end, self._loop.time() + seconds)
        self._begin(call, path, token)
        self._send(call, message, is_last=True)
        return answer

    def open(self, path: bytes, call: GrpcCall, *, token: bytes = b"") -> None:
        """Begin a call that sends and receives several messages."""
        self._begin(call, path, token)

    def send(self, call: GrpcCall, message: bytes) -> None:
        """Send a message of a call that is open."""
        if call.stream in self._calls:
            self._send(call, message, is_last=False)

    def send_last(self, call: GrpcCall, message: bytes) -> None:
        """Send the last message of a call that is open. Its answer may go on."""
        if call.stream in self._calls:
            self._send(call, message, is_last=True)

    def cancel(self, call: GrpcCall) -> None:
        """End a call without its answer; `on_end` is not called."""
        if self._calls.pop(call.stream, None) is not None:
            self._forget_blocked(call.stream)
            self._write(frame(FrameKind.RST_STREAM, 0, call.stream, CANCEL.to_bytes(4, "big")))

    def close(self, error: Exception | None = None) -> None:
        """Close the connection and end every call."""
        self._lose(error or PeerLost("the connection was closed"))

    # asyncio.Protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # That of uvloop is not one by its class.
        settings = frames.settings_frame(
            (Setting.HEADER_TABLE_SIZE, 0),
            (Setting.ENABLE_PUSH, 0),
            (Setting.INITIAL_WINDOW_SIZE, frames.LARGEST_WINDOW),
            (Setting.MAX_FRAME_SIZE, frames.LARGEST_RECEIVED),
        )
        grant = (frames.LARGEST_WINDOW - frames.FIRST_WINDOW).to_bytes(4, "big")
        transport.write(frames.PREFACE + settings + frame(FrameKind.WINDOW_UPDATE, 0, 0, grant))
        self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(PeerLost(f"the connection was lost ({exc or 'closed by the peer'})"))

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        self._pinged = None
        buffer = self._buffer + data if self._buffer else data
        at, end = 0, len(buffer)
        try:
            while end - at >= 9:
                high, low, kind, flags, stream = frames.HEAD.unpack_from(buffer, at)
                size = high << 8 | low
                if size > frames.LARGEST_RECEIVED:
                    raise frames.ProtocolFailed(f"a frame has {size} bytes")
                stop = at + 9 + size
                if stop > end:
                    break
                self._receive(kind, flags, stream & frames.LARGEST_WINDOW, buffer[at + 9 : stop])
                at = stop
            is_limited = self._largest_message < frames.LARGEST_WINDOW
            if is_limited and self._transport.get_write_buffer_size() > frames.MOST_WAITING_BYTES:
                raise frames.ProtocolFailed("it reads no answers to its frames")
        except (HPACKError, IndexError, StructError, ValueError) as error:
            self._lose(PeerLost(f"the peer does not speak HTTP/2 ({error!r}); check the endpoint"))
            return
        self._buffer = buffer[at:]

    # Sending.

    def _begin(self, call: GrpcCall, path: bytes, token: bytes) -> None:
        if self.error is not None:
            raise PeerLost(str(self.error))
        call.stream = stream = self._next_stream
        self._next_stream += 2
        if self._next_stream >= frames.LARGEST_WINDOW:
            self.error = PeerLost("the connection has no stream numbers left")
        call.credit = self._first_credit
        self._calls[stream] = call
        head = self._heads.get((path, token))
        if head is None:
            head = self._heads[path, token] = self._encode_head(path, token)
        self._write(frame(FrameKind.HEADERS, END_HEADERS, stream, head))

    def _encode_head(self, path: bytes, token: bytes) -> bytes:
        scheme = b"\x87" if self._is_tls else b"\x86"
        head = b"\x83" + scheme + b"\x04" + frames.text(path) + b"\x01" + frames.text(self._authority)
        head += b"\x0f\x10" + frames.text(b"application/grpc") + literal(b"te", b"trailers")
        return head + self._headers + (literal(b"token", token) if token else b"")

    def _send(self, call: GrpcCall, message: bytes, *, is_last: bool) -> None:
        data = frames.message_frame_data(message)
        flags = END_STREAM if is_last else 0
        size = len(data)
        if size <= self._window and size <= call.credit and size <= frames.LARGEST_SENT and not self._blocked:
            self._window -= size
            call.credit -= size
            self._write(frame(FrameKind.DATA, flags, call.stream, data))
            return
        for at in range(0, size, frames.LARGEST_SENT):
            piece = data[at : at + frames.LARGEST_SENT]
            is_end = is_last and at + frames.LARGEST_SENT >= size
            self._blocked.append((call.stream, frame(FrameKind.DATA, END_STREAM if is_end else 0, call.stream, piece)))
        self._send_blocked()

    def _send_blocked(self) -> None:
        """Send what the windows allow. The pieces of one stream keep their order."""
        left: list[tuple[int, bytes]] = []
        stuck: set[int] = set()
        for stream, piece in self._blocked:
            call = self._calls.get(stream)
            size = len(piece) - 9
            if call is None:
                continue
            if stream in stuck or size > self._window or size > call.credit:
                stuck.add(stream)
                left.append((stream, piece))
                continue
            self._window -= size
            call.credit -= size
            self._write(piece)
        self._blocked = left

    def _forget_blocked(self, stream: int) -> None:
        if self._blocked:
            self._blocked = [waiting for waiting in self._blocked if waiting[0] != stream]

    def _write(self, data: bytes) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)  # The calls of this turn of the loop go in one system call.
        self._out.append(data)

    def _flush(self) -> None:
        if self._out and not self._transport.is_closing():
            self._transport.write(b"".join(self._out))
        self._out = []

    # Receiving.

    def _receive(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == FrameKind.DATA:
            self._receive_data(flags, stream, payload)
        elif kind == FrameKind.HEADERS:
            if flags & (PADDED | PRIORITY):
                payload = unpad(payload, flags)
            self._receive_headers(flags, stream, payload)
        elif kind == FrameKind.WINDOW_UPDATE:
            self._enlarge(stream, int.from_bytes(payload, "big") & frames.LARGEST_WINDOW)
        elif kind == FrameKind.PING:
            if not flags & ACK:
                self._write(frame(FrameKind.PING, ACK, 0, payload))
        else:
            self._receive_rare(kind, flags, stream, payload)

    def _receive_rare(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        """Take a frame of a kind that most calls do not have."""
        if kind == FrameKind.CONTINUATION and self._partial is not None:
            first, head_flags, begun = self._partial
            self._receive_headers(head_flags | flags & END_HEADERS, first, begun + payload)
        elif kind == FrameKind.SETTINGS and not flags & ACK:
            self._adopt(payload)
        elif kind == FrameKind.RST_STREAM:
            code = int.from_bytes(payload, "big")
            self._end(stream, GrpcError(GrpcCode.UNAVAILABLE, f"the peer ended the call (HTTP/2 error {code})"))
        elif kind == FrameKind.GOAWAY:
            self.error = self.error or PeerLost("the peer takes no more calls on this connection")
            last = int.from_bytes(payload[:4], "big") & frames.LARGEST_WINDOW
            for number in [number for number in self._calls if number > last]:
                self._end(number, PeerLost("the peer did not begin the call"))

    def _receive_data(self, flags: int, stream: int, payload: bytes) -> None:
        size = len(payload)
        self._received += size
        if self._received >= _GIVE_BACK:
            self._write(frame(FrameKind.WINDOW_UPDATE, 0, 0, self._received.to_bytes(4, "big")))
            self._received = 0
        call = self._calls.get(stream)
        if call is None:
            return
        call.received += size
        if call.received >= _GIVE_BACK:
            self._write(frame(FrameKind.WINDOW_UPDATE, 0, stream, call.received.to_bytes(4, "big")))
            call.received = 0
        data = unpad(payload, flags) if flags & PADDED else payload
        if call.buffer:
            call.buffer += data
            if len(call.buffer) >= call.needed:
                data, call.buffer = bytes(call.buffer), bytearray()
                self._take_messages(call, data)
        else:
            self._take_messages(call, data)
        if flags & END_STREAM:
            self._end(stream, GrpcError(GrpcCode.UNKNOWN, "the answer has no status"))

    def _take_messages(self, call: GrpcCall, data: bytes) -> None:
        """Hand over the whole messages in the data, and keep the rest."""
        at, end = 0, len(data)
        call.needed = 5
        while end - at >= 5:
            is_compressed, length = frames.MESSAGE.unpack_from(data, at)
            if is_compressed:
                self._end(call.stream, GrpcError(GrpcCode.INTERNAL, "the answer is compressed"))
                return
            if length > self._largest_message:
                self._refuse(call.stream, length)
                return
            if end - at - 5 < length:
                call.needed = 5 + length
                break
            call.on_message(data[at + 5 : at + 5 + length])
            at += 5 + length
        if at < end:
            call.buffer += data[at:]

    def _refuse(self, stream: int, size: int) -> None:
        """End a call whose message is too large."""
        self._write(frame(FrameKind.RST_STREAM, 0, stream, CANCEL.to_bytes(4, "big")))
        text = f"grpc: received message larger than max ({size} vs. {self._largest_message})"
        self._end(stream, GrpcError(GrpcCode.RESOURCE_EXHAUSTED, text))

    def _receive_headers(self, flags: int, stream: int, block: bytes) -> None:
        if len(block) > frames.MOST_HEADER_BYTES:
            raise frames.ProtocolFailed("the headers are too large")
        if not flags & END_HEADERS:
            self._partial = (stream, flags, block)
            return
        self._partial = None
        headers = self._known_headers.get(block)
        if headers is None:
            headers = {str(name): str(value) for name, value in self._decoder.decode(block)}
            if len(self._known_headers) < _MOST_HEADERS and len(block) < _MOST_KNOWN_BYTES:
                self._known_headers[block] = headers
        if flags & END_STREAM:
            self._end(stream, _error_in(headers))

    def _adopt(self, payload: bytes) -> None:
        for name, value in frames.settings_in(payload):
            if name == Setting.INITIAL_WINDOW_SIZE:
                for call in self._calls.values():
                    call.credit += value - self._first_credit
                self._first_credit = value
        self._write(frame(FrameKind.SETTINGS, ACK, 0, b""))
        self._send_blocked()

    def _enlarge(self, stream: int, by: int) -> None:
        if not stream:
            self._window += by
        elif (call := self._calls.get(stream)) is not None:
            call.credit += by
        if self._blocked:
            self._send_blocked()

    # The end of calls and of the connection.

    def _end(self, stream: int, error: Exception | None) -> None:
        call = self._calls.pop(stream, None)
        if call is not None:
            self._forget_blocked(stream)
            call.on_end(error)

    def _sweep(self) -> None:
        """End the calls that are late, and test a silent connection."""
        now = self._loop.time()
        for stream in [stream for stream, call in self._calls.items() if call.expires <= now]:
            self._write(frame(FrameKind.RST_STREAM, 0, stream, CANCEL.to_bytes(4, "big")))
            self._end(stream, GrpcError(GrpcCode.DEADLINE_EXCEEDED, "no answer in time"))
        if self._pinged is not None and now - self._pinged > PING_ANSWER_SECONDS:
            self._lose(PeerLost("the peer is silent"))
            return
        if self._pings and self._pinged is None and now - self._heard > PING_SECONDS:
            self._pinged = now
            self._write(frame(FrameKind.PING, 0, 0, b"pinnace\0"))
        self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    def _lose(self, error: Exception) -> None:
        if self._sweeper is None:
            return
        self._sweeper.cancel()
        self._sweeper = None
        self.error = error
        self._transport.abort()
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.on_end(PeerLost(str(error)))
        self._on_lost()


def _error_in(headers: Headers) -> GrpcError | None:
    """Return the error in the last headers of an answer; None for a good end."""
    status = headers.get("grpc-status")
    if status == "0":
        return None
    if status is None:
        return GrpcError(
            GrpcCode.UNAVAILABLE, f"HTTP status {headers.get(':status', 'unknown')} instead of a gRPC answer"
        )
    message = unquote_to_bytes(headers.get("grpc-message", "")).decode("utf-8", "replace")
    return GrpcError(int(status), message)
