"""The names of the cluster: answers to queries, as bytes on the wire."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.network.dns.queries import Response, encode_query, parse_response
from tests.network.services.objects import endpoint, endpoint_slice, service

from pinnace.network.dns.network import records_of
from pinnace.network.dns.server import respond
from pinnace.network.dns.wire import RecordType, ResponseCode
from pinnace.network.dns.zone import Zone


def _zone() -> Zone:
    zone = Zone()
    ports = [{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}]
    zone.set("web", records_of(service("web", ports=ports), []))
    members = [endpoint("10.244.0.5") | {"hostname": "db-0"}, endpoint("10.244.0.6") | {"hostname": "db-1"}]
    nameless = [endpoint("10.244.0.7"), endpoint("10.244.0.8", ready=False)]
    headless = service("db", "None")
    targets = [{"name": "sql", "port": 5432, "protocol": "TCP"}]
    zone.set("db", records_of(headless, [endpoint_slice("db", [*members, *nameless], ports=targets)]))
    alias = service("alias", "", type="ExternalName", externalName="web.default.svc.cluster.local")
    zone.set("alias", records_of(alias, []))
    beyond = service("beyond", "", type="ExternalName", externalName="example.com")
    zone.set("beyond", records_of(beyond, []))
    return zone


def _ask(zone: Zone, name: str, kind: RecordType, *, size: int = 0, is_udp: bool = True) -> Response:
    return parse_response(respond(zone, encode_query(name, kind, udp_size=size), is_udp=is_udp))


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("web.default.svc.cluster.local", RecordType.A, {"10.96.0.7"}),
        ("WEB.Default.svc.cluster.local", RecordType.A, {"10.96.0.7"}),
        ("db.default.svc.cluster.local", RecordType.A, {"10.244.0.5", "10.244.0.6", "10.244.0.7"}),
        ("db-0.db.default.svc.cluster.local", RecordType.A, {"10.244.0.5"}),
        ("10-244-0-7.db.default.svc.cluster.local", RecordType.A, {"10.244.0.7"}),
        ("10-244-0-9.default.pod.cluster.local", RecordType.A, {"10.244.0.9"}),
        ("fd00-10-244--9.default.pod.cluster.local", RecordType.AAAA, {"fd00:10:244::9"}),
        ("_http._tcp.web.default.svc.cluster.local", RecordType.SRV, {"0 100 80 web.default.svc.cluster.local"}),
        (
            "_sql._tcp.db.default.svc.cluster.local",
            RecordType.SRV,
            {
                "0 100 5432 db-0.db.default.svc.cluster.local",
                "0 100 5432 db-1.db.default.svc.cluster.local",
                "0 100 5432 10-244-0-7.db.default.svc.cluster.local",
            },
        ),
        ("7.0.96.10.in-addr.arpa", RecordType.PTR, {"web.default.svc.cluster.local"}),
        ("5.0.244.10.in-addr.arpa", RecordType.PTR, {"db-0.db.default.svc.cluster.local"}),
        ("alias.default.svc.cluster.local", RecordType.A, {"web.default.svc.cluster.local", "10.96.0.7"}),
        ("beyond.default.svc.cluster.local", RecordType.A, {"example.com"}),
        ("dns-version.cluster.local", RecordType.TXT, {"1.1.0"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_name_has_its_records(name: str, kind: RecordType, expected: set[str]) -> None:
    response = _ask(_zone(), name, kind)
    assert response.code == ResponseCode.NO_ERROR
    assert response.is_authoritative
    assert set(response.answers) == expected
    assert response.name == name, "the question is repeated as it was asked"


@pytest.mark.parametrize(
    ("name", "kind", "code", "has_authority"),
    [
        ("web.default.svc.cluster.local", RecordType.AAAA, ResponseCode.NO_ERROR, True),
        ("default.svc.cluster.local", RecordType.A, ResponseCode.NO_ERROR, True),
        ("cluster.local", RecordType.A, ResponseCode.NO_ERROR, True),
        ("other.default.svc.cluster.local", RecordType.A, ResponseCode.NAME_ERROR, True),
        ("web.other.svc.cluster.local", RecordType.A, ResponseCode.NAME_ERROR, True),
        ("10-244-0-8.db.default.svc.cluster.local", RecordType.A, ResponseCode.NAME_ERROR, True),
        ("999-244-0-8.default.pod.cluster.local", RecordType.A, ResponseCode.NAME_ERROR, True),
        ("9.9.9.10.in-addr.arpa", RecordType.PTR, ResponseCode.NAME_ERROR, True),
        ("example.com", RecordType.A, ResponseCode.REFUSED, False),
        ("web", RecordType.A, ResponseCode.NAME_ERROR, False),
        ("other.default.svc", RecordType.A, ResponseCode.NAME_ERROR, False),
        ("fd00-10-244--zz.default.pod.cluster.local", RecordType.AAAA, ResponseCode.NAME_ERROR, True),
        ("10-244-0-9.other.pod.cluster.local", RecordType.A, ResponseCode.NAME_ERROR, True),
    ],
)
def test_a_negative_answer_says_what_is_missing(
    name: str, kind: RecordType, code: ResponseCode, has_authority: bool
) -> None:
    response = _ask(_zone(), name, kind)
    assert (response.code, response.answers, bool(response.authority)) == (code, [], has_authority)


def test_changes_replace_the_records_of_their_owner() -> None:
    zone = _zone()
    assert _ask(zone, "web.default.svc.cluster.local", RecordType.A).answers == ["10.96.0.7"]
    zone.set("web", records_of(service("web", "10.96.0.99"), []))
    assert _ask(zone, "web.default.svc.cluster.local", RecordType.A).answers == ["10.96.0.99"]
    zone.set("web", [])
    assert _ask(zone, "web.default.svc.cluster.local", RecordType.A).code == ResponseCode.NAME_ERROR
    assert _ask(zone, "7.0.96.10.in-addr.arpa", RecordType.PTR).code == ResponseCode.NAME_ERROR


def test_an_answer_that_is_too_long_for_udp_comes_over_tcp() -> None:
    zone = Zone()
    many = [endpoint(f"10.244.{number // 250}.{number % 250}") for number in range(300)]
    zone.set("many", records_of(service("many", "None"), [endpoint_slice("many", many)]))
    name = "many.default.svc.cluster.local"
    cut = _ask(zone, name, RecordType.A)
    assert cut.is_truncated and cut.answers == []
    assert _ask(zone, name, RecordType.A, size=1232).is_truncated
    assert len(_ask(zone, name, RecordType.A, is_udp=False).answers) == 300


def test_the_order_of_addresses_changes() -> None:
    zone = _zone()
    firsts = {_ask(zone, "db.default.svc.cluster.local", RecordType.A).answers[0] for _ in range(200)}
    assert len(firsts) == 3


def test_an_edns_query_gets_an_edns_answer() -> None:
    response = _ask(_zone(), "web.default.svc.cluster.local", RecordType.A, size=4096)
    assert response.edns_size == 1232
    assert _ask(_zone(), "web.default.svc.cluster.local", RecordType.A).edns_size == 0


_NUMBERS = st.integers(0, 0xFFFF)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=100) | st.builds(lambda *words: struct.pack("!HHHHHH", *words), *[_NUMBERS] * 6))
def test_any_bytes_get_a_response_or_none(data: bytes) -> None:
    response = respond(_zone(), data, is_udp=True)
    assert response == b"" or response[:2] == data[:2]
    assert not response or response[2] & 0x80


def test_a_response_is_never_answered() -> None:
    query = bytearray(encode_query("web.default.svc.cluster.local", RecordType.A))
    query[2] |= 0x80
    assert respond(_zone(), bytes(query), is_udp=True) == b""


def test_services_of_both_families_have_both_addresses() -> None:
    dual: Any = service("dual", clusterIPs=["10.96.0.9", "fd00::9"], clusterIP="10.96.0.9")
    zone = Zone()
    zone.set("dual", records_of(dual, []))
    name = "dual.default.svc.cluster.local"
    assert _ask(zone, name, RecordType.AAAA).answers == [
        socket.inet_ntop(socket.AF_INET6, b"\xfd" + b"\0" * 14 + b"\x09")
    ]
    assert _ask(zone, name, RecordType.A).answers == ["10.96.0.9"]
