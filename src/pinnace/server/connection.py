"""One client's connection: parses its requests, has them answered in order, and paces what is written to it.

An own protocol over llhttp, since a framework costs more than the rest of a request (docs/decisions/0001-http.md).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any, cast

import httptools

from pinnace.server.limits import Limits
from pinnace.server.messages import (
    Answer,
    BadTarget,
    Handler,
    Peer,
    Request,
    Response,
    Stream,
    Takeover,
    failure,
    header_block,
    split_target,
    status_line,
)
from pinnace.server.sinks import ChunkedSink, Corks

SLICE = 128 * 1024
"""The most that is encrypted at once: stays in the cache, and a client that stops reading is noticed after one."""

BURST = 32
"""Pipelined requests answered before other connections get their turn."""

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
NEVER = float("inf")

# A chunk of one byte takes six on the wire; more overhead than this is an attack on memory, not a body.
_WIRE_BYTES_PER_BODY_BYTE = 8

# Two of these are a disagreement about whom the request is for or where it ends.
_SINGLE = frozenset((b"host", b"content-length", b"transfer-encoding"))

_STATUS_LINES = {code: status_line(code) for code in range(100, 600)}
_ANSWERS = (Response, Stream, Takeover)

log = logging.getLogger(__name__)


class DateHeader:
    """The Date header, made once per second."""

    __slots__ = ("_line", "_until")

    def __init__(self) -> None:
        self._line = b""
        self._until = 0.0

    def line(self) -> bytes:
        now = time.time()
        if now >= self._until or now < self._until - 1:
            self._until = float(int(now) + 1)
            self._line = b"Date: %b\r\n" % formatdate(now, usegmt=True).encode()
        return self._line


@dataclass(slots=True, eq=False)
class Surroundings:
    """What the connections of one server share."""

    loop: asyncio.AbstractEventLoop
    handler: Handler
    limits: Limits
    connections: set[Connection]
    tasks: set[asyncio.Task[None]]
    corks: Corks
    date: DateHeader
    stopping: bool = False

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine that takes itself off `tasks` at its end; the server waits for it when it stops."""
        task: asyncio.Task[None] = self.loop.create_task(work)
        self.tasks.add(task)
        return task


class _Refused(Exception):
    """Ends the parsing of a connection; the answer has been queued."""


