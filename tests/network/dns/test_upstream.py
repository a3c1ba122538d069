"""Names outside of the cluster: refused, or answered by the machine's servers where pods have egress."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.network.dns.queries import encode_query, parse_response
from tests.network.services.objects import service

from pinnace.network.dns.network import records_of
from pinnace.network.dns.server import DnsServer
from pinnace.network.dns.upstream import DnsUpstream, servers_of_machine
from pinnace.network.dns.wire import RecordType, ResponseCode
from pinnace.network.dns.zone import Zone
from pinnace.network.sockets import HostSockets, open_listener


class _FarServer(asyncio.DatagramProtocol):
    """Answers that a name does not exist, after a packet that belongs to another query."""

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self.transport = transport
        self.request_count = 0

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.request_count += 1
        answer = data[2:3] + bytes((ResponseCode.NAME_ERROR | 0x80,))
        self.transport.sendto(b"\0\0" + bytes((0x81,)) + answer[1:] + data[4:], addr)
        self.transport.sendto(data[:2] + bytes((0x81,)) + answer[1:] + data[4:], addr)


@pytest.fixture
async def far() -> AsyncIterator[tuple[_FarServer, int]]:
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(_FarServer, local_addr=("127.0.0.1", 0))
    yield server, transport.get_extra_info("sockname")[1]
    transport.close()


async def _ask(upstream: DnsUpstream | None, name: str) -> int:
    zone = Zone()
    zone.set("web", records_of(service("web"), []))
    datagrams = await open_listener(HostSockets(), socket.SOCK_DGRAM, "127.0.0.1", 0)
    listener = await open_listener(HostSockets(), socket.SOCK_STREAM, "127.0.0.1", 0)
    address = datagrams.getsockname()
    server = DnsServer(zone, datagrams, listener, upstream)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.setblocking(False)
            client.connect(address)
            client.send(encode_query(name, RecordType.A))
            async with asyncio.timeout(60):
                return parse_response(await asyncio.get_running_loop().sock_recv(client, 4096)).code
    finally:
        await server.close()


async def test_foreign_names_go_to_the_machines_servers(far: tuple[_FarServer, int]) -> None:
    server, port = far
    upstream = DnsUpstream(["127.0.0.1"], port=port)
    assert await _ask(upstream, "example.com") == ResponseCode.NAME_ERROR
    assert server.request_count == 1
    assert await _ask(upstream, "web.default.svc.cluster.local") == ResponseCode.NO_ERROR
    assert server.request_count == 1


async def test_foreign_names_are_refused_without_egress() -> None:
    assert await _ask(None, "example.com") == ResponseCode.REFUSED


def test_the_servers_of_the_machine_come_from_its_own_file(tmp_path: Path) -> None:
    file = tmp_path / "resolv.conf"
    file.write_text("# nameserver 9.9.9.9\nsearch example.com\nnameserver 127.0.0.53\nnameserver x\nnameserver ::1\n")
    assert servers_of_machine(file) == ["127.0.0.53", "::1"]
    assert servers_of_machine(tmp_path / "missing") == []
