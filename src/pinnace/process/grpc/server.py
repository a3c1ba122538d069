"""A gRPC server on a Unix socket: methods with one request, and an answer of one or of many messages.

A peer may be slow, hostile or gone: messages, headers, calls and connections have limits, a call ends with its deadline
or with its connection, and no answer waits in memory for more than the peer's window.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from struct import error as StructError
from typing import Any, cast
from urllib.parse import quote

from hpack import Decoder, HPACKError

from pinnace.process.grpc import frames
from pinnace.process.grpc.errors import GrpcCode, GrpcError
from pinnace.process.grpc.frames import FrameKind, ProtocolFailed, Setting, frame, literal
from pinnace.process.grpc.messages import MalformedMessage, Message
from pinnace.process.grpc.methods import Method, listen
from pinnace.process.tasks import Tasks, contain

Answers = Callable[[Any], Awaitable[Message]] | Callable[[Any], AsyncGenerator[Message, None]]
"""Takes a request; returns the answer, or yields the answers of a method that streams. Raises GrpcError."""

_FRAMES_IN_TURN = 100
_MOST_CALLS = 100
_MOST_CONNECTIONS = 64
_MOST_HELD = 4
"""How many requests of the largest size one connection may have under way."""
_MOST_RESETS = 1000
"""How many calls of one connection the peer may cancel."""
_PREFACE_SECONDS = 10.0
_LONGEST_CALL = 3600.0
_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_TIMEOUT_DIGITS = 8
_HEADERS = b"\x88" + literal(b"content-type", b"application/grpc")
"""Status 200 and the content type."""
_log = logging.getLogger(__name__)


class GrpcServer:
    """Serves `methods` within `run`, or as long as its owner holds it open."""

    def __init__(
        self,
        methods: Mapping[Method[Any, Any], Answers],
        *,
        largest_message: int = frames.DEFAULT_LARGEST_MESSAGE,
    ) -> None:
        self.methods = {method.path: (method, answers) for method, answers in methods.items()}
        self.services = {method.service for method in methods}
        self.largest_message = largest_message
        self.tasks = Tasks(expected=())
        self.connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None
        self._path = Path()
        self._inode = 0

    async def open(self, path: Path) -> None:
        """Listen on a socket of this path. Raise OSError."""
        sock = listen(path)
        self._path, self._inode = path, os.lstat(path).st_ino
        self._server = await asyncio.get_running_loop().create_unix_server(lambda: _Connection(self), sock=sock)

    async def close(self) -> None:
        """Stop listening, remove the socket unless it is that of a later server, and end all calls and connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
            with contextlib.suppress(FileNotFoundError):  # Python removes it since 3.13.
                if os.lstat(self._path).st_ino == self._inode:
                    os.unlink(self._path)
        for connection in list(self.connections):
            connection.close()
        await self.tasks.close()


class _Call:
    """One call, from its headers to the last of its answers."""

    __slots__ = ("body", "credit", "has_head", "headers", "news", "stream", "task")

    def __init__(self, stream: int, headers: Mapping[str, str], credit: int) -> None:
        self.stream = stream
        self.headers = headers
        self.body = bytearray()
        self.credit = credit
        """How many bytes the peer takes of this answer now."""
        self.news = asyncio.Event()
        self.has_head = False
        """Whether the answer has begun."""
        self.task: asyncio.Task[None] | None = None


