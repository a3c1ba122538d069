"""gRPC over one HTTP/2 connection: unary calls and streams, many at a time, in few system calls.

Only what a gRPC client needs of HTTP/2 is here (docs/decisions/0023-etcd.md has the measurements behind it). Header
compression with a table is turned off, so that equal answers have equal header bytes, which are decoded once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import cast
from urllib.parse import unquote_to_bytes

from hpack import Decoder, HPACKError

from pinnace.store.etcd.errors import GrpcError, MemberLost

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME = Struct(">HBBBI")
_MESSAGE = Struct(">BI")
_SETTING = Struct(">HI")
_WINDOW = (1 << 31) - 1
_GIVE_BACK = 1 << 28
"""After how many received bytes the peer may send as many again."""
_FIRST_WINDOW = 65535
_MAX_FRAME = 16384
"""Every peer takes frames of this size. Larger ones would need more of its windows at once than it may ever grant."""
_MOST_HEADERS = 4096
"""How many different header blocks are remembered."""

SWEEP_SECONDS = 0.25
PING_SECONDS = 6.0
"""A connection that is silent for this long is tested. etcd refuses clients that ask more often than every 5 s."""
PING_ANSWER_SECONDS = 4.0


class _Frame(IntEnum):
    DATA = 0
    HEADERS = 1
    RST_STREAM = 3
    SETTINGS = 4
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


_END_STREAM, _ACK, _END_HEADERS, _PADDED, _PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
_CANCEL = 8
_UNAVAILABLE, _DEADLINE, _UNKNOWN, _INTERNAL = 14, 4, 2, 13

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
    """One connection. It is good until `on_lost` is called; then every open call has ended with MemberLost."""

    def __init__(
        self, authority: str, *, is_tls: bool, on_lost: Callable[[], None], headers: bytes = b"", pings: bool = True
    ) -> None:
        """`headers` are literals for each call. `pings` tests a silent connection; servers in Go refuse that."""
        self._authority = authority.encode()
        self._headers = headers
        self._pings = pings
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
        self._window = _FIRST_WINDOW
        self._first_credit = _FIRST_WINDOW
        self._received = 0
        self._heard = self._loop.time()
        self._pinged: float | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self.error: Exception | None = None
        """The reason why the connection takes no new calls."""

    # Calls.

    def unary(self, path: bytes, message: bytes, *, token: bytes = b"", seconds: float) -> asyncio.Future[bytes]:
        """Send one message and return the future of the answer: GrpcError, or MemberLost with its outcome open."""
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
                answer.set_exception(GrpcError(_INTERNAL, "the answer has no message"))

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

    def cancel(self, call: GrpcCall) -> None:
        """End a call without its answer; `on_end` is not called."""
        if self._calls.pop(call.stream, None) is not None:
            self._forget_blocked(call.stream)
            self._write(_frame(_Frame.RST_STREAM, 0, call.stream, _CANCEL.to_bytes(4, "big")))

    def close(self, error: Exception | None = None) -> None:
        """Close the connection and end every call."""
        self._lose(error or MemberLost("the connection was closed"))

    # asyncio.Protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # That of uvloop is not one by its class.
        settings = b"".join(_SETTING.pack(*setting) for setting in ((1, 0), (2, 0), (4, _WINDOW), (5, 1 << 20)))
        grant = (_WINDOW - _FIRST_WINDOW).to_bytes(4, "big")
        transport.write(_PREFACE + _frame(_Frame.SETTINGS, 0, 0, settings) + _frame(_Frame.WINDOW_UPDATE, 0, 0, grant))
        self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(MemberLost(f"the connection was lost ({exc or 'closed by the peer'})"))

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        self._pinged = None
        buffer = self._buffer + data if self._buffer else data
        at, end = 0, len(buffer)
        try:
            while end - at >= 9:
                high, low, kind, flags, stream = _FRAME.unpack_from(buffer, at)
                stop = at + 9 + (high << 8 | low)
                if stop > end:
                    break
                self._receive(kind, flags, stream & _WINDOW, buffer[at + 9 : stop])
                at = stop
        except (HPACKError, IndexError, ValueError) as error:
            self._lose(MemberLost(f"the peer does not speak HTTP/2 ({error!r}); check the endpoint"))
            return
        self._buffer = buffer[at:]

    # Sending.

    def _begin(self, call: GrpcCall, path: bytes, token: bytes) -> None:
        if self.error is not None:
            raise MemberLost(str(self.error))
        call.stream = stream = self._next_stream
        self._next_stream += 2
        if self._next_stream >= _WINDOW:
            self.error = MemberLost("the connection has no stream numbers left")
        call.credit = self._first_credit
        self._calls[stream] = call
        head = self._heads.get((path, token))
        if head is None:
            head = self._heads[path, token] = self._encode_head(path, token)
        self._write(_frame(_Frame.HEADERS, _END_HEADERS, stream, head))

    def _encode_head(self, path: bytes, token: bytes) -> bytes:
        scheme = b"\x87" if self._is_tls else b"\x86"
        head = b"\x83" + scheme + b"\x04" + _text(path) + b"\x01" + _text(self._authority)
        head += b"\x0f\x10" + _text(b"application/grpc") + literal(b"te", b"trailers")
        return head + self._headers + (literal(b"token", token) if token else b"")

    def _send(self, call: GrpcCall, message: bytes, *, is_last: bool) -> None:
        data = _MESSAGE.pack(0, len(message)) + message
        flags = _END_STREAM if is_last else 0
        size = len(data)
        if size <= self._window and size <= call.credit and size <= _MAX_FRAME and not self._blocked:
            self._window -= size
            call.credit -= size
            self._write(_frame(_Frame.DATA, flags, call.stream, data))
            return
        for at in range(0, size, _MAX_FRAME):
            piece = data[at : at + _MAX_FRAME]
            is_end = is_last and at + _MAX_FRAME >= size
            self._blocked.append((call.stream, _frame(_Frame.DATA, _END_STREAM if is_end else 0, call.stream, piece)))
        self._send_blocked()

    def _send_blocked(self) -> None:
        """Send what the windows allow. The pieces of one stream keep their order."""
        left: list[tuple[int, bytes]] = []
        stuck: set[int] = set()
        for stream, frame in self._blocked:
            call = self._calls.get(stream)
            size = len(frame) - 9
            if call is None:
                continue
            if stream in stuck or size > self._window or size > call.credit:
                stuck.add(stream)
                left.append((stream, frame))
                continue
            self._window -= size
            call.credit -= size
            self._write(frame)
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
        if kind == _Frame.DATA:
            self._receive_data(flags, stream, payload)
        elif kind == _Frame.HEADERS:
            if flags & (_PADDED | _PRIORITY):
                payload = _unpad(payload, flags)
            self._receive_headers(flags, stream, payload)
        elif kind == _Frame.WINDOW_UPDATE:
            self._enlarge(stream, int.from_bytes(payload, "big") & _WINDOW)
        elif kind == _Frame.PING:
            if not flags & _ACK:
                self._write(_frame(_Frame.PING, _ACK, 0, payload))
        else:
            self._receive_rare(kind, flags, stream, payload)

    def _receive_rare(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        """Take a frame of a kind that most calls do not have."""
        if kind == _Frame.CONTINUATION and self._partial is not None:
            first, head_flags, begun = self._partial
            self._receive_headers(head_flags | flags & _END_HEADERS, first, begun + payload)
        elif kind == _Frame.SETTINGS and not flags & _ACK:
            self._adopt(payload)
        elif kind == _Frame.RST_STREAM:
            code = int.from_bytes(payload, "big")
            self._end(stream, GrpcError(_UNAVAILABLE, f"the peer ended the call (HTTP/2 error {code})"))
        elif kind == _Frame.GOAWAY:
            self.error = self.error or MemberLost("the peer takes no more calls on this connection")
            last = int.from_bytes(payload[:4], "big") & _WINDOW
            for number in [number for number in self._calls if number > last]:
                self._end(number, MemberLost("the peer did not begin the call"))

    def _receive_data(self, flags: int, stream: int, payload: bytes) -> None:
        size = len(payload)
        self._received += size
        if self._received >= _GIVE_BACK:
            self._write(_frame(_Frame.WINDOW_UPDATE, 0, 0, self._received.to_bytes(4, "big")))
            self._received = 0
        call = self._calls.get(stream)
        if call is None:
            return
        call.received += size
        if call.received >= _GIVE_BACK:
            self._write(_frame(_Frame.WINDOW_UPDATE, 0, stream, call.received.to_bytes(4, "big")))
            call.received = 0
        data = _unpad(payload, flags) if flags & _PADDED else payload
        if call.buffer:
            call.buffer += data
            if len(call.buffer) >= call.needed:
                data, call.buffer = bytes(call.buffer), bytearray()
                self._take_messages(call, data)
        else:
            self._take_messages(call, data)
        if flags & _END_STREAM:
            self._end(stream, GrpcError(_UNKNOWN, "the answer has no status"))

    def _take_messages(self, call: GrpcCall, data: bytes) -> None:
        """Hand over the whole messages in the data, and keep the rest."""
        at, end = 0, len(data)
        call.needed = 5
        while end - at >= 5:
            is_compressed, length = _MESSAGE.unpack_from(data, at)
            if is_compressed:
                self._end(call.stream, GrpcError(_INTERNAL, "the answer is compressed"))
                return
            if end - at - 5 < length:
                call.needed = 5 + length
                break
            call.on_message(data[at + 5 : at + 5 + length])
            at += 5 + length
        if at < end:
            call.buffer += data[at:]

    def _receive_headers(self, flags: int, stream: int, block: bytes) -> None:
        if not flags & _END_HEADERS:
            self._partial = (stream, flags, block)
            return
        self._partial = None
        headers = self._known_headers.get(block)
        if headers is None:
            headers = {str(name): str(value) for name, value in self._decoder.decode(block)}
            if len(self._known_headers) < _MOST_HEADERS:
                self._known_headers[block] = headers
        if flags & _END_STREAM:
            self._end(stream, _error_in(headers))

    def _adopt(self, payload: bytes) -> None:
        for at in range(0, len(payload), 6):
            name, value = _SETTING.unpack_from(payload, at)
            if name == 4:
                for call in self._calls.values():
                    call.credit += value - self._first_credit
                self._first_credit = value
        self._write(_frame(_Frame.SETTINGS, _ACK, 0, b""))
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
            self._write(_frame(_Frame.RST_STREAM, 0, stream, _CANCEL.to_bytes(4, "big")))
            self._end(stream, GrpcError(_DEADLINE, "no answer in time"))
        if self._pinged is not None and now - self._pinged > PING_ANSWER_SECONDS:
            self._lose(MemberLost("the peer is silent"))
            return
        if self._pings and self._pinged is None and now - self._heard > PING_SECONDS:
            self._pinged = now
            self._write(_frame(_Frame.PING, 0, 0, b"pinnace\0"))
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
            call.on_end(MemberLost(str(error)))
        self._on_lost()


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    size = len(payload)
    return _FRAME.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def _text(value: bytes) -> bytes:
    """Encode a header text, not compressed."""
    size = len(value)
    if size < 127:
        return bytes((size,)) + value
    size -= 127
    encoded = bytearray((127,))
    while size >= 128:
        encoded.append(size & 0x7F | 0x80)
        size >>= 7
    encoded.append(size)
    return bytes(encoded) + value


def literal(name: bytes, value: bytes) -> bytes:
    """Encode a header that no table holds."""
    return b"\x00" + _text(name) + _text(value)


def _unpad(payload: bytes, flags: int) -> bytes:
    begin = padding = 0
    if flags & _PADDED:
        padding, begin = payload[0], 1
    if flags & _PRIORITY:
        begin += 5
    return payload[begin : len(payload) - padding]


def _error_in(headers: Headers) -> GrpcError | None:
    """Return the error in the last headers of an answer; None for a good end."""
    status = headers.get("grpc-status")
    if status == "0":
        return None
    if status is None:
        return GrpcError(_UNAVAILABLE, f"HTTP status {headers.get(':status', 'unknown')} instead of a gRPC answer")
    message = unquote_to_bytes(headers.get("grpc-message", "")).decode("utf-8", "replace")
    return GrpcError(int(status), message)
