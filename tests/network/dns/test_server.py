"""Each type of record for Services, pods and StatefulSet members, over UDP and over TCP."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from tests.network.dns.queries import Response, encode_query, parse_response
from tests.network.services.objects import endpoint, endpoint_slice, service

from pinnace.network.dns.network import records_of
from pinnace.network.dns.server import DnsServer
from pinnace.network.dns.wire import RecordType, ResponseCode
from pinnace.network.dns.zone import Zone
from pinnace.network.sockets import HostSockets, open_listener

_ZONE = "svc.cluster.local"


def _zone() -> Zone:
    zone = Zone()
    ports = [{"name": "http", "port": 80, "protocol": "TCP"}]
    dual = service("web", ports=ports, clusterIPs=["10.96.0.7", "fd00:10:96::7"])
    zone.set("web", records_of(dual, []))
    sql = [{"name": "sql", "port": 5432, "protocol": "TCP"}]
    four = endpoint_slice("db", [endpoint("10.244.0.5") | {"hostname": "db-0"}], ports=sql)
    six = endpoint_slice(
        "db", [endpoint("fd00:10:244::5") | {"hostname": "db-0"}], "db-2", addressType="IPv6", ports=sql
    )
    zone.set("db", records_of(service("db", "None"), [four, six]))
    return zone


@dataclass
class _Client:
    """Asks one server over one of its two transports."""

    port: int
    is_udp: bool

    async def ask(self, name: str, kind: RecordType) -> Response:
        query = encode_query(name, kind)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(60):
            if not self.is_udp:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.write(struct.pack("!H", len(query)) + query)
                (length,) = struct.unpack("!H", await reader.readexactly(2))
                response = await reader.readexactly(length)
                writer.close()
                return parse_response(response)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
                opened.setblocking(False)
                opened.connect(("127.0.0.1", self.port))
                await loop.sock_sendall(opened, query)
                return parse_response(await loop.sock_recv(opened, 4096))


@pytest.fixture(params=["UDP", "TCP"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[_Client]:
    listener = await open_listener(HostSockets(), socket.SOCK_STREAM, "127.0.0.1", 0)
    datagrams = await open_listener(HostSockets(), socket.SOCK_DGRAM, "127.0.0.1", 0)
    server = DnsServer(_zone(), datagrams, listener)
    is_udp = request.param == "UDP"
    yield _Client((datagrams if is_udp else listener).getsockname()[1], is_udp)
    await server.close()


_RECORDS = [
    pytest.param(f"web.default.{_ZONE}", RecordType.A, ["10.96.0.7"], id="A of a Service"),
    pytest.param(f"web.default.{_ZONE}", RecordType.AAAA, ["fd00:10:96::7"], id="AAAA of a Service"),
    pytest.param(
        f"_http._tcp.web.default.{_ZONE}", RecordType.SRV, [f"0 100 80 web.default.{_ZONE}"], id="SRV of a Service"
    ),
    pytest.param("7.0.96.10.in-addr.arpa", RecordType.PTR, [f"web.default.{_ZONE}"], id="PTR of a Service"),
    pytest.param(
        "7." + "0." * 19 + "6.9.0.0.0.1.0.0.0.0.d.f.ip6.arpa",
        RecordType.PTR,
        [f"web.default.{_ZONE}"],
        id="PTR of the IPv6 address of a Service",
    ),
    pytest.param(f"db.default.{_ZONE}", RecordType.A, ["10.244.0.5"], id="A of a headless Service"),
    pytest.param(f"db.default.{_ZONE}", RecordType.AAAA, ["fd00:10:244::5"], id="AAAA of a headless Service"),
    pytest.param(f"db-0.db.default.{_ZONE}", RecordType.A, ["10.244.0.5"], id="A of a StatefulSet member"),
    pytest.param(f"db-0.db.default.{_ZONE}", RecordType.AAAA, ["fd00:10:244::5"], id="AAAA of a StatefulSet member"),
    pytest.param(
        f"_sql._tcp.db.default.{_ZONE}",
        RecordType.SRV,
        [f"0 100 5432 db-0.db.default.{_ZONE}"],
        id="SRV of StatefulSet members",
    ),
    pytest.param(
        "5.0.244.10.in-addr.arpa", RecordType.PTR, [f"db-0.db.default.{_ZONE}"], id="PTR of a StatefulSet member"
    ),
    pytest.param("10-244-0-9.default.pod.cluster.local", RecordType.A, ["10.244.0.9"], id="A of a pod"),
    pytest.param("fd00-10-244--9.default.pod.cluster.local", RecordType.AAAA, ["fd00:10:244::9"], id="AAAA of a pod"),
]


@pytest.mark.parametrize(("name", "kind", "expected"), _RECORDS)
async def test_a_record_is_served(client: _Client, name: str, kind: RecordType, expected: list[str]) -> None:
    response = await client.ask(name, kind)
    assert (response.code, sorted(response.answers)) == (ResponseCode.NO_ERROR, expected)


@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [
        pytest.param(f"other.default.{_ZONE}", RecordType.A, ResponseCode.NAME_ERROR, id="a Service that is missing"),
        pytest.param(
            f"db-7.db.default.{_ZONE}", RecordType.A, ResponseCode.NAME_ERROR, id="a StatefulSet member that is missing"
        ),
        pytest.param(
            f"_http._tcp.web.default.{_ZONE}", RecordType.A, ResponseCode.NO_ERROR, id="a type that is missing"
        ),
        pytest.param("9.9.9.10.in-addr.arpa", RecordType.PTR, ResponseCode.NAME_ERROR, id="an address without a name"),
        pytest.param("example.com", RecordType.A, ResponseCode.REFUSED, id="a name outside of the cluster"),
    ],
)
async def test_a_negative_answer_is_served(client: _Client, name: str, kind: RecordType, code: ResponseCode) -> None:
    response = await client.ask(name, kind)
    assert (response.code, response.answers) == (code, [])
    assert bool(response.authority) is (code != ResponseCode.REFUSED), "the SOA says how long to keep the answer"
