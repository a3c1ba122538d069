"""The HTTP server through sockets: streaming responses and takeovers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.server.raw_http import (
    GET,
    Watchers,
    client_context,
    event_loop_policy,
    files,
    hello,
    pytestmark,
    server_context,
    serving,
    until,
)

from pinnace.auth.certificates.authority import CertificateFiles
from pinnace.server.http.server import (
    Answer,
    Request,
    ResponseStream,
    StreamingResponse,
    Takeover,
    frame,
    reader_and_writer,
)

__all__ = ["event_loop_policy", "files", "pytestmark"]


async def test_a_stream_sends_shared_chunks_until_it_is_finished_and_the_connection_lives_on() -> None:
    watchers = Watchers()
    async with serving(watchers) as served:
        clients = [await served.connect() for _ in range(3)]
        for client in clients:
            await client.send(GET)
            status, headers = await client.head()
            assert (status, headers[b"transfer-encoding"]) == (200, b"chunked")
        await until(lambda: len(watchers.streams) == 3)
        event = frame(b'{"type":"ADDED"}\n')
        for stream in watchers.streams:
            stream.write(event)
            stream.write(event)
        for client in clients:
            assert [await client.chunk(), await client.chunk()] == [b'{"type":"ADDED"}\n'] * 2
        watchers.streams[0].finish()
        assert await clients[0].chunk() == b""
        assert (watchers.streams[0].closed, watchers.closed) == (True, 1)
        await clients[0].send(GET)
        assert (await clients[0].head())[0] == 200


async def test_a_stream_learns_that_its_client_left() -> None:
    watchers = Watchers()
    async with serving(watchers) as served:
        client = await served.connect()
        await client.send(GET)
        await client.head()
        await until(lambda: len(watchers.streams) == 1)
        client.writer.transport.abort()
        await until(lambda: watchers.closed == 1)
        stream = watchers.streams[0]
        stream.write(frame(b"too late"))
        stream.finish()
        await stream.drain()
        assert (stream.closed, stream.buffered, watchers.closed) == (True, 0, 1)


async def test_a_coroutine_stream_ends_with_its_coroutine_and_is_cancelled_when_its_client_leaves() -> None:
    cancelled = asyncio.Event()

    async def start(stream: ResponseStream) -> None:
        stream.write(frame(b"one"))
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def short(stream: ResponseStream) -> None:
        stream.write(frame(b"one"))
        await stream.drain()

    async def handler(request: Request) -> Answer:
        return StreamingResponse(200, (), short if request.path == "/short" else start)

    async with serving(handler) as served:
        client = await served.connect()
        await client.send(b"GET /short HTTP/1.1\r\nHost: a\r\n\r\n")
        await client.head()
        assert [await client.chunk(), await client.chunk()] == [b"one", b""]
        await client.send(GET)
        await client.head()
        assert await client.chunk() == b"one"
        client.writer.transport.abort()
        await cancelled.wait()


async def test_a_stream_that_fails_does_not_end_well() -> None:
    async def start(stream: ResponseStream) -> None:
        stream.write(frame(b"one"))
        await stream.drain()
        raise RuntimeError("no more")

    async with serving(lambda request: StreamingResponse(200, (), start)) as served:
        client = await served.connect()
        await client.send(GET)
        await client.head()
        assert not (await client.rest()).endswith(b"0\r\n\r\n")


async def test_an_http_1_0_client_gets_a_stream_without_chunks() -> None:
    watchers = Watchers()
    async with serving(watchers) as served:
        client = await served.connect()
        await client.send(b"GET / HTTP/1.0\r\n\r\n")
        _, headers = await client.head()
        assert b"transfer-encoding" not in headers
        await until(lambda: len(watchers.streams) == 1)
        watchers.streams[0].write(frame(b"one\n"))
        watchers.streams[0].write(frame(b"two\n"))
        watchers.streams[0].finish()
        assert await client.rest() == b"one\ntwo\n"


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_a_stream_knows_what_its_client_has_not_taken(files: CertificateFiles, secure: bool) -> None:
    tls: dict[str, Any] = {"server_tls": server_context(files), "client_tls": client_context(files)} if secure else {}
    watchers = Watchers()
    async with serving(watchers, **tls) as served:
        client = await served.connect(limit=1 << 20)
        await client.send(GET)
        await client.head()
        await until(lambda: len(watchers.streams) == 1)
        (stream,) = watchers.streams
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        event = frame(b"x" * 1_000_000)
        for _ in range(30):
            stream.write(event)
        await asyncio.sleep(0)
        assert stream.buffered > 10_000_000
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        drained = asyncio.ensure_future(stream.drain())
        for _ in range(30):
            assert len(await client.chunk()) == 1_000_000
        await drained
        assert stream.buffered == 0


async def test_head_of_a_stream_is_only_the_head() -> None:
    watchers = Watchers()
    async with serving(watchers) as served:
        client = await served.connect()
        for _ in range(2):
            await client.send(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert (await client.head())[0] == 200
    assert watchers.streams == []


UPGRADE = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_a_connection_can_be_taken_over(files: CertificateFiles, secure: bool) -> None:
    tls: dict[str, Any] = {"server_tls": server_context(files), "client_tls": client_context(files)} if secure else {}

    async def shout(transport: asyncio.Transport, leftover: bytes) -> None:
        reader, writer = await reader_and_writer(transport, leftover)
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
            if line == b"bye\n":
                return

    async def handler(request: Request) -> Answer:
        assert request.upgrade
        return Takeover(shout, [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")])

    async with serving(handler, **tls) as served:
        client = await served.connect()
        await client.send(UPGRADE + b"early\n")
        status, headers = await client.head()
        assert (status, headers[b"upgrade"]) == (101, b"websocket")
        assert b"content-length" not in headers
        assert await client.reader.readline() == b"EARLY\n"
        await client.send(b"late\nbye\n")
        assert await client.rest() == b"LATE\nBYE\n"
        await until(lambda: served.server.connections == 0)


async def test_a_takeover_ends_when_the_server_stops() -> None:
    started = asyncio.Event()

    async def forever(transport: asyncio.Transport, leftover: bytes) -> None:
        started.set()
        await asyncio.Event().wait()

    async with serving(lambda request: Takeover(forever)) as served:
        client = await served.connect()
        await client.send(UPGRADE)
        await started.wait()
        await served.server.stop(10.0)
        assert (await client.head())[0] == 101
        assert await client.rest() == b""


async def test_an_upgrade_may_be_refused_with_an_answer() -> None:
    async with serving(hello) as served:
        client = await served.connect()
        await client.send(UPGRADE + b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await client.reply()).headers[b"connection"] == b"close"
        assert await client.rest() == b""
