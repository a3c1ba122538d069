"""The HTTP server through sockets: stopping."""

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
from pinnace.server.http.server import Limits, Request, Response, frame

__all__ = ["event_loop_policy", "files", "pytestmark"]


async def test_stopping_finishes_what_is_in_flight_and_closes_what_is_idle() -> None:
    release = asyncio.Event()
    entered = asyncio.Event()

    async def handler(request: Request) -> Response:
        if request.path == "/slow":
            entered.set()
            await release.wait()
        return hello(request)

    async with serving(handler) as served:
        idle, busy = await served.connect(), await served.connect()
        await idle.send(GET)
        assert (await idle.reply()).status == 200
        await busy.send(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
        await entered.wait()
        port = served.server.port
        stopping = asyncio.ensure_future(served.server.stop(10.0))
        assert await idle.rest() == b""
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", port)
        assert not stopping.done()
        release.set()
        reply = await busy.reply()
        assert (reply.body, reply.headers[b"connection"]) == (b"hello /slow", b"close")
        await stopping
        assert served.server.connections == 0


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_stopping_ends_streams_cleanly(files: CertificateFiles, secure: bool) -> None:
    tls: dict[str, Any] = {"server_tls": server_context(files), "client_tls": client_context(files)} if secure else {}
    watchers = Watchers()
    async with serving(watchers, **tls) as served:
        client = await served.connect()
        await client.send(GET)
        await client.head()
        await until(lambda: len(watchers.streams) == 1)
        watchers.streams[0].write(frame(b"last words"))
        stopping = asyncio.ensure_future(served.server.stop(10.0))
        assert await client.rest() == frame(b"last words") + b"0\r\n\r\n"
        client.writer.close()
        await stopping
        assert watchers.closed == 1


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_a_draining_server_closes_each_connection_after_its_next_answer(
    files: CertificateFiles, secure: bool
) -> None:
    tls: dict[str, Any] = {"server_tls": server_context(files), "client_tls": client_context(files)} if secure else {}
    watchers = Watchers()
    async with serving(lambda request: hello(request) if request.path == "/" else watchers(request), **tls) as served:
        known, silent, watch = [await served.connect() for _ in range(3)]
        for client in (known, silent):
            await client.send(GET)
            assert b"connection" not in (await client.reply()).headers
        await watch.send(GET.replace(b" / ", b" /watch "))
        await watch.head()
        draining = asyncio.ensure_future(served.server.drain(60.0))
        await asyncio.sleep(0)
        new = await served.connect()
        for client in (known, new):
            await client.send(GET)
            reply = await client.reply()
            assert (reply.status, reply.headers[b"connection"]) == (200, b"close")
            assert await client.rest() == b""
        watchers.streams[0].write(frame(b"an event"))
        assert await watch.chunk() == b"an event"
        draining.cancel()
        await silent.send(GET)
        assert (await silent.reply()).headers[b"connection"] == b"close"


async def test_stopping_is_bounded() -> None:
    entered = asyncio.Event()
    cancelled = asyncio.Event()

    async def handler(request: Request) -> Response:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return hello(request)

    async with serving(handler) as served:
        client = await served.connect()
        await client.send(GET)
        await entered.wait()
        await served.server.stop(0.05)
        assert cancelled.is_set()
        assert await client.rest() == b""
        assert served.server.connections == 0


async def test_stopping_does_not_wait_for_an_idle_client_that_never_says_goodbye(files: CertificateFiles) -> None:
    limits = Limits(linger_time=0.05)
    tls: dict[str, Any] = {"server_tls": server_context(files), "client_tls": client_context(files)}
    async with serving(hello, limits=limits, **tls) as served:
        client = await served.connect()
        await client.send(GET)
        assert (await client.reply()).status == 200
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        assert served.server.connections == 1
        await asyncio.wait_for(served.server.stop(240.0), 60)
        assert served.server.connections == 0
