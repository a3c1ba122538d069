"""One client's connection: parses its requests, answers them in order, and paces the output.

A protocol of our own over llhttp: a framework costs more than the rest of a request (docs/decisions/0001-http.md).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import cast

from pinnace.process.eager_coroutines import NowOrLater
from pinnace.process.fair_threads import FairThreads
from pinnace.process.work_slices import SliceQueue
from pinnace.server.http.memory_reserve import MemoryReserve
from pinnace.server.http.request_parser import NEVER, HeaderCache, RequestParser
from pinnace.server.http.response_queue import (
    LARGE,
    ChunkedStream,
    LargeResponseQueue,
    OutputQueue,
    StatusLines,
    WriteCoalescer,
)
from pinnace.serving.limits import Limits
from pinnace.serving.messages import (
    Answer,
    Peer,
    Request,
    RequestHandler,
    Response,
    StreamingResponse,
    Takeover,
    failure,
    header_block,
)

BURST = 32
"""Pipelined requests answered before other connections get their turn."""

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_ANSWERS = (Response, StreamingResponse, Takeover)

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class ServerContext:
    """The parts that all connections of one server share."""

    loop: asyncio.AbstractEventLoop
    handler: RequestHandler
    limits: Limits
    connections: set[Connection]
    tasks: set[asyncio.Task[None]]
    """The answers that take several turns of the loop; the server waits for them when it stops."""
    coalescer: WriteCoalescer
    large_responses: LargeResponseQueue
    status_lines: StatusLines
    header_cache: HeaderCache
    watch_limits: Callable[[], None]
    """Starts the timer that checks the deadlines of all connections."""
    is_watched: bool = False
    """Whether the timer runs: it stops when there is no connection."""
    memory_reserve: MemoryReserve | None = field(default_factory=MemoryReserve.of_process)
    """None without a limit of memory."""
    slices: SliceQueue = field(default_factory=SliceQueue.of_loop)
    long_work: FairThreads = field(default_factory=FairThreads.of_loop)
    is_draining: bool = False  # Each answer closes its connection.
    stopping: bool = False
    cut_off: int = 0
    """Connections that were closed because the client read nothing for `Limits.stall_time`."""


class Connection(asyncio.Protocol):
    """Speaks HTTP/1.1 and 1.0 with one client.

    Requests are answered in order, one at a time. A malformed or ambiguous request is answered with 400, and nothing
    after it is parsed.
    """

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._limits = context.limits
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._parser: RequestParser = cast(RequestParser, None)
        self._output: OutputQueue = cast(OutputQueue, None)
        self._reading_paused = False
        # Requests to answer, with `keep` and `chunks` of each, or an error response, which ends the connection.
        self._queue: deque[tuple[Request, bool, bool] | Response] = deque()
        self._busy = False
        self._burst = 0
        self._advance_scheduled = False
        self._task: asyncio.Task[None] | None = None
        self._stream: ChunkedStream | None = None
        self._closing = False
        self._discarding = False
        self._is_handed_over = False
        self._write_deadline = NEVER
        self._left: object = None
        """`OutputQueue.left` when the write deadline was set."""
        self._overdue = NEVER
        """The parser's deadline that was found to be over once."""

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._output = OutputQueue(self._transport, self.resume_writing)
        context = self._context
        self._parser = RequestParser(
            self, Peer(transport), header_cache=context.header_cache, limits=context.limits, loop=context.loop
        )
        if self._context.stopping:
            self._transport.abort()
            return
        # With a limit of one byte, `pause_writing` means that the socket is full, which is when output must pause.
        self._transport.set_write_buffer_limits(high=1, low=0)
        self._context.connections.add(self)
        if not self._context.is_watched:
            self._context.watch_limits()

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self._context.connections.discard(self)
        self._parser.stop()
        self._queue.clear()
        if self._stream is not None:
            self._stream.abandon()
        if self._task is not None and not self._task.done():
            self._context.long_work.abandon(self._task)
        self._output.drop()

    def eof_received(self) -> bool:
        self._output.release()  # The transport may be closed before the held response is released.
        if self._stream is not None or self._transport.get_extra_info("is_tls"):
            return False
        self._parser.is_last = True  # A client may shut its side after the last request and still read the response.
        return self._occupied

    def pause_writing(self) -> None:
        self._output.is_paused = True
        self._left = self._output.left
        self._write_deadline = self._context.loop.time() + self._limits.stall_time

    def resume_writing(self) -> None:
        self._write_deadline = NEVER
        if self._output.resume():
            self._advance()

    def data_received(self, data: bytes) -> None:
        if not self._discarding:
            self._burst = 0
            self._parser.feed(data)

    def release(self) -> int:
        """Send the large response that was held back, and return its size."""
        given = self._output.release()
        if self._queue or self._reading_paused or self._parser.is_last:
            self._advance_soon()
        return given

    # Called by the parser.

    def handle_request(self, request: Request, keep: bool, chunks: bool) -> None:
        """Answer a request, now or after earlier ones."""
        if self._busy or self._queue or self._output.is_paused or self._burst >= BURST or request.upgrade:
            self._queue.append((request, keep, chunks))
            if self._burst >= BURST:
                self._advance_soon()
            self._pause_reading()
        else:
            self._burst += 1
            self._answer(request, keep, chunks)

    def reject(self, answer: Response) -> None:
        """Send an error after the pending answers, then close."""
        self._discarding = True
        self._queue.append(answer)
        self._advance()

    def expect_continue(self) -> None:
        """Send 100 Continue, unless other answers come first."""
        if not self._busy and not self._queue:
            self._send_continue()

    def begin_upgrade(self) -> None:
        """Answer the request to upgrade, which waits in the queue."""
        self._advance()

    # Answering.

    def _advance(self) -> None:
        """Answer queued requests, unless an answer is pending or the client does not read."""
        burst = 0
        while not (self._busy or self._closing) and self._output.is_free:
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
        """Read the next request, or close: the queue is empty."""
        parser = self._parser
        if parser.is_last or self._discarding:
            self._shut()
            return
        now = self._context.loop.time()
        if not parser.is_reading:
            parser.deadline = now + self._limits.idle_time
        elif parser.deadline <= now:
            parser.deadline = now + self._limits.head_time  # It could not be read while an answer was pending.
        if parser.owes_continue:
            self._send_continue()
        self._resume_reading()

    def _advance_soon(self) -> None:
        if not self._advance_scheduled:
            self._advance_scheduled = True
            self._context.loop.call_soon(self._advance_now)

    def _advance_now(self) -> None:
        self._advance_scheduled = False
        self._advance()

    def _answer(self, request: Request, keep: bool, chunks: bool) -> None:
        reserve = self._context.memory_reserve
        try:
            answer = (reserve and reserve.refuse(request)) or self._context.handler(request)
        except Exception as error:
            answer = _failure_response(request, error)
        if type(answer) is Response:
            self._answer_at_once(answer, request.method, keep, chunks)
            return
        self._busy = True
        is_small_write = request.method != "GET" and len(request.body) < LARGE
        if is_small_write:
            self._context.slices.begin_write()
        task = self._context.loop.create_task(self._answer_later(request, answer, keep, chunks, is_small_write))
        self._task = task
        self._context.tasks.add(task)

    def _answer_at_once(self, answer: Response, method: str, keep: bool, chunks: bool) -> None:
        parser = self._parser
        deadline, parser.deadline = parser.deadline, self._context.loop.time() + self._limits.idle_time
        self._respond(answer, method=method, keep=keep, chunks=chunks, may_wait=True)
        # Otherwise the usual case: everything is written, or will be in this turn, and nothing waits.
        if not keep or self._queue or self._output.is_waiting or self._context.is_draining:
            parser.deadline = deadline
            self._advance_soon()

    async def _answer_later(
        self, request: Request, pending: NowOrLater[Answer], keep: bool, chunks: bool, is_small_write: bool
    ) -> None:
        """Answer a request that takes several turns of the loop. A small write is not delayed by long work."""
        task = self._task
        try:
            try:
                answer = pending if isinstance(pending, _ANSWERS) else await pending
            except Exception as error:
                answer = _failure_response(request, error)
            finally:
                if is_small_write:
                    self._context.slices.end_write()
            if self._closing:
                return
            if isinstance(answer, Response):
                self._respond(answer, method=request.method, keep=keep, chunks=chunks)
            elif isinstance(answer, Takeover):
                await self._hand_over(answer)
                return
            else:
                await self._send_stream(answer, request, keep, chunks)
            self._busy = False
            self._task = None
            self._advance()
        finally:
            self._context.tasks.discard(cast("asyncio.Task[None]", task))

    def _respond(self, answer: Response, *, method: str, keep: bool, chunks: bool, may_wait: bool = False) -> None:
        try:
            head = self._head(answer, keep=keep, chunks=chunks)
        except ValueError as error:
            log.error("a response could not be written", exc_info=error)
            answer = failure(500, "InternalError", "Internal Server Error: the answer had an invalid header")
            head = self._head(answer, keep=keep, chunks=chunks)
        body, size = answer.body, answer.size
        if answer.status == 204 or answer.status == 304:
            self._output.write(head + b"\r\n")
            return
        head = b"%bContent-Length: %d\r\n\r\n" % (head, size)
        if method == "HEAD" or not size:
            self._output.write(head)
        elif isinstance(body, bytes):
            if size < LARGE:
                self._output.write(head + body)
            else:
                self._output.write_all([head, body])
        elif may_wait and len(body) == 2 and len(body[0]) < LARGE <= len(body[1]):  # A list: head and items.
            if self._output.hold(head + body[0], body[1]):
                self._context.large_responses.hold(self.release)
        else:
            self._output.write_all([head, *body])

    def _head(self, answer: Answer, *, keep: bool, chunks: bool) -> bytes:
        headers = answer.headers
        block = headers if isinstance(headers, bytes) else header_block(headers)
        head = self._context.status_lines.of(answer.status) + block
        if keep and not self._context.is_draining:
            return head if chunks else head + b"Connection: keep-alive\r\n"
        if answer.status == 101:
            return head
        self._parser.is_last = True
        return head + b"Connection: close\r\n"

    async def _send_stream(self, response: StreamingResponse, request: Request, keep: bool, chunks: bool) -> None:
        """Send the head, then run the response until its stream is closed."""
        keep = keep and chunks  # Without chunks, closing the connection ends the body.
        try:
            head = self._head(response, keep=keep, chunks=chunks)
        except ValueError as error:
            self._respond(_failure_response(request, error), method=request.method, keep=keep, chunks=chunks)
            return
        self._output.write(head + (b"Transfer-Encoding: chunked\r\n\r\n" if chunks else b"\r\n"))
        if request.method == "HEAD":
            return
        stream = self._stream = ChunkedStream(self._output, self._context.coalescer, chunks=chunks)
        ended: asyncio.Future[None] = self._context.loop.create_future()
        stream.on_close(lambda: _resolve(ended))
        if self._context.stopping:
            stream.finish()
        try:
            running = response.start(stream)
            if running is None:
                await ended
            else:
                await _run_until(ended, running)
            stream.finish()
        except Exception as error:
            # The status is sent already: only an aborted body can still signal the failure.
            log.error("%s %s failed while streaming", request.method, request.short_target, exc_info=error)
            self.abort()
        finally:
            self._stream = None
            stream.abandon()

    async def _hand_over(self, takeover: Takeover) -> None:
        self._output.write(self._head(takeover, keep=True, chunks=True) + b"\r\n")
        while not self._output.is_free and not self._closing:
            await self._output.drain()
        if self._closing:
            return
        self._is_handed_over = True
        self._pause_reading()
        self._transport.set_write_buffer_limits()
        leftover, self._parser.leftover = self._parser.leftover, b""
        try:
            await takeover.run(self._transport, leftover)
        except Exception as error:
            log.error("a connection with another protocol failed", exc_info=error)
        finally:
            self._context.connections.discard(self)
            self._transport.close()

    # Writing.

    def _send_continue(self) -> None:
        self._parser.owes_continue = False
        self._output.write(CONTINUE)

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
        """Close after everything is written. A rejected client's remaining bytes are discarded for a while first."""
        if self._closing:
            return
        if self._discarding:
            # Closing with unread bytes would reset the connection, and the client might not get the response.
            self._write_deadline = self._context.loop.time() + self._limits.linger_time
            self._resume_reading()
            return
        self._stop()
        self._parser.deadline = NEVER
        self._write_deadline = self._context.loop.time() + self._limits.stall_time
        self._transport.close()

    def check(self, now: float) -> None:
        """Enforce the time limits. The server calls this regularly."""
        if now >= self._write_deadline:
            if self._discarding and not self._closing and not self._output.is_paused:
                self._close_idle()
            elif self._closing or self._left == (left := self._output.left):
                self._context.cut_off += 1
                self.abort()
            else:  # Slow, but it reads.
                self._left = left
                self._write_deadline = now + self._limits.stall_time
        elif now >= self._parser.deadline and not self._occupied and not self._closing:
            if self._overdue != self._parser.deadline:
                # The process may have been suspended, with data that arrived in time unread: check again later.
                self._overdue = self._parser.deadline
            elif self._parser.is_reading:
                self._parser.reject_late()
            else:
                self._close_idle()

    @property
    def _occupied(self) -> bool:
        return bool(self._busy or self._queue or not self._output.is_free)

    def shut_down(self) -> None:
        """Close because the server stops: after pending answers, but end a stream or a takeover now."""
        self._parser.is_last = self._parser.is_last or not self._parser.is_reading
        if self._stream is not None:
            self._stream.finish()
        elif self._is_handed_over and self._task is not None:
            self._task.cancel()
        elif not (self._occupied or self._parser.is_reading or self._closing):
            self._close_idle()

    def abort(self) -> None:
        """Close the connection now, without sending the rest."""
        self._stop()  # Before `connection_lost`, uvloop would raise at a write.
        self._transport.abort()

    def _stop(self) -> None:
        """Write no more, and answer no more requests."""
        self._closing = True
        self._parser.is_last = True
        self._output.stop()

    def _close_idle(self) -> None:
        self._stop()
        self._write_deadline = self._context.loop.time() + self._limits.linger_time
        self._transport.close()


def _resolve(future: asyncio.Future[None]) -> None:
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


def _failure_response(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.short_target, exc_info=error)
    return failure(500, "InternalError", f'Internal Server Error: "{request.short_target}": the server\'s log says why')
