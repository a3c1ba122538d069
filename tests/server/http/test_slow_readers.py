"""A connection whose client reads little or nothing of its response, without a client and without waiting."""

from __future__ import annotations

import asyncio
from typing import Any

from pinnace.server.http.connection import Connection, ServerContext
from pinnace.server.http.request_parser import HeaderCache
from pinnace.server.http.response_queue import LargeResponseQueue, StatusLines, WriteCoalescer
from pinnace.server.http.server import Limits, Request, Response

LIMITS = Limits()
BODY = b"x" * 10_000_000


class Full(asyncio.Transport):
    """A transport whose socket is full. The test decides how much is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = 0
        self.parts_sent = 0
        self.is_cut = False
        self.protocol: Connection | None = None

    def write(self, data: Any) -> None:
        self.waiting += len(data)
        assert self.protocol is not None
        self.protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.parts_sent if name == "parts_sent" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def abort(self) -> None:
        self.is_cut = True


async def connection_with_answer() -> tuple[Full, Connection, float]:
    """Return a connection with a long answer, and the time of its request."""
    loop, transport = asyncio.get_running_loop(), Full()

    def answer(request: Request) -> Response:
        return Response(200, (), BODY)

    connection = Connection(
        ServerContext(
            loop,
            answer,
            LIMITS,
            set(),
            set(),
            WriteCoalescer(loop),
            LargeResponseQueue(loop),
            StatusLines(),
            HeaderCache(),
            lambda: None,
        )
    )
    transport.protocol = connection
    connection.connection_made(transport)
    connection.data_received(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
    assert 0 < transport.waiting < len(BODY)
    return transport, connection, loop.time()


async def test_a_client_that_reads_nothing_is_cut_off() -> None:
    transport, connection, now = await connection_with_answer()
    connection.check(now + LIMITS.stall_time - 1)
    assert not transport.is_cut
    connection.check(now + LIMITS.stall_time)
    assert transport.is_cut
    assert connection._context.cut_off == 1


async def test_a_slow_reader_is_waited_for_and_cut_off_when_it_stops() -> None:
    transport, connection, now = await connection_with_answer()
    for _ in range(5):
        now += LIMITS.stall_time
        transport.waiting -= 1
        connection.check(now)
        assert not transport.is_cut
    for _ in range(5):
        now += LIMITS.stall_time
        transport.parts_sent += 1  # Of TLS is known only that there was something.
        connection.check(now)
        assert not transport.is_cut
    connection.check(now + LIMITS.stall_time - 1)
    assert not transport.is_cut
    connection.check(now + LIMITS.stall_time)
    assert transport.is_cut