class _Connection(asyncio.Protocol):
    def __init__(self, server: GrpcServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._decoder = Decoder()
        self._decoder.max_header_list_size = frames.MOST_HEADER_BYTES
        self._calls: dict[int, _Call] = {}
        self._buffer = b""
        self._has_preface = False
        self._partial: tuple[int, int, bytes] | None = None
        self._window = self._first_credit = frames.FIRST_WINDOW
        self._last_stream = 0
        self._resets = 0
        self._held = 0
        """How many bytes of requests wait for their end."""
        self._alarm: asyncio.TimerHandle | None = None
        self._has_room = asyncio.Event()
        """Unset while the transport holds more than the peer reads: a large window lets it grant far too much."""
        self._has_room.set()
        self._sent = 0

    # asyncio.Protocol.

    def pause_writing(self) -> None:
        self._has_room.clear()

    def resume_writing(self) -> None:
        self._has_room.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if len(self._server.connections) >= _MOST_CONNECTIONS:
            self._transport.abort()
            return
        self._server.connections.add(self)
        self._alarm = self._loop.call_later(_PREFACE_SECONDS, self.close)
        settings = frames.settings_frame(
            (Setting.MAX_CONCURRENT_STREAMS, _MOST_CALLS), (Setting.INITIAL_WINDOW_SIZE, frames.LARGEST_WINDOW)
        )
        grant = (frames.LARGEST_WINDOW - frames.FIRST_WINDOW).to_bytes(4, "big")
        self._transport.write(settings + frame(FrameKind.WINDOW_UPDATE, 0, 0, grant))

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        if self._alarm is not None:
            self._alarm.cancel()
        calls, self._calls = self._calls, {}
        for call in calls.values():
            if call.task is not None:
                call.task.cancel()

    def close(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data if self._buffer else data
        at, end = 0, len(buffer)
        try:
            if not self._has_preface:
                if not frames.PREFACE.startswith(buffer[: len(frames.PREFACE)]):
                    raise ProtocolFailed("no HTTP/2")
                if end < len(frames.PREFACE):
                    self._buffer = buffer
                    return
                self._has_preface, at = True, len(frames.PREFACE)
                if self._alarm is not None:
                    self._alarm.cancel()
            while end - at >= frames.HEAD.size:
                high, low, kind, flags, stream = frames.HEAD.unpack_from(buffer, at)
                size = high << 8 | low
                if size > frames.LARGEST_SENT:
                    raise ProtocolFailed(f"a frame has {size} bytes")
                stop = at + frames.HEAD.size + size
                if stop > end:
                    break
                self._receive(kind, flags, stream & frames.LARGEST_WINDOW, buffer[at + frames.HEAD.size : stop])
                at = stop
            if self._transport.get_write_buffer_size() > frames.MOST_WAITING_BYTES:
                raise ProtocolFailed("it reads no answers")
        except (HPACKError, IndexError, StructError, ValueError) as error:
            _log.info("a connection to a gRPC server was closed: %s", error)
            self.close()
            return
        self._buffer = buffer[at:]

    # Frames.

    def _receive(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if self._partial is not None and kind != FrameKind.CONTINUATION:
            raise ProtocolFailed("headers were interrupted")
        if kind == FrameKind.DATA:
            self._receive_data(flags, stream, payload)
        elif kind == FrameKind.HEADERS:
            if flags & (frames.PADDED | frames.PRIORITY):
                payload = frames.unpad(payload, flags)
            self._receive_headers(flags, stream, payload)
        elif kind == FrameKind.CONTINUATION and self._partial is not None:
            first, head_flags, begun = self._partial
            self._receive_headers(head_flags | flags & frames.END_HEADERS, first, begun + payload)
        else:
            self._receive_control(kind, flags, stream, payload)

    def _receive_control(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == FrameKind.WINDOW_UPDATE:
            self._enlarge(stream, int.from_bytes(payload, "big") & frames.LARGEST_WINDOW)
        elif kind == FrameKind.PING:
            if not flags & frames.ACK:
                self._transport.write(frame(FrameKind.PING, frames.ACK, 0, payload[:8]))
        elif kind == FrameKind.SETTINGS:
            if not flags & frames.ACK:
                self._adopt(payload)
        elif kind == FrameKind.RST_STREAM:
            self._resets += 1
            if self._resets > _MOST_RESETS:
                raise ProtocolFailed("it cancels too many calls")
            self._drop(stream)

    def _receive_headers(self, flags: int, stream: int, block: bytes) -> None:
        if len(block) > frames.MOST_HEADER_BYTES:
            raise ProtocolFailed("the headers are too large")
        if not flags & frames.END_HEADERS:
            self._partial = (stream, flags, block)
            return
        self._partial = None
        headers = {str(name): str(value) for name, value in self._decoder.decode(block)}
        known = self._calls.get(stream)
        if known is None:
            if stream <= self._last_stream or not stream % 2:
                return  # The end of a call that was refused.
            self._last_stream = stream
            if len(self._calls) >= _MOST_CALLS:
                self._reset(stream, frames.REFUSED_STREAM)
                return
            known = self._calls[stream] = _Call(stream, headers, self._first_credit)
        if flags & frames.END_STREAM:
            self._begin(known)

    def _receive_data(self, flags: int, stream: int, payload: bytes) -> None:
        if payload:  # It may send as much again; a call is bounded by its largest message.
            self._transport.write(frame(FrameKind.WINDOW_UPDATE, 0, 0, len(payload).to_bytes(4, "big")))
        call = self._calls.get(stream)
        if call is None or call.task is not None:
            return
        self._held += len(payload)
        call.body += frames.unpad(payload, flags) if flags & frames.PADDED else payload
        if len(call.body) > self._server.largest_message + frames.MESSAGE.size:
            most = self._server.largest_message
            text = f"grpc: received message larger than max ({len(call.body) - frames.MESSAGE.size} vs. {most})"
            self._end(call, GrpcError(GrpcCode.RESOURCE_EXHAUSTED, text))
        elif self._held > _MOST_HELD * self._server.largest_message:
            raise ProtocolFailed("it has too many large requests under way")
        elif flags & frames.END_STREAM:
            self._begin(call)

    def _adopt(self, payload: bytes) -> None:
        for name, value in frames.settings_in(payload):
            if name == Setting.INITIAL_WINDOW_SIZE:
                for call in self._calls.values():
                    call.credit += value - self._first_credit
                    call.news.set()
                self._first_credit = value
        self._transport.write(frame(FrameKind.SETTINGS, frames.ACK, 0, b""))

    def _enlarge(self, stream: int, by: int) -> None:
        if stream:
            if (call := self._calls.get(stream)) is not None:
                call.credit += by
                call.news.set()
            return
        self._window += by
        for call in self._calls.values():
            call.news.set()

    def _reset(self, stream: int, code: int) -> None:
        self._transport.write(frame(FrameKind.RST_STREAM, 0, stream, code.to_bytes(4, "big")))

    def _drop(self, stream: int) -> None:
        call = self._calls.pop(stream, None)
        if call is not None and call.task is not None:
            call.task.cancel()

    # Calls.

    def _begin(self, call: _Call) -> None:
        if call.task is None:
            self._held -= min(self._held, len(call.body))
            call.task = self._server.tasks.start(self._serve(call))

    async def _serve(self, call: _Call) -> None:
        error: GrpcError | None = None
        try:
            async with asyncio.timeout(_seconds_of(call.headers.get("grpc-timeout", ""))):
                await self._answer(call)
        except GrpcError as failure:
            error = failure
        except TimeoutError:
            error = GrpcError(GrpcCode.DEADLINE_EXCEEDED, "context deadline exceeded")
        except Exception as failure:  # A handler of an author failed.
            _log.exception("the call %s failed", call.headers.get(":path", ""))
            error = GrpcError(GrpcCode.UNKNOWN, f"{type(failure).__name__}: {failure}")
        self._end(call, error)

    async def _answer(self, call: _Call) -> None:
        path = call.headers.get(":path", "")
        method, answers = self._server.methods.get(path, (None, None))
        if method is None or answers is None:
            service, _, name = path.strip("/").rpartition("/")
            known = service in self._server.services
            text = f"unknown method {name} for service {service}" if known else f"unknown service {service}"
            raise GrpcError(GrpcCode.UNIMPLEMENTED, text)
        request = _request_in(bytes(call.body), method)
        call.body.clear()
        if method.streams:
            stream = cast(Callable[[Message], AsyncGenerator[Message, None]], answers)(request)
            async with aclosing(stream):
                async for item in stream:
                    await self._send(call, item.encode())
            return
        answer = await contain(cast(Callable[[Message], Awaitable[Message]], answers), request)
        await self._send(call, answer.encode())

    async def _send(self, call: _Call, message: bytes) -> None:
        """Send one message, as far as the windows of the peer allow, and wait for them."""
        if not call.has_head:
            call.has_head = True
            self._transport.write(frame(FrameKind.HEADERS, frames.END_HEADERS, call.stream, _HEADERS))
        data = frames.message_frame_data(message)
        at = 0
        while at < len(data):
            self._sent += 1
            if self._sent % _FRAMES_IN_TURN == 0:
                await asyncio.sleep(0)  # A stream of small messages must not hold the loop.
            await self._has_room.wait()
            size = min(len(data) - at, frames.LARGEST_SENT, self._window, call.credit)
            if size <= 0:
                call.news.clear()
                await call.news.wait()
                continue
            self._window -= size
            call.credit -= size
            self._transport.write(frame(FrameKind.DATA, 0, call.stream, data[at : at + size]))
            at += size

    def _end(self, call: _Call, error: GrpcError | None) -> None:
        """Send the status. Without an answer before it, it is the only frame."""
        if self._calls.pop(call.stream, None) is None or self._transport.is_closing():
            return
        status = b"" if call.has_head else _HEADERS
        status += literal(b"grpc-status", str(int(error.code if error is not None else 0)).encode())
        if error is not None:
            text = quote(error.message[:1024], safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~")
            status += literal(b"grpc-message", text.encode())
        self._transport.write(frame(FrameKind.HEADERS, frames.END_HEADERS | frames.END_STREAM, call.stream, status))
        if call.task is None:  # The peer sends on: it need not.
            self._reset(call.stream, 0)


def _request_in(body: bytes, method: Method[Any, Any]) -> Message:
    if len(body) < frames.MESSAGE.size:
        raise GrpcError(GrpcCode.INTERNAL, "the request has no message")
    is_compressed, size = frames.MESSAGE.unpack_from(body)
    if is_compressed:
        raise GrpcError(GrpcCode.UNIMPLEMENTED, "the request is compressed")
    if size != len(body) - frames.MESSAGE.size:
        raise GrpcError(GrpcCode.INTERNAL, "the request is not one message")
    try:
        return cast(Message, method.request.decode(body[frames.MESSAGE.size :]))
    except MalformedMessage as error:
        raise GrpcError(GrpcCode.INTERNAL, f"grpc: error unmarshalling request: {error}") from None


def _seconds_of(timeout: str) -> float:
    """The seconds in a header grpc-timeout, such as 300m for milliseconds."""
    digits, unit = timeout[:-1], timeout[-1:]
    if not digits.isdecimal() or len(digits) > _TIMEOUT_DIGITS or unit not in _UNITS:
        return _LONGEST_CALL
    return min(int(digits) * _UNITS[unit], _LONGEST_CALL)
