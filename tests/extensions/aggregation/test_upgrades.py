"""Connections that go on in another protocol, through the server to another server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp
import pytest
from tests.extensions.aggregated_server import ROOT
from tests.extensions.aggregation.aggregating import Aggregating

from pinnace.model.users import User
from pinnace.server.http.server import HttpServer

TALK = f"{ROOT}/namespaces/default/recipes/soup/talk"
ADA = User("ada", ("system:masters",))


@pytest.fixture
async def port(cluster: Aggregating) -> AsyncIterator[int]:
    """The server's port, with the aggregated server behind it; each caller is ada."""
    await cluster.register()
    server = HttpServer()
    await server.start("127.0.0.1", 0, None, lambda request: cluster.plane.api(request, ADA))
    yield server.port
    await server.stop(0)


async def test_a_websocket_is_passed_on_with_the_name_of_the_caller(port: int) -> None:
    forged = {"X-Remote-User": "root"}
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(
            f"http://127.0.0.1:{port}{TALK}", headers=forged, protocols=("kitchen.example.com",)
        ) as socket,
    ):
        assert socket.protocol == "kitchen.example.com"
        for text in ("hello", "x" * 200_000):
            await socket.send_str(text)
            assert await socket.receive_str() == f"ada: {text}"


async def test_bytes_of_any_protocol_pass_both_ways_until_one_side_ends(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {TALK} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n"
    writer.write(head.encode() + b"early")
    answer = await reader.readuntil(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 101 ") and b"Upgrade: SPDY/3.1\r\n" in answer
    assert await reader.readexactly(5) == b"early"
    data = bytes(range(256)) * 4000
    writer.write(data)
    assert await reader.readexactly(len(data)) == data
    writer.close()
    await writer.wait_closed()


async def test_a_server_that_will_not_upgrade_says_why(port: int) -> None:
    async with aiohttp.ClientSession() as session:
        headers = {"Connection": "Upgrade", "Upgrade": "smoke-signals"}
        async with session.get(f"http://127.0.0.1:{port}{TALK}", headers=headers) as answer:
            assert (answer.status, await answer.text()) == (400, "let us talk over WebSocket")


async def test_a_refused_upgrade_leaves_no_tunnel_behind(port: int) -> None:
    """CVE-2018-1002105: the connection to the other server stayed open, with the rights of the proxy."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET {TALK} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: smoke-signals\r\n\r\n"
    stolen = "GET /version HTTP/1.1\r\nHost: x\r\nX-Remote-User: root\r\nX-Remote-Group: system:masters\r\n\r\n"
    writer.write((head + stolen).encode())
    answer = await reader.readuntil(b"let us talk over WebSocket")
    assert answer.startswith(b"HTTP/1.1 400 ")
    writer.write(b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(60):
        with contextlib.suppress(ConnectionError):
            rest = await reader.read()
            assert not rest or b'"gitVersion"' in rest, "the API server itself answers, or the connection is closed"
    writer.close()


async def test_an_upgrade_to_a_server_that_is_gone_is_refused_with_the_reason(port: int, cluster: Aggregating) -> None:
    await cluster.stop_kitchen()
    async with aiohttp.ClientSession() as session:
        headers = {"Connection": "Upgrade", "Upgrade": "websocket"}
        async with session.get(f"http://127.0.0.1:{port}{TALK}", headers=headers) as answer:
            assert answer.status == 503
            assert "service unavailable" in (await answer.json())["message"]
    await cluster.available("False")
