"""Clients of a served API that are slow, silent, too large or too many."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from tests.sdk.recipes import KIND, kitchen, recipe

from pinnace.model import errors
from pinnace.sdk import Key, Memory
from pinnace.sdk.api import application
from pinnace.sdk.api.application import ApiApplication
from pinnace.sdk.api.http import HttpApi
from pinnace.sdk.operator.webhook_server import IdleConnections
from pinnace.serving.limits import Limits
from pinnace.serving.messages import Answer, Request, Response, ResponseStream, StreamingResponse, frame
from pinnace.testing.cluster import Cluster

BOUND = 60.0
servers: list[web.Server] = []
"""The last is that of the running test."""


class Answering(ApiApplication):
    """Reads the body of each request, then answers as the test says."""

    def __init__(self, respond: Callable[[], Answer]) -> None:
        self.watches = 0
        self._respond = respond

    async def answer(self, request: Request, read_body: Callable[[], Awaitable[bytes]]) -> Answer:
        try:
            await read_body()
        except errors.ApiError as error:
            return Response(error.code, (), error.message.encode())
        return self._respond()


@asynccontextmanager
async def serving(respond: Callable[[], Answer], limits: Limits) -> AsyncIterator[int]:
    """Serve on a free port, which is yielded."""
    connections = IdleConnections(limits)
    app = web.Application(middlewares=[connections.middleware])
    app.router.add_route("*", "/{path:.*}", HttpApi(Answering(respond), limits).answer)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    assert runner.server is not None
    servers.append(runner.server)
    closing = asyncio.create_task(connections.close_idle(runner.server))
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        closing.cancel()
        await runner.cleanup()


async def test_a_client_that_sends_half_a_head_is_cut_off() -> None:
    async with serving(lambda: Response(200), Limits(idle_time=0.05)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ")
        await _is_cut(reader)
        writer.close()


async def test_a_client_that_sends_its_body_slowly_is_refused() -> None:
    async with serving(lambda: Response(200), Limits(body_time=0.05)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
        assert b" 504 " in await asyncio.wait_for(reader.readline(), BOUND)
        writer.close()


async def test_a_body_beyond_the_limit_is_refused_unread() -> None:
    async with serving(lambda: Response(200), Limits(body=1000)) as port:
        for head in (b"Content-Length: 1000000", b"Transfer-Encoding: chunked"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST / HTTP/1.1\r\nHost: a\r\n%b\r\n\r\n" % head)
            writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
            assert b" 413 " in await asyncio.wait_for(reader.readline(), BOUND)
            writer.close()


@pytest.mark.parametrize("is_watch", [False, True], ids=["an answer", "a watch"])
async def test_a_client_that_reads_nothing_is_cut_off(is_watch: bool) -> None:
    body, begun = b"x" * 32_000_000, list[bool]()

    def start(stream: ResponseStream) -> None:
        stream.write(frame(body))

    def respond() -> Answer:
        begun.append(True)
        return StreamingResponse(200, (), start) if is_watch else Response(200, (), body)

    async with serving(respond, Limits(stall_time=0.05)) as port:
        server = servers[-1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.setblocking(False)
            await asyncio.get_running_loop().sock_sendall(client, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            async with asyncio.timeout(BOUND):
                while not begun or server.connections:
                    await asyncio.sleep(0.01)


async def test_too_many_requests_are_refused_and_the_next_is_served(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "MOST_READS", 1)
    backend = _Waiting()
    await cluster.run(kitchen(backend))
    await cluster.client.create(recipe())
    backend.holds = True
    first = asyncio.create_task(_get(cluster))
    async with asyncio.timeout(BOUND):
        await backend.was_called.wait()
        answer = await cluster.plane.local().request("GET", "/apis/kitchen.example.com/v1/recipes", b"", {})
        assert answer.status == 429
        backend.goes_on.set()
        assert await first == 200
    assert await cluster.client.get(KIND, "soup")


async def _get(cluster: Cluster) -> int:
    target = "/apis/kitchen.example.com/v1/namespaces/default/recipes/soup"
    return (await cluster.plane.local().request("GET", target, b"", {})).status


class _Waiting(Memory):
    """Answers a get when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = False
        self.was_called = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def get(self, key: Key) -> object:  # type: ignore[override]
        if self.holds:
            self.was_called.set()
            await self.goes_on.wait()
        return super().get(key)


async def _is_cut(reader: asyncio.StreamReader) -> None:
    """Return when the server has closed the connection."""
    try:
        assert await asyncio.wait_for(reader.read(), BOUND) == b""
    except ConnectionError:
        return
