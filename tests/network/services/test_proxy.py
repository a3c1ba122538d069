"""The proxy for Service addresses and the health-check ports, on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.free_ports import free_port

from pinnace.model.objects import Key
from pinnace.network.services.network import HealthCheckPorts
from pinnace.network.services.proxy import ServiceProxy
from pinnace.network.services.table import Backends, Endpoint, Frontend, HealthCheck
from pinnace.network.sockets import HostSockets
from pinnace.process.clock import SystemClock

_LOOPBACK = "127.0.0.1"
_LARGE = os.urandom(8 << 20)
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Bench:
    """A proxy with one frontend, and servers behind it."""

    def __init__(self) -> None:
        self.proxy = ServiceProxy(HostSockets(), HostSockets(), SystemClock())
        self.frontend = Frontend(_LOOPBACK, "TCP", free_port())
        self.servers: list[asyncio.Server] = []

    async def serve(self, handler: Handler) -> Endpoint:
        server = await asyncio.start_server(handler, _LOOPBACK, 0)
        self.servers.append(server)
        return Endpoint(_LOOPBACK, server.sockets[0].getsockname()[1])

    async def lead_to(self, *endpoints: Endpoint) -> None:
        await self.proxy.apply({self.frontend: Backends(endpoints)})

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(_LOOPBACK, self.frontend.port)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    async with asyncio.timeout(60):
        yield made
    await made.proxy.close()
    for server in made.servers:
        server.close()


async def _echo_at_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer only after the client has ended its side: the connection must be half closed."""
    writer.write(await reader.read(-1))
    await writer.drain()
    writer.close()


async def test_every_byte_passes_in_both_directions_through_a_half_closed_connection(bench: Bench) -> None:
    await bench.lead_to(await bench.serve(_echo_at_end))
    reader, writer = await bench.connect()
    writer.write(_LARGE)
    writer.write_eof()
    assert await reader.read(-1) == _LARGE
    writer.close()


async def test_a_slow_reader_loses_nothing_and_holds_up_no_other(bench: Bench) -> None:
    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(_LARGE)
        await writer.drain()
        writer.close()

    await bench.lead_to(await bench.serve(send))
    slow, slow_writer = await bench.connect()
    for _ in range(3):
        fast, writer = await bench.connect()
        assert await fast.read(-1) == _LARGE
        writer.close()
    assert await slow.read(-1) == _LARGE
    slow_writer.close()


async def test_endpoints_that_refuse_are_passed_over(bench: Bench) -> None:
    dead = [Endpoint(_LOOPBACK, free_port()) for _ in range(300)]
    await bench.lead_to(*dead, await bench.serve(_echo_at_end))
    for _ in range(5):
        reader, writer = await bench.connect()
        writer.write(b"hello")
        writer.write_eof()
        assert await reader.read(-1) == b"hello"
        writer.close()


async def test_a_port_of_another_process_is_opened_when_it_is_free(bench: Bench) -> None:
    with socket.create_server((_LOOPBACK, bench.frontend.port)):
        await bench.lead_to(await bench.serve(_echo_at_end))
        await bench.proxy.retry()
        assert bench.proxy.is_waiting, "the port is still in use"
    await bench.proxy.retry()
    assert not bench.proxy.is_waiting
    reader, writer = await bench.connect()
    writer.write(b"hello")
    writer.write_eof()
    assert await reader.read(-1) == b"hello"
    writer.close()


async def test_a_client_is_reset_when_every_endpoint_refuses(bench: Bench) -> None:
    await bench.lead_to(Endpoint(_LOOPBACK, free_port()))
    reader, writer = await bench.connect()
    with pytest.raises(ConnectionResetError):
        await reader.read(1)
    writer.close()


async def test_a_reset_reaches_the_endpoint(bench: Bench) -> None:
    lost = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"ready")
        try:
            await reader.read(-1)
        except ConnectionResetError:
            lost.set()
        writer.close()

    await bench.lead_to(await bench.serve(wait))
    reader, writer = await bench.connect()
    await reader.readexactly(5)
    opened = writer.get_extra_info("socket")
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    await lost.wait()


async def test_open_connections_survive_a_change_and_the_end_of_their_frontend(bench: Bench) -> None:
    endpoint = await bench.serve(_echo_at_end)
    await bench.lead_to(endpoint)
    reader, writer = await bench.connect()
    writer.write(b"hel")
    await bench.lead_to(Endpoint(_LOOPBACK, free_port()))
    await bench.proxy.apply({bench.frontend: None})
    with pytest.raises(ConnectionRefusedError):
        await bench.connect()
    writer.write(b"lo")
    writer.write_eof()
    assert await reader.read(-1) == b"hello"
    writer.close()


async def test_hundreds_of_connections_at_once(bench: Bench) -> None:
    await bench.lead_to(await bench.serve(_echo_at_end))

    async def talk(number: int) -> bool:
        reader, writer = await bench.connect()
        text = str(number).encode() * 1000
        writer.write(text)
        writer.write_eof()
        answer = await reader.read(-1)
        writer.close()
        return answer == text

    assert all(await asyncio.gather(*(talk(number) for number in range(300))))


async def _ask(port: int) -> tuple[str, dict[str, object], str]:
    reader, writer = await asyncio.open_connection(_LOOPBACK, port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n")
    head, _, body = (await reader.read(-1)).decode().partition("\r\n\r\n")
    writer.close()
    weight = head.partition("X-Load-Balancing-Endpoint-Weight: ")[2].partition("\r\n")[0]
    return head.partition("\r\n")[0], json.loads(body), weight


async def test_a_health_check_port_says_whether_the_node_has_endpoints() -> None:
    checks, key, port = HealthCheckPorts(HostSockets(), _LOOPBACK), Key("default", "web"), free_port()
    service = {"namespace": "default", "name": "web"}
    await checks.apply({key: HealthCheck(port, 2)})
    expected = {"service": service, "localEndpoints": 2, "serviceProxyHealthy": True}
    assert await _ask(port) == ("HTTP/1.1 200 OK", expected, "2")
    await checks.apply({key: HealthCheck(port, 0)})
    status, body, weight = await _ask(port)
    assert (status, body["localEndpoints"], weight) == ("HTTP/1.1 503 Service Unavailable", 0, "0")
    await checks.apply({key: HealthCheck(moved := free_port(), 1)})
    assert (await _ask(moved))[0] == "HTTP/1.1 200 OK"
    await checks.close()
    for closed in (port, moved):
        with pytest.raises(ConnectionRefusedError):
            await _ask(closed)


async def test_the_second_node_of_a_machine_takes_a_health_check_port_when_the_first_has_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, second = (HealthCheckPorts(HostSockets(), _LOOPBACK) for _ in range(2))
    key, port = Key("default", "web"), free_port()
    await first.apply({key: HealthCheck(port, 1)})
    for endpoints in (2, 3):
        await second.apply({key: HealthCheck(port, endpoints)})
    assert (await _ask(port))[2] == "1"
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []
    await first.close()
    await second.apply({key: HealthCheck(port, 4)})
    assert (await _ask(port))[2] == "4"
    await second.close()