class Connection(asyncio.Protocol):
    """Speaks HTTP/1.1 and 1.0 with one client.

    Requests are answered in order, one at a time. Whatever cannot be understood without doubt is answered with 400, and
    nothing after it is interpreted.
    """

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._limits = around.limits
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._parser: Any = None
        self._peer: Peer = cast(Peer, None)
        # The message being read.
        self._reading = False
        self._in_body = False
        self._wire = 0
        self._fed = 0
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._repeated: list[tuple[bytes, bytes]] = []
        self._body: bytes | bytearray = b""
        self._owes_continue = False
        self._reading_paused = False
        self._leftover = b""
        # What waits to be answered: requests with whether the connection outlives them, or a refusal, which ends it.
        self._queue: deque[tuple[Request, bool, bool] | Response] = deque()
        self._busy = False
        self._burst = 0
        self._advance_scheduled = False
        self._task: asyncio.Task[None] | None = None
        self._sink: ChunkedSink | None = None
        # What waits to be written.
        self._out: deque[bytes | memoryview] = deque()
        self._out_size = 0
        self._write_paused = False
        self._drain_waiters: list[asyncio.Future[None]] = []
        self._last = False
        self._closing = False
        self._discarding = False
        self._given_away = False
        self._read_deadline = NEVER
        self._write_deadline = NEVER

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._around.stopping:
            self._transport.abort()
            return
        # With hardly any allowance `pause_writing` means that the socket is full, which is when slicing must stop.
        # Not 0: TLS transports compare with >=, and would pause with nothing to wait for.
        self._transport.set_write_buffer_limits(high=1, low=0)
        self._parser = httptools.HttpRequestParser(self)
        self._peer = Peer(transport)
        self._around.connections.add(self)
        self._read_deadline = self._around.loop.time() + self._limits.head_time

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self._around.connections.discard(self)
        self._parser = None
        self._queue.clear()
        self._out.clear()
        self._out_size = 0
        if self._sink is not None:
            self._sink.lost()
        self._wake_drain_waiters()

    def eof_received(self) -> bool:
        if self._sink is not None or self._transport.get_extra_info("ssl_object") is not None:
            return False
        self._last = True  # A client may shut its side after the last request and still read the answer.
        return bool(self._busy or self._queue or self._out)

    def pause_writing(self) -> None:
        self._write_paused = True
        self._write_deadline = self._around.loop.time() + self._limits.stall_time

    def resume_writing(self) -> None:
        self._write_paused = False
        self._write_deadline = NEVER
        self._pump()
        if not self._out and not self._write_paused:
            self._wake_drain_waiters()
            self._advance()

    def data_received(self, data: bytes) -> None:
        if self._discarding or self._parser is None:
            return
        self._burst = 0
        self._fed = len(data)
        self._wire += self._fed
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._parser = None
            self._leftover = data[upgrade.args[0] :]
            self._advance()
        except httptools.HttpParserCallbackError as error:
            if not isinstance(error.__context__, _Refused):
                log.error("reading a request failed", exc_info=error)
                self._refuse(failure(500, "InternalError", "Internal Server Error: the request could not be read"))
        except httptools.HttpParserError as error:
            if not self._closing and not self._last:  # Bytes after the last request are not a mistake to answer.
                if isinstance(error, httptools.HttpParserInvalidMethodError):
                    message = "the server does not allow this method on the requested resource"
                    self._refuse(failure(405, "MethodNotAllowed", message))
                    return
                self._refuse(failure(400, "BadRequest", f"malformed HTTP request: {error}"))
        else:
            if self._reading and self._wire > self._limits.head + _WIRE_BYTES_PER_BODY_BYTE * len(self._body):
                self._refuse(failure(431, "BadRequest", f"request header is too large: limit is {self._limits.head}"))

    # The parser's side.

    def on_message_begin(self) -> None:
        if self._last:
            raise _Refused
        self._reading = True
        self._in_body = False
        self._wire = self._fed
        self._headers = {}
        self._repeated = []
        self._target = b""
        self._body = b""
        self._read_deadline = self._around.loop.time() + self._limits.head_time

    def on_url(self, part: bytes) -> None:
        self._target = self._target + part if self._target else part

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_body:
            return  # A trailer: nothing of the API is said in one, and it must not change what was decided before.
        name = name.lower()
        if name in self._headers:
            self._repeated.append((name, value))
        else:
            self._headers[name] = value
        if len(self._headers) + len(self._repeated) > self._limits.headers:
            self._refuse_within(431, "BadRequest", f"too many request headers: limit is {self._limits.headers}")

    def on_headers_complete(self) -> None:
        self._in_body = True
        headers = self._headers
        version = self._parser.get_http_version()
        if version == "1.1":
            if b"host" not in headers:
                self._refuse_within(400, "BadRequest", "missing required Host header")
        elif version != "1.0":
            self._refuse_within(400, "BadRequest", f"unsupported HTTP version {version}")
        elif b"transfer-encoding" in headers:
            self._refuse_within(400, "BadRequest", "Transfer-Encoding is not part of HTTP/1.0")
        if self._repeated and any(name in _SINGLE for name, _ in self._repeated):
            self._refuse_within(400, "BadRequest", "a header that must be unique came twice")
        length = headers.get(b"content-length")
        coding = headers.get(b"transfer-encoding")
        if coding is None and (length is None or int(length) == 0):
            return
        if coding is not None and coding.strip().lower() != b"chunked":
            self._refuse_within(400, "BadRequest", f"unsupported transfer encoding {coding.decode('latin-1')!r}")
        if self._parser.should_upgrade():
            # llhttp reads no body here, so the body would be taken for what follows the request.
            self._refuse_within(400, "BadRequest", "a request to upgrade may not have a body")
        if length is not None and int(length) > self._limits.body:
            self._refuse_too_large()
        self._read_deadline = self._around.loop.time() + self._limits.body_time
        expectation = headers.get(b"expect")
        if expectation is not None and version == "1.1":
            if expectation.lower() != b"100-continue":
                self._refuse_within(417, "BadRequest", f"unknown expectation {expectation.decode('latin-1')!r}")
            self._owes_continue = True
            if not self._busy and not self._queue:
                self._send_continue()

    def on_body(self, data: bytes) -> None:
        if len(self._body) + len(data) > self._limits.body:
            self._refuse_too_large()
        if not self._body:
            self._body = data
        elif isinstance(self._body, bytearray):
            self._body += data
        else:
            self._body = bytearray(self._body) + data

    def on_message_complete(self) -> None:
        self._reading = False
        self._owes_continue = False
        self._read_deadline = NEVER
        parser = self._parser
        method: str = parser.get_method().decode()
        try:
            target = self._target.decode("ascii")
            path, query = split_target(target)
        except (BadTarget, UnicodeDecodeError) as error:
            self._refuse_within(400, "BadRequest", str(error))
        body = self._body
        upgrade: bool = parser.should_upgrade()
        request = Request(
            method,
            target,
            path,
            query,
            self._headers,
            body if type(body) is bytes else bytes(body),
            self._peer,
            upgrade,
            self._repeated,
        )
        self._body = b""
        # llhttp cannot go on after an upgrade; refusing one is rare enough to cost the connection.
        keep: bool = parser.should_keep_alive() and not upgrade
        chunks: bool = parser.get_http_version() == "1.1"
        if not keep:
            self._last = True
        if self._busy or self._queue or self._write_paused or self._burst >= BURST or upgrade:
            self._queue.append((request, keep, chunks))
            if self._burst >= BURST:
                self._advance_soon()
            self._pause_reading()
        else:
            self._burst += 1
            self._answer(request, keep, chunks)

    # Refusals.

    def _refuse(self, answer: Response) -> None:
        """Answer after what is in progress, then close; nothing more of this client is interpreted."""
        self._discarding = True
        self._reading = False
        self._read_deadline = NEVER
        self._owes_continue = False
        self._parser = None
        self._queue.append(answer)
        self._advance()

    def _refuse_within(self, code: int, reason: str, message: str) -> None:
        self._refuse(failure(code, reason, message))
        raise _Refused

    def _refuse_too_large(self) -> None:
        message = f"Request entity too large: limit is {self._limits.body}"
        self._refuse_within(413, "RequestEntityTooLarge", message)

    # Answering.

    def _advance(self) -> None:
        """Answer what is queued, unless an answer is in progress or the client does not take what it has got."""
        burst = 0
        while not (self._busy or self._closing or self._write_paused or self._out):
            if not self._queue:
                self._await_more()
                return
            if burst >= BURST:
                self._advance_soon()
                return
            burst += 1
            item = self._queue.popleft()
            if isinstance(item, Response):
                self._respond(item, method="", keep=False, chunks=True)
            else:
                self._answer(*item)

    def _await_more(self) -> None:
        """Nothing is left to answer: read on, or close."""
        if self._last or self._discarding:
            self._shut()
            return
        now = self._around.loop.time()
        if not self._reading:
            self._read_deadline = now + self._limits.idle_time
        elif self._read_deadline <= now:
            self._read_deadline = now + self._limits.head_time  # It could not read on while it waited for us.
        if self._owes_continue:
            self._send_continue()
        self._resume_reading()

    def _advance_soon(self) -> None:
        if not self._advance_scheduled:
            self._advance_scheduled = True
            self._around.loop.call_soon(self._advance_now)

    def _advance_now(self) -> None:
        self._advance_scheduled = False
        self._advance()

    def _answer(self, request: Request, keep: bool, chunks: bool) -> None:
        try:
            answer = self._around.handler(request)
        except Exception as error:
            answer = _failed(request, error)
        if type(answer) is Response:
            self._respond(answer, method=request.method, keep=keep, chunks=chunks)
            # The usual case, kept short: everything was written and nothing waits.
            if keep and not self._queue and not self._out and not self._around.stopping:
                self._read_deadline = self._around.loop.time() + self._limits.idle_time
            else:
                self._advance_soon()
        else:
            self._busy = True
            self._task = self._around.spawn(self._answer_later(request, answer, keep, chunks))

    async def _answer_later(
        self, request: Request, pending: Answer | Awaitable[Answer], keep: bool, chunks: bool
    ) -> None:
        task = self._task
        try:
            try:
                answer = pending if isinstance(pending, _ANSWERS) else await pending
                if not isinstance(answer, _ANSWERS):
                    raise TypeError(f"a handler answered {answer!r}, which is neither Response, Stream nor Takeover")
            except Exception as error:
                answer = _failed(request, error)
            if self._closing:
                return
            if isinstance(answer, Takeover):
                await self._give_away(answer)
                return
            if isinstance(answer, Stream):
                await self._stream(answer, request, keep, chunks)
            else:
                self._respond(answer, method=request.method, keep=keep, chunks=chunks)
            self._busy = False
            self._task = None
            self._advance()
        finally:
            self._around.tasks.discard(cast("asyncio.Task[None]", task))

    def _respond(self, answer: Response, *, method: str, keep: bool, chunks: bool) -> None:
        body, status = answer.body, answer.status
        size = len(body) if isinstance(body, bytes) else sum(map(len, body))
        try:
            head = self._head(answer, keep=keep, chunks=chunks)
        except ValueError as error:
            log.error("an answer could not be written", exc_info=error)
            answer = failure(500, "InternalError", "Internal Server Error: the answer had an invalid header")
            body, status = answer.body, answer.status
            size = len(body)
            head = self._head(answer, keep=keep, chunks=chunks)
        if status == 204 or status == 304:
            self._write(head + b"\r\n")
            return
        head = b"%bContent-Length: %d\r\n\r\n" % (head, size)
        if method == "HEAD" or not size:
            self._write(head)
        elif isinstance(body, bytes):
            if size < SLICE:
                self._write(head + body)
            else:
                self._write_all([head, body])
        else:
            self._write_all([head, *body])

    def _head(self, answer: Answer, *, keep: bool, chunks: bool) -> bytes:
        headers = answer.headers
        block = headers if isinstance(headers, bytes) else header_block(headers)
        head = (_STATUS_LINES.get(answer.status) or status_line(answer.status)) + self._around.date.line() + block
        if keep and not self._around.stopping:
            return head if chunks else head + b"Connection: keep-alive\r\n"
        if answer.status == 101:
            return head
        self._last = True
        return head + b"Connection: close\r\n"

    async def _stream(self, stream: Stream, request: Request, keep: bool, chunks: bool) -> None:
        """Send the head and let the stream run until its sink is closed."""
        keep = keep and chunks  # Without chunks, only the end of the connection ends the body.
        try:
            head = self._head(stream, keep=keep, chunks=chunks)
        except ValueError as error:
            self._respond(_failed(request, error), method=request.method, keep=keep, chunks=chunks)
            return
        self._write(head + (b"Transfer-Encoding: chunked\r\n\r\n" if chunks else b"\r\n"))
        if request.method == "HEAD":
            return
        sink = self._sink = ChunkedSink(self, self._around.corks, chunks=chunks)
        ended: asyncio.Future[None] = self._around.loop.create_future()
        sink.on_close(lambda: _settle(ended))
        if self._around.stopping:
            sink.finish()
        try:
            running = stream.start(sink)
            if running is None:
                await ended
            else:
                await _run_until(ended, running)
            sink.finish()
        except Exception as error:
            # The status is sent; only a body that does not end well can still say that something went wrong.
            log.error("%s %s failed while streaming", request.method, request.target, exc_info=error)
            self.abort()
        finally:
            self._sink = None
            sink.lost()

    async def _give_away(self, takeover: Takeover) -> None:
        self._write(self._head(takeover, keep=True, chunks=True) + b"\r\n")
        while (self._out or self._write_paused) and not self._closing:
            await self.drained()
        if self._closing:
            return
        self._given_away = True
        self._pause_reading()
        self._transport.set_write_buffer_limits()
        leftover, self._leftover = self._leftover, b""
        try:
            await takeover.run(self._transport, leftover)
        except Exception as error:
            log.error("a connection that was taken over failed", exc_info=error)
        finally:
            self._around.connections.discard(self)
            self._transport.close()

    # Writing.

    def _send_continue(self) -> None:
        self._owes_continue = False
        self._write(CONTINUE)

    def _write(self, data: bytes) -> None:
        if self._closing:
            return
        if self._out or self._write_paused:
            self._out.append(data)
            self._out_size += len(data)
        else:
            self._transport.write(data)

    def _write_all(self, pieces: list[bytes | memoryview]) -> None:
        if self._closing:
            return
        self._out.extend(pieces)
        self._out_size += sum(map(len, pieces))
        self._pump()

    def _pump(self) -> None:
        """Hand slices to the transport until it has had enough. What waits here is neither copied nor encrypted."""
        out = self._out
        while out and not self._write_paused and not self._closing:
            batch: list[bytes | memoryview] = []
            room = SLICE
            while out and room:
                piece = out.popleft()
                if len(piece) > room:
                    view = memoryview(piece)
                    out.appendleft(view[room:])
                    piece = view[:room]
                batch.append(piece)
                room -= len(piece)
            self._out_size -= SLICE - room
            self._transport.write(batch[0] if len(batch) == 1 else b"".join(batch))

    @property
    def buffered(self) -> int:
        """Bytes written that the socket has not taken."""
        return 0 if self._closing else self._out_size + self._transport.get_write_buffer_size()

    async def drained(self) -> None:
        """Return when the socket has taken everything, or the connection is lost."""
        if (self._out or self._write_paused) and not self._closing:
            waiter: asyncio.Future[None] = self._around.loop.create_future()
            self._drain_waiters.append(waiter)
            await waiter

    def write_chunks(self, chunks: list[bytes]) -> None:
        """Write the body of a stream."""
        self._write_all(cast("list[bytes | memoryview]", chunks))

    def _wake_drain_waiters(self) -> None:
        waiters, self._drain_waiters = self._drain_waiters, []
        for waiter in waiters:
            _settle(waiter)

    # Ending.

    def _pause_reading(self) -> None:
        if not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._reading_paused:
            self._reading_paused = False
            self._transport.resume_reading()

    def _shut(self) -> None:
        """Close after everything is written; a refused client's remaining bytes are thrown away for a while first."""
        if self._closing:
            return
        if self._discarding:
            # Closing with unread bytes would reset the connection and could destroy the answer on its way.
            self._write_deadline = self._around.loop.time() + self._limits.linger_time
            self._resume_reading()
            return
        self._closing = True
        self._read_deadline = NEVER
        self._write_deadline = self._around.loop.time() + self._limits.stall_time
        self._transport.close()

    def check(self, now: float) -> None:
        """Enforce the time limits. Called by the server now and then."""
        if now >= self._write_deadline:
            if self._discarding and not self._closing and not self._write_paused:
                self._close_idle()
            else:
                self.abort()
        elif now >= self._read_deadline and not self._occupied and not self._closing:
            if not self._reading:
                self._close_idle()
            elif self._in_body:
                self._refuse(failure(408, "Timeout", "the request's body did not arrive in time"))
            else:
                self._refuse(failure(408, "Timeout", "the request's headers did not arrive in time"))

    @property
    def _occupied(self) -> bool:
        return bool(self._busy or self._queue or self._out or self._write_paused)

    def end(self) -> None:
        """The server stops: close when what is in progress is answered; a stream or a takeover ends now."""
        self._last = self._last or not self._reading
        if self._sink is not None:
            self._sink.finish()
        elif self._given_away and self._task is not None:
            self._task.cancel()
        elif not (self._occupied or self._reading or self._closing):
            self._close_idle()

    def abort(self) -> None:
        """Cut the connection now."""
        self._closing = True  # Before the loss is reported, uvloop would raise at a write.
        self._transport.abort()

    def _close_idle(self) -> None:
        self._closing = True
        self._write_deadline = self._around.loop.time() + self._limits.linger_time
        self._transport.close()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _run_until(ended: asyncio.Future[None], work: Awaitable[None]) -> None:
    """Run `work`, cancelled when `ended` is done."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait((task, ended), return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
    if not task.cancelled():
        task.result()


def _failed(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.target, exc_info=error)
    return failure(500, "InternalError", f'Internal Server Error: "{request.target}": the server\'s log says why')
