"""A client that takes all connections of a server of the node takes none from the others."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator

import pytest
from tests.free_ports import free_port
from tests.network.dns.queries import encode_query, parse_response

from pinnace.network.dns.server import DnsServer
from pinnace.network.dns.upstream import DnsUpstream
from pinnace.network.dns.wire import RecordType, ResponseCode
from pinnace.network.dns.zone import Zone
from pinnace.network.services import proxy
from pinnace.network.services.proxy import ServiceProxy
from pinnace.network.services.table import Backends, Endpoint, Frontend
from pinnace.network.shares import Shares
from pinnace.network.sockets import HostSockets, open_listener
from pinnace.process.clock import SystemClock

_LOOPBACK, _GREEDY, _OTHER = "127.0.0.1", "127.0.0.2", "127.0.0.3"
_MANY = 300


class _SlowServer(asyncio.DatagramProtocol):
    """Answers only for one name."""

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self.transport = transport
        self.request_count = 0

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.request_count += 1
        if b"quick" in data:
            self.transport.sendto(data[:2] + b"\x81\x83" + data[4:], addr)


@pytest.fixture
async def slow() -> AsyncIterator[tuple[_SlowServer, int]]:
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(_SlowServer, local_addr=(_LOOPBACK, 0))
    yield server, transport.get_extra_info("sockname")[1]
    transport.close()


@pytest.fixture
async def dns(slow: tuple[_SlowServer, int]) -> AsyncIterator[tuple[str, int]]:
    datagrams = await open_listener(HostSockets(), socket.SOCK_DGRAM, _LOOPBACK, 0)
    address: tuple[str, int] = datagrams.getsockname()
    listener = await open_listener(HostSockets(), socket.SOCK_STREAM, *address)
    server = DnsServer(Zone(), datagrams, listener, DnsUpstream([_LOOPBACK], port=slow[1]))
    yield address
    await server.close()


def _datagrams(source: str, to: tuple[str, int]) -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.setblocking(False)
    opened.bind((source, 0))
    opened.connect(to)
    return opened


async def _connect(source: str, to: tuple[str, int]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(*to, local_addr=(source, 0))


async def test_unanswered_questions_of_one_client_leave_room_for_those_of_others(
    dns: tuple[str, int], slow: tuple[_SlowServer, int]
) -> None:
    with _datagrams(_GREEDY, dns) as greedy, _datagrams(_OTHER, dns) as other:
        async with asyncio.timeout(60):
            for _ in range(_MANY):
                greedy.send(encode_query("never.example.com", RecordType.A))
            while slow[0].request_count < 200:
                await asyncio.sleep(0)
            other.send(encode_query("quick.example.com", RecordType.A))
            answer = await asyncio.get_running_loop().sock_recv(other, 4096)
    assert parse_response(answer).code == ResponseCode.NAME_ERROR


async def test_connections_of_one_client_to_the_dns_server_leave_room_for_those_of_others(
    dns: tuple[str, int],
) -> None:
    async with asyncio.timeout(60):
        held = [await _connect(_GREEDY, dns) for _ in range(_MANY)]
        assert await held[-1][0].read() == b"", "the server has no room for it"
        reader, writer = await _connect(_OTHER, dns)
        query = encode_query("quick.example.com", RecordType.A)
        writer.write(struct.pack("!H", len(query)) + query)
        (length,) = struct.unpack("!H", await reader.readexactly(2))
        assert parse_response(await reader.readexactly(length)).code == ResponseCode.NAME_ERROR
    for _, opened in (*held, (reader, writer)):
        opened.close()


async def test_connections_of_one_client_to_a_service_leave_room_for_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pod held all connections to the API server, and no other pod of its node reached it."""
    monkeypatch.setattr(proxy, "_MOST_CONNECTIONS", 20)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, _LOOPBACK, 0)
    service = ServiceProxy(HostSockets(), HostSockets(), SystemClock())
    frontend = Frontend(_LOOPBACK, "TCP", free_port())
    place = (_LOOPBACK, frontend.port)
    await service.apply({frontend: Backends((Endpoint(_LOOPBACK, server.sockets[0].getsockname()[1]),))})
    try:
        async with asyncio.timeout(60):
            held = [await _connect(_GREEDY, place) for _ in range(20)]
            for reader, writer in held:
                writer.write(b"x")
                assert await reader.readexactly(1) == b"x"
            others = [await _connect(_OTHER, place) for _ in range(10)]
            for reader, writer in others:
                writer.write(b"y")
                assert await reader.readexactly(1) == b"y"
            for _, writer in (*held, *others):
                writer.close()
    finally:
        await service.close()
        server.close()


def test_the_client_with_the_most_connections_loses_its_newest_to_clients_with_fewer() -> None:
    ended: list[str] = []
    shares = Shares[str](4, ended.append)
    for client, connection in (("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1")):
        assert shares.make_room(client)
        shares.add(client, connection)
    assert not shares.make_room("a")
    assert shares.make_room("b")
    assert ended == ["a3"]
    shares.add("b", "b2")
    assert not shares.make_room("a")
    assert not shares.make_room("b")
    assert shares.make_room("c")
    assert len(shares) == 3
