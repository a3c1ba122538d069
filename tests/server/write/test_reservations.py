"""Addresses and node ports of services: each given once, freed with its service, kept when a write fails."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from tests.server.in_process import MERGE, SERVICES, InProcess, control_plane, service, together

from pinnace.server.write.reservations import NODE_PORTS
from pinnace.store.memory import MemoryStore

RANGE = ipaddress.ip_network("10.96.0.0/16")


def address(body: dict[str, Any]) -> str:
    return str(body["spec"]["clusterIP"])


def ports(body: dict[str, Any]) -> list[int]:
    return [port["nodePort"] for port in body["spec"]["ports"]]


async def test_services_made_at_once_get_addresses_and_ports_of_their_own(api: InProcess) -> None:
    bodies = [
        service(f"s{number}", type="NodePort", ports=[{"port": 80, "name": "a"}, {"port": 81, "name": "b"}])
        for number in range(60)
    ]
    replies = await together(*(api.post(SERVICES, body) for body in bodies))
    assert {reply.status for reply in replies} == {201}
    addresses = [address(reply.json) for reply in replies]
    assert len(set(addresses)) == 60
    assert all(ipaddress.ip_address(address) in RANGE for address in addresses)
    given = [port for reply in replies for port in ports(reply.json)]
    assert len(set(given)) == 120
    assert all(port in NODE_PORTS for port in given)


async def test_of_many_who_want_one_address_and_port_one_gets_them(api: InProcess) -> None:
    wanted: dict[str, Any] = {"clusterIP": "10.96.7.7", "type": "NodePort", "ports": [{"port": 80, "nodePort": 30123}]}
    replies = await together(*(api.post(SERVICES, service(f"s{number}", **wanted)) for number in range(20)))
    assert sorted(reply.status for reply in replies) == [201] + [422] * 19


async def test_the_address_and_ports_of_a_deleted_service_are_free(api: InProcess) -> None:
    wanted: dict[str, Any] = {"clusterIP": "10.96.7.7", "type": "NodePort", "ports": [{"port": 80, "nodePort": 30123}]}
    for turn in range(3):
        await api.made(SERVICES, service(f"s{turn}", **wanted))
        assert (await api.post(SERVICES, service("other", **wanted))).status == 422
        assert (await api.delete(f"{SERVICES}/s{turn}")).status == 200


async def test_the_address_and_ports_of_a_service_are_free_after_its_last_finalizer(api: InProcess) -> None:
    body = service(clusterIP="10.96.7.7")
    body["metadata"]["finalizers"] = ["example.com/hold"]
    await api.made(SERVICES, body)
    await api.delete(f"{SERVICES}/web")
    assert (await api.post(SERVICES, service("other", clusterIP="10.96.7.7"))).status == 422
    await api.patch(f"{SERVICES}/web", {"metadata": {"finalizers": None}})
    await api.made(SERVICES, service("other", clusterIP="10.96.7.7"))


async def test_a_dry_run_keeps_nothing(api: InProcess) -> None:
    wanted: dict[str, Any] = {"clusterIP": "10.96.7.7", "type": "NodePort", "ports": [{"port": 80, "nodePort": 30123}]}
    assert (await api.post(f"{SERVICES}?dryRun=All", service("trial", **wanted))).status == 201
    await api.made(SERVICES, service("real", **wanted))
    move = {"spec": {"ports": [{"port": 80, "nodePort": 30124}]}}
    assert (await api.patch(f"{SERVICES}/real?dryRun=All", move)).status == 200
    assert (
        await api.post(SERVICES, service("other", type="NodePort", ports=[{"port": 80, "nodePort": 30123}]))
    ).status == 422
    await api.made(SERVICES, service("other", type="NodePort", ports=[{"port": 80, "nodePort": 30124}]))


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"ports": [{"port": 80, "nodePort": 30124}], "sessionAffinity": "Sometimes"}},
        {"spec": {"type": "ExternalName", "externalName": "-"}},
        {"spec": {"type": "ClusterIP", "sessionAffinity": "Sometimes"}},
    ],
    ids=["another port", "no addresses", "no ports"],
)
async def test_a_write_that_fails_neither_takes_nor_frees(api: InProcess, patch: dict[str, Any]) -> None:
    wanted: dict[str, Any] = {"clusterIP": "10.96.7.7", "type": "NodePort", "ports": [{"port": 80, "nodePort": 30123}]}
    await api.made(SERVICES, service(**wanted))
    assert (await api.patch(f"{SERVICES}/web", patch)).status == 422
    assert (await api.post(SERVICES, service("a", clusterIP="10.96.7.7"))).status == 422, "its address is still its own"
    assert (
        await api.post(SERVICES, service("b", type="NodePort", ports=[{"port": 80, "nodePort": 30123}]))
    ).status == 422
    await api.made(SERVICES, service("c", type="NodePort", ports=[{"port": 80, "nodePort": 30124}]))


async def test_a_change_of_type_frees_what_is_no_longer_used(api: InProcess) -> None:
    wanted: dict[str, Any] = {"clusterIP": "10.96.7.7", "type": "NodePort", "ports": [{"port": 80, "nodePort": 30123}]}
    await api.made(SERVICES, service(**wanted))
    plain = await api.patch(f"{SERVICES}/web", {"spec": {"type": "ClusterIP"}})
    assert (address(plain.json), plain.json["spec"]["ports"][0].get("nodePort")) == ("10.96.7.7", None)
    await api.made(SERVICES, service("port", type="NodePort", ports=[{"port": 80, "nodePort": 30123}]))
    named = await api.patch(f"{SERVICES}/web", {"spec": {"type": "ExternalName", "externalName": "example.com"}})
    assert (named.status, "clusterIP" in named.json["spec"]) == (200, False)
    await api.made(SERVICES, service("address", clusterIP="10.96.7.7"))


async def test_a_replacement_that_leaves_them_out_keeps_address_and_ports(api: InProcess) -> None:
    made = await api.made(SERVICES, service(type="NodePort"))
    reply = await api.put(f"{SERVICES}/web", service(type="NodePort", sessionAffinity="ClientIP"))
    assert reply.status == 200, reply.body
    assert (address(reply.json), ports(reply.json)) == (address(made), ports(made))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"clusterIP": "1.2.3.4"}, "the provided network does not match the current range"),
        ({"clusterIP": "junk"}, "must be a valid IP address"),
        ({"clusterIPs": ["10.96.7.7"]}, "must be empty when `clusterIP` is not specified"),
        ({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]}, "The range of valid ports is 30000-32767"),
        ({"type": "NodePort", "ports": [{}]}, "spec.ports[0].port"),
    ],
)
async def test_an_address_or_port_that_cannot_be_allocated_is_refused(
    api: InProcess, spec: dict[str, Any], message: str
) -> None:
    reply = await api.post(SERVICES, service(**spec))
    assert (reply.status, message in reply.message) == (422, True), reply.body


@pytest.mark.parametrize("wanted", ["1.2.3.4", "10.96.200.200", "10.96.0.1", "None"])
@pytest.mark.parametrize("before", [{}, {"clusterIP": "None", "selector": {"a": "b"}}], ids=["an address", "headless"])
async def test_an_address_may_not_change_once_set(api: InProcess, before: dict[str, Any], wanted: str) -> None:
    await api.made(SERVICES, service("s", **before))
    patch = {"spec": {"clusterIP": wanted, "clusterIPs": [wanted]}}
    reply = await api.call("PATCH", f"{SERVICES}/s", patch, MERGE)
    if before.get("clusterIP") == wanted:
        assert reply.status == 200
    else:
        assert (reply.status, reply.message) == (
            422,
            f'Service "s" is invalid: spec.clusterIPs[0]: Invalid value: ["{wanted}"]: may not change once set',
        )


async def test_a_headless_service_holds_nothing(api: InProcess) -> None:
    made = await api.made(SERVICES, service(clusterIP="None"))
    assert made["spec"]["clusterIPs"] == ["None"]


async def test_addresses_allocated_before_a_restart_stay_allocated() -> None:
    store = MemoryStore()
    async with control_plane(store) as first:
        await first.made(SERVICES, service(clusterIP="10.96.7.7"))
        async with control_plane(store) as second:
            assert (await second.post(SERVICES, service("other", clusterIP="10.96.7.7"))).status == 422


OUTSIDE = "provided port is not in the valid range. The range of valid ports is 30000-32767"
LOCAL: dict[str, Any] = {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}
REFUSED_PORTS: dict[str, tuple[dict[str, Any], str]] = {
    "health check outside of the range": (
        {**LOCAL, "healthCheckNodePort": 1234},
        f"Internal error occurred: failed to allocate requested HealthCheck NodePort 1234: {OUTSIDE}",
    ),
    "health check on the port of another service": (
        {**LOCAL, "healthCheckNodePort": 30555},
        "Internal error occurred: failed to allocate requested HealthCheck NodePort 30555:"
        " provided port is already allocated",
    ),
    "health check on its own node port": (
        {**LOCAL, "healthCheckNodePort": 30334, "ports": [{"port": 80, "nodePort": 30334}]},
        "Internal error occurred: failed to allocate requested HealthCheck NodePort 30334:"
        " provided port is already allocated",
    ),
    "two ports with one node port": (
        {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30777, "name": "a"}, {"port": 81, "nodePort": 30777}]},
        'Service "s" is invalid: spec.ports[1].nodePort: Invalid value: 30777: provided port is already allocated',
    ),
    "a node port without allocation": (
        {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False, "ports": [{"port": 80, "nodePort": 30555}]},
        'Service "s" is invalid: spec.ports[0].nodePort: Invalid value: 30555: provided port is already allocated',
    ),
    "the address of the network": (
        {"clusterIP": "10.96.0.0"},
        'Service "s" is invalid: spec.clusterIPs: Invalid value: ["10.96.0.0"]: failed to allocate IP 10.96.0.0:'
        " the provided network does not match the current range",
    ),
    "the broadcast address": (
        {"clusterIP": "10.96.255.255"},
        'Service "s" is invalid: spec.clusterIPs: Invalid value: ["10.96.255.255"]: failed to allocate IP'
        " 10.96.255.255: the provided network does not match the current range",
    ),
}


@pytest.mark.parametrize(("spec", "message"), REFUSED_PORTS.values(), ids=REFUSED_PORTS)
async def test_a_value_that_no_service_may_have_is_refused_as_kubernetes_does(
    api: InProcess, spec: dict[str, Any], message: str
) -> None:
    held = {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30555}]}
    await api.made(SERVICES, service("held", **held))
    reply = await api.post(SERVICES, service("s", **spec))
    assert reply.json["message"] == message
    assert (await api.post(SERVICES, service("other", **held))).status == 422, "the refusal freed nothing"


async def test_ports_with_one_number_share_the_node_port_that_one_of_them_names(api: InProcess) -> None:
    pair = [{"port": 53, "name": "tcp"}, {"port": 53, "name": "udp", "protocol": "UDP", "nodePort": 30053}]
    assert ports(await api.made(SERVICES, service("s", type="NodePort", ports=pair))) == [30053, 30053]


async def test_a_load_balancer_that_no_longer_allocates_node_ports_loses_those_it_does_not_name(api: InProcess) -> None:
    held = {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30555}]}
    await api.made(SERVICES, service("s", **held))
    changed = {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False, "ports": [{"port": 80}]}
    reply = await api.patch(f"{SERVICES}/s", {"spec": changed})
    assert "nodePort" not in reply.json["spec"]["ports"][0]
    await api.made(SERVICES, service("other", **held))
