"""The endpoints behind each Service address."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.network.services.objects import endpoint, endpoint_slice, service

from pinnace.model.objects import Key
from pinnace.network.services.table import (
    MOST_EXTERNAL,
    Backends,
    Endpoint,
    Frontend,
    ServiceIndex,
    ServiceTable,
    table_of,
)

_TWO = [endpoint("10.244.0.2", ready=True), endpoint("10.244.1.2", node="there", ready=True)]
_HERE, _THERE = Endpoint("10.244.0.2", 8080), Endpoint("10.244.1.2", 8080)
_CLUSTER = Frontend("10.96.0.7", "TCP", 80)
_NODE_PORT = Frontend("0.0.0.0", "TCP", 30080)
_PORTS = [{"port": 80, "protocol": "TCP", "nodePort": 30080}]


def _table(*objects: Any) -> ServiceTable:
    kinds = [[obj for obj in objects if obj["kind"] == kind] for kind in ("Service", "EndpointSlice")]
    return table_of(kinds[0], kinds[1], node="here")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, {_CLUSTER: Backends((_HERE, _THERE))}, id="cluster IP"),
        pytest.param({"clusterIP": "None", "clusterIPs": ["None"]}, {}, id="headless"),
        pytest.param({"type": "ExternalName", "clusterIP": "", "clusterIPs": []}, {}, id="external name"),
        pytest.param(
            {"type": "NodePort", "ports": _PORTS},
            {_CLUSTER: Backends((_HERE, _THERE)), _NODE_PORT: Backends((_HERE, _THERE))},
            id="node port",
        ),
        pytest.param({"internalTrafficPolicy": "Local"}, {_CLUSTER: Backends((_HERE,))}, id="internal policy"),
        pytest.param(
            {"type": "NodePort", "ports": _PORTS, "externalTrafficPolicy": "Local"},
            {_CLUSTER: Backends((_HERE, _THERE)), _NODE_PORT: Backends((_HERE,))},
            id="external policy",
        ),
        pytest.param({"sessionAffinity": "ClientIP"}, {_CLUSTER: Backends((_HERE, _THERE), 10800)}, id="affinity"),
        pytest.param(
            {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 7}}},
            {_CLUSTER: Backends((_HERE, _THERE), 7)},
            id="affinity with a time",
        ),
        pytest.param(
            {"externalIPs": ["192.0.2.1", "2001:db8::1"]},
            {_CLUSTER: Backends((_HERE, _THERE)), Frontend("192.0.2.1", "TCP", 80): Backends((_HERE, _THERE))},
            id="external IPs",
        ),
        pytest.param({"ports": [{"port": 80, "protocol": "UDP"}]}, {}, id="a port that no endpoint has"),
    ],
)
def test_a_service_has_the_frontends_of_its_type(spec: Any, expected: Any) -> None:
    assert _table(service("web", **spec), endpoint_slice("web", _TWO)) == expected


def test_a_port_leads_to_the_port_of_its_name() -> None:
    ports = [
        {"name": "http", "port": 80, "protocol": "TCP"},
        {"name": "dns", "port": 53, "protocol": "UDP"},
    ]
    targets = [
        {"name": "dns", "port": 5353, "protocol": "UDP"},
        {"name": "http", "port": 8081, "protocol": "TCP"},
    ]
    table = _table(service("web", ports=ports), endpoint_slice("web", _TWO[:1], ports=targets))
    assert table == {
        Frontend("10.96.0.7", "TCP", 80): Backends((Endpoint("10.244.0.2", 8081),)),
        Frontend("10.96.0.7", "UDP", 53): Backends((Endpoint("10.244.0.2", 5353),)),
    }


@pytest.mark.parametrize(
    ("endpoints", "expected"),
    [
        pytest.param([endpoint("10.244.0.2", ready=False)], [], id="not ready"),
        pytest.param([endpoint("10.244.0.2")], ["10.244.0.2"], id="unknown is ready"),
        pytest.param(
            [endpoint("10.244.0.2", ready=False, serving=True, terminating=True), endpoint("10.244.0.3", ready=True)],
            ["10.244.0.3"],
            id="terminating beside a ready one",
        ),
        pytest.param(
            [endpoint("10.244.0.2", ready=False, serving=True, terminating=True)],
            ["10.244.0.2"],
            id="terminating alone",
        ),
        pytest.param(
            [endpoint("10.244.0.2", ready=False, serving=False, terminating=True)], [], id="terminating, not serving"
        ),
    ],
)
def test_only_endpoints_that_serve_are_used(endpoints: list[Any], expected: list[str]) -> None:
    table = _table(service("web"), endpoint_slice("web", endpoints))
    assert [endpoint.address for backends in table.values() for endpoint in backends.endpoints] == expected


def test_a_load_balancer_has_the_address_of_its_status() -> None:
    balanced = service("web", type="LoadBalancer")
    balanced["status"] = {"loadBalancer": {"ingress": [{"ip": "127.70.1.2"}, {"ip": "127.70.1.3", "ipMode": "Proxy"}]}}
    assert Frontend("127.70.1.2", "TCP", 80) in _table(balanced, endpoint_slice("web", _TWO))
    assert Frontend("127.70.1.3", "TCP", 80) not in _table(balanced, endpoint_slice("web", _TWO))


def test_the_source_ranges_of_a_load_balancer_limit_its_own_address_alone() -> None:
    ranges = ["192.0.2.0/24", " 10.1.2.3/8 ", "2001:db8::/32"]
    balanced = service("web", type="LoadBalancer", loadBalancerSourceRanges=ranges, externalIPs=["192.0.2.9"])
    balanced["status"] = {"loadBalancer": {"ingress": [{"ip": "192.0.2.8"}]}}
    table = _table(balanced, endpoint_slice("web", _TWO))
    limited = table[Frontend("192.0.2.8", "TCP", 80)]
    assert [limited.admits(client) for client in ("192.0.2.77", "10.200.0.1", "127.0.0.1")] == [True, True, False]
    assert [frontend for frontend, backends in table.items() if not backends.admits("127.0.0.1")] == [
        Frontend("192.0.2.8", "TCP", 80)
    ]
    balanced["spec"]["type"] = "NodePort"
    assert all(backends.admits("127.0.0.1") for backends in _table(balanced, endpoint_slice("web", _TWO)).values())


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, (32000, 1), id="one local endpoint of two"),
        pytest.param({"externalTrafficPolicy": "Cluster"}, None, id="external policy Cluster"),
        pytest.param({"type": "NodePort"}, None, id="no load balancer"),
        pytest.param({"healthCheckNodePort": 0}, None, id="no port"),
    ],
)
def test_a_load_balancer_with_local_traffic_has_a_health_check(spec: Any, expected: Any) -> None:
    local: Any = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}
    index = ServiceIndex(node="here")
    index.set_service(service("web", **local | spec))
    index.set_slice(endpoint_slice("web", [*_TWO, endpoint("10.244.0.3", ready=False)]))
    index.take_changes()
    assert index.health_checks.get(Key("default", "web")) == expected
    index.remove_service(Key("default", "web"))
    index.take_changes()
    assert index.health_checks == {}


def test_each_family_of_a_service_leads_to_endpoints_of_its_own() -> None:
    ports = [{"port": 80, "protocol": "TCP", "nodePort": 30080}]
    dual = service("web", ports=ports, clusterIPs=["10.96.0.7", "fd00:10:96::7"], externalIPs=["fd00::1", "192.0.2.1"])
    four = endpoint_slice("web", [endpoint("10.244.0.5")])
    six = endpoint_slice("web", [endpoint("fd00:10:244::5")], "web-2", addressType="IPv6")
    result = table_of([dual], [four, six], node="here")
    assert {(frontend.address, frontend.port): backends.endpoints for frontend, backends in result.items()} == {
        ("10.96.0.7", 80): (("10.244.0.5", 8080),),
        ("192.0.2.1", 80): (("10.244.0.5", 8080),),
        ("0.0.0.0", 30080): (("10.244.0.5", 8080),),
        ("fd00:10:96::7", 80): (("fd00:10:244::5", 8080),),
        ("fd00::1", 80): (("fd00:10:244::5", 8080),),
        ("::", 30080): (("fd00:10:244::5", 8080),),
    }


@pytest.mark.parametrize("families", [["fd00:10:96::7"], ["fd00:10:96::7", "10.96.0.7"]], ids=["IPv6", "both"])
def test_a_load_balancer_on_loopback_leads_to_endpoints_of_ipv6_if_there_are_no_others(families: list[str]) -> None:
    ingress = [{"ip": "127.64.0.9"}, {"ip": "192.0.2.1"}]
    six = service("web", families[0], type="LoadBalancer", clusterIPs=families) | {
        "status": {"loadBalancer": {"ingress": ingress}}
    }
    slices = [
        endpoint_slice("web", [endpoint("fd00:10:244::5")], "web-6", addressType="IPv6"),
        endpoint_slice("web", [endpoint("10.244.0.5")], "web-4"),
    ]
    result = table_of([six], slices, node="here")
    by_address = {
        frontend.address: [endpoint.address for endpoint in backends.endpoints] for frontend, backends in result.items()
    }
    if len(families) == 1:
        assert by_address == {"fd00:10:96::7": ["fd00:10:244::5"], "127.64.0.9": ["fd00:10:244::5"]}
    else:
        assert by_address["127.64.0.9"] == by_address["192.0.2.1"] == by_address["10.96.0.7"] == ["10.244.0.5"]


def test_of_two_services_that_claim_one_address_the_first_by_name_has_it() -> None:
    index = ServiceIndex(node="here")
    for name in ("b", "a"):
        index.set_service(service(name, externalIPs=["192.0.2.1"]))
        index.set_slice(endpoint_slice(name, [endpoint(f"10.244.0.{ord(name)}")]))
    index.take_changes()
    claimed = Frontend("192.0.2.1", "TCP", 80)
    assert index.table[claimed].endpoints[0].address == "10.244.0.97"
    index.remove_service(Key("default", "a"))
    assert index.take_changes()[claimed] == Backends((Endpoint("10.244.0.98", 8080),))


_NAMES = st.sampled_from(["a", "b", "c"])
_ADDRESSES = st.sampled_from(["10.96.0.7", "10.96.0.8", "None"])
_ENDPOINTS = st.lists(
    st.builds(
        endpoint,
        st.integers(2, 9).map("10.244.0.{}".format),
        node=st.sampled_from(["here", "there"]),
        ready=st.booleans(),
        serving=st.booleans(),
        terminating=st.booleans(),
    ),
    max_size=4,
)
_SERVICES = st.builds(
    service,
    _NAMES,
    _ADDRESSES,
    internalTrafficPolicy=st.sampled_from(["Cluster", "Local"]),
    sessionAffinity=st.sampled_from(["None", "ClientIP"]),
    externalIPs=st.lists(st.just("192.0.2.1"), max_size=1),
)
_SLICES = st.builds(endpoint_slice, _NAMES, _ENDPOINTS, st.sampled_from(["s1", "s2", "s3"]))
_STEPS = st.lists(st.tuples(st.sampled_from(["set", "remove"]), st.one_of(_SERVICES, _SLICES), st.booleans()))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_STEPS)
def test_step_by_step_leads_to_the_same_table_as_all_at_once(steps: list[tuple[str, Any, bool]]) -> None:
    index = ServiceIndex(node="here")
    followed: dict[Frontend, Backends] = {}
    there: dict[tuple[str, str], Any] = {}
    for action, obj, is_taken in steps:
        known = (obj["kind"], obj["metadata"]["name"])
        if obj["kind"] == "EndpointSlice" and known in there:
            index.remove_slice(there[known])  # Its label may name another Service now.
        there.pop(known, None)
        if action == "set":
            there[known] = obj
            (index.set_service if obj["kind"] == "Service" else index.set_slice)(obj)
        elif obj["kind"] == "Service":
            index.remove_service(Key("default", obj["metadata"]["name"]))
        if is_taken:
            _follow(followed, index)
    _follow(followed, index)
    assert followed == index.table == _table(*there.values())


def _follow(table: dict[Frontend, Backends], index: ServiceIndex) -> None:
    for frontend, backends in index.take_changes().items():
        if backends is None:
            del table[frontend]
        else:
            table[frontend] = backends


def test_a_service_has_a_limited_number_of_external_addresses_and_ports() -> None:
    ports = [{"name": f"p{number}", "port": number, "protocol": "TCP"} for number in range(1, 1_001)]
    addresses = [f"192.0.{number // 200}.{number % 200}" for number in range(1_000)]
    targets = [{**port, "port": 8080} for port in ports]
    result = _table(service("web", ports=ports, externalIPs=addresses), endpoint_slice("web", _TWO, ports=targets))
    assert len(result) == MOST_EXTERNAL + len(ports)


@pytest.mark.parametrize(
    "address",
    [
        pytest.param("10.96.0.10", id="the DNS server"),
        pytest.param("10.96.0.7", id="another Service"),
        pytest.param("10.244.0.9", id="a pod of this node"),
        pytest.param("10.244.1.9", id="a pod of another node"),
    ],
)
def test_no_service_takes_the_traffic_of_the_cluster_by_an_external_address(address: str) -> None:
    """CVE-2020-8554, as far as it concerns addresses of the cluster."""
    networks = ["10.96.0.0/16", "10.244.0.0/16"]
    index = ServiceIndex(node="here", networks=networks, node_addresses=["10.244.0.1"])
    index.set_service(service("thief", "10.96.0.8", externalIPs=[address, "10.244.0.1", "192.0.2.7"]))
    index.set_slice(endpoint_slice("thief", [endpoint("10.244.0.2")]))
    index.take_changes()
    assert {frontend.address for frontend in index.table} == {"10.96.0.8", "10.244.0.1", "192.0.2.7"}


_SPECIAL = [
    *("127.0.0.1", "127.8.8.8", "169.254.169.254", "0.0.0.0", "0.1.2.3", "224.0.0.1", "240.0.0.1", "255.255.255.255"),
    *("::1", "::", "fe80::1", "ff02::1", "::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1"),
]
"""Addresses of the machine, of its link, of groups and of no host. The API refuses most of them, too."""


@pytest.mark.parametrize("address", _SPECIAL)
def test_no_service_but_that_of_the_api_server_leads_to_the_machine_itself(address: str) -> None:
    """CVE-2021-25737."""
    six = {"addressType": "IPv6"} if ":" in address else {}
    own = ("fd00:10:96::1", "fd00:10:96::8") if six else ("10.96.0.1", "10.96.0.8")
    slices = [endpoint_slice(name, [endpoint(address)], **six) for name in ("thief", "kubernetes")]
    services = [service("thief", own[1]), service("kubernetes", own[0])]
    frontends = {frontend.address for frontend in table_of(services, slices, node="here")}
    assert frontends == ({own[0]} if address in ("127.0.0.1", "127.8.8.8", "::1") else set())


@pytest.mark.parametrize("address", _SPECIAL)
def test_no_service_takes_the_traffic_of_the_machine_by_an_external_address(address: str) -> None:
    """A listener on the machine's loopback, or a port of all its addresses, in place of a local service."""
    six = {"addressType": "IPv6"} if ":" in address else {}
    own, pod = ("fd00:10:96::8", "fd00:10:244::2") if six else ("10.96.0.8", "10.244.0.2")
    slices = [endpoint_slice("thief", [endpoint(pod)], **six)]
    frontends = table_of([service("thief", own, externalIPs=[address])], slices, node="here")
    assert {frontend.address for frontend in frontends} == {own}
