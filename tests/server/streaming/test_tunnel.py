"""A request to another server over a connection of its own, and the bytes after an upgrade."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from pinnace.process.byte_streams import Duplex
from pinnace.server.http.server import Answer, HttpServer, Request
from pinnace.server.streaming.tunnel import UpstreamExchange

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
UPGRADE = b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
pytestmark = pytest.mark.filterwarnings("ignore:Overriding the:pytest.PytestDeprecationWarning")


@asynccontextmanager
async def upstream(serve: Serve) -> AsyncIterator[Callable[[], Awaitable[UpstreamExchange]]]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def connect() -> UpstreamExchange:
        return UpstreamExchange(Duplex(*await asyncio.open_connection("127.0.0.1", port)))

    try:
        yield connect
    finally:
        server.close()


def answering(raw: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw)
        writer.close()

    return serve


@pytest.mark.parametrize(
    ("raw", "status", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", 200, b"abc"),
        (b"HTTP/1.1 403 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n", 403, b"abc"),
        (b"HTTP/1.1 200 OK\r\n\r\nabc", 200, b"abc"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 1\r\n\r\nx", 302, b"x"),
    ],
    ids=["length", "chunks", "until closed", "after continue", "no content", "a redirect"],
)
async def test_an_answer_without_upgrade_is_read_whole(raw: bytes, status: int, body: bytes) -> None:
    async with upstream(answering(raw)) as connect:
        exchange = await connect()
        await exchange.ask("GET", "/x", [(b"Host", b"a")], upgrade=b"echo")
        assert exchange.status == status
        assert b"".join([piece async for piece in exchange.chunks()]) == body
        exchange.close()


@pytest.mark.parametrize(
    "raw",
    [b"", b"HTTP/1.1 200", b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"],
    ids=["nothing", "half a line", "another protocol", "half a body"],
)
async def test_a_server_that_breaks_off_or_speaks_something_else_is_a_lost_connection(raw: bytes) -> None:
    async with upstream(answering(raw)) as connect:
        exchange = await connect()
        with pytest.raises(ConnectionError):
            await exchange.ask("GET", "/x", [(b"Host", b"a")])
            async for _ in exchange.chunks():
                pass
        exchange.close()


@asynccontextmanager
async def proxied(serve: Serve) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, HttpServer]]:
    """A client's connection to a server that passes upgrades on to `serve`."""
    server = HttpServer()
    async with upstream(serve) as connect:

        async def handler(request: Request) -> Answer:
            exchange = await connect()
            await exchange.ask("GET", request.target, [(b"Host", b"a")], upgrade=request.headers[b"upgrade"])
            return exchange.takeover()

        await server.start("127.0.0.1", 0, None, handler)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        try:
            writer.write(UPGRADE + b"early ")
            assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
            yield reader, writer, server
        finally:
            writer.close()
            await server.stop(1.0)


async def test_bytes_pass_both_ways_after_an_upgrade_those_that_came_with_it_too() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(SWITCH + b"hello ")
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()

    async with proxied(echo) as (reader, writer, _):
        assert await reader.readexactly(12) == b"hello early "
        sent = bytes(range(256)) * 20_000
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent


async def test_the_other_server_sees_the_end_when_the_client_goes() -> None:
    gone = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(SWITCH)
        while await reader.read(1 << 16):
            pass
        gone.set()
        writer.close()

    async with proxied(wait) as (_, writer, _server):
        writer.close()
        await asyncio.wait_for(gone.wait(), 60)


async def test_the_client_gets_all_that_was_sent_before_the_other_server_goes() -> None:
    async def burst(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(SWITCH)
        await reader.readexactly(len(b"early "))  # Closing with unread bytes would reset the connection.
        writer.write(b"x" * 3_000_000)
        writer.close()

    async with proxied(burst) as (reader, _, _server):
        assert len(await asyncio.wait_for(reader.read(), 60)) == 3_000_000


async def test_a_tunnel_ends_when_the_server_stops() -> None:
    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(SWITCH)
        await reader.read()
        writer.close()

    async with proxied(wait) as (reader, _, server):
        await server.stop(10.0)
        assert await asyncio.wait_for(reader.read(), 60) == b""
