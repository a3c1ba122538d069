"""Attacks on pod networks that were published, each tried, and the ways from a pod to the network of its node.

Those that need several pods with policies have files of their own: CVE-2019-9946 (host ports go past policies) is tried
in `pods/test_host_ports.py`, CVE-2020-8554 (external addresses) in `services/test_table.py`, and CVE-2020-10749 and
CVE-2020-13597 (router advertisements from pod to pod) in `test_forged_packets.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.network.policy.test_forged_packets import RANGES, addresses_of, is_watching, seen_by
from tests.network.services.conftest import PodCluster, run_pod_cluster
from tests.network.services.objects import endpoint, endpoint_slice

from pinnace.cluster.cluster import running
from pinnace.cluster.in_process import in_process_client
from pinnace.cluster.settings import Settings
from pinnace.model import errors
from pinnace.network.families import has_ipv6

_FORGE = Path(__file__).with_name("forge.py").read_text()
_LISTEN = """
import re, select, socket
opened = []
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_INET, "10.244.0.1")):
    sink = socket.socket(family, socket.SOCK_DGRAM); sink.bind((address, 9000)); opened.append(sink)
print("watching", flush=True)
while True:
    for one in select.select(opened, [], [])[0]:
        for name in re.findall(rb"case=([^;]+);", one.recv(70000)): print(name.decode(), flush=True)
"""
_LISTENERS = """
import socket, struct
for name, family, states in (
    ("tcp", socket.AF_INET, ("0A",)), ("tcp6", socket.AF_INET6, ("0A",)),
    ("udp", socket.AF_INET, ("07",)), ("udp6", socket.AF_INET6, ("07",)),
):
    for line in open(f"/proc/net/{name}").readlines()[1:]:
        place, _, state = line.split()[1:4]
        if state in states:
            words, port = place.split(":")
            packed = b"".join(struct.pack("=I", int(words[at : at + 8], 16)) for at in range(0, len(words), 8))
            print(name, socket.inet_ntop(family, packed), int(port, 16))
"""
_SETTINGS = (
    "cat /proc/sys/net/ipv4/conf/*/route_localnet /proc/sys/net/ipv4/conf/*/accept_source_route"
    " /proc/sys/net/ipv4/conf/all/accept_redirects /proc/sys/net/ipv6/conf/all/accept_ra | sort -u"
)


@pytest.fixture
async def api() -> AsyncIterator[PodCluster]:
    """A cluster without a node."""
    async with running(Settings()) as cluster:
        yield PodCluster(cluster, in_process_client(cluster.plane.local()))


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
async def test_a_pod_reaches_only_the_dns_server_and_the_api_server_in_the_network_of_the_node() -> None:
    async with run_pod_cluster(service_ranges=RANGES) as pods:
        await pods.start_client("of-the-node", hostNetwork=True)

        async def listeners() -> set[str]:
            return set((await pods.run("of-the-node", "python3", "-c", _LISTENERS))[1].splitlines())

        api = f"tcp {(await pods.client.get('v1/Service', 'kubernetes', namespace='default'))['spec']['clusterIP']} 443"
        await pods.until(listeners, {"tcp 10.96.0.10 53", "udp 10.96.0.10 53", api})
        _, names = await pods.run("of-the-node", "cat", "/proc/net/unix")
        assert "@" not in names, "CVE-2020-15257: an abstract socket has no permissions"


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
async def test_loopback_services_of_the_node_and_its_routes_are_beyond_a_pod() -> None:
    """CVE-2020-8558, and router advertisements to the node."""
    async with run_pod_cluster(service_ranges=RANGES) as pods:
        client, _ = await asyncio.gather(
            pods.start_client("attacker"), pods.create_pod("victim", ["python3", "-c", _LISTEN], hostNetwork=True)
        )
        await pods.until_ready("victim")
        await pods.until(lambda: is_watching(pods, "victim"))
        own = addresses_of(client)
        packets: list[dict[str, Any]] = [
            {"source": source, "to": to, "port": 9000, "text": f"case=from {source} to {to};"}
            for source in (own[4], "127.0.0.1", "10.244.0.1", "0.0.0.0")
            for to in ("127.0.0.1", "127.0.0.53")
        ]
        packets += [
            {"source": source, "to": "::1", "port": 9000, "text": f"case=from {source} to ::1;"}
            for source in (own[6], "::1", "fd00:10:244::1")
        ]
        packets += [{"source": "0.0.0.0", "to": "255.255.255.255", "port": 9000, "text": "case=unspecified to all;"}]
        router = {
            "icmp": 134,
            "body": "40000708" + "00" * 8,
            "to": "ff02::1",
            "destination": "333300000001",
            "text": "",
        }
        packets += [{**router, "source": source} for source in ("fe80::1", own[6])]
        packets += [{"source": own[4], "to": "10.244.0.1", "port": 9000, "text": "case=honest;"}]
        code, output = await pods.run("attacker", "python3", "-c", _FORGE, json.dumps(packets))
        assert code == 0, output

        async def has_arrived() -> bool:
            return "honest" in await seen_by(pods, "victim")

        await pods.until(has_arrived)
        assert await seen_by(pods, "victim") == {"watching", "honest"}
        assert (await pods.run("victim", "sh", "-c", _SETTINGS))[1] == "0"
        _, routes = await pods.run("victim", "cat", "/proc/net/ipv6_route")
        gateways = {line.split()[4] for line in routes.splitlines() if line.split()[1] == "00"}
        assert gateways <= {"0" * 32}, "nothing that a pod announces becomes a route"


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "169.254.169.254", "224.0.0.1", "0.0.0.0"])
async def test_no_endpoint_leads_to_the_machine(address: str, api: PodCluster) -> None:
    """CVE-2021-25737."""
    with pytest.raises(errors.Invalid):
        await api.client.create(endpoint_slice("web", [endpoint(address)]))


async def test_an_editor_of_a_namespace_may_not_write_endpoints(api: PodCluster) -> None:
    """CVE-2021-25740: endpoints in another namespace's pods, behind a load balancer that is shared."""
    for name in ("edit", "admin"):
        role = await api.client.get("rbac.authorization.k8s.io/v1/ClusterRole", name)
        writes = {"create", "update", "patch", "delete", "*"}
        for rule in role["rules"]:
            if {"endpoints", "endpointslices"} & set(rule.get("resources") or ()):
                assert not writes & set(rule["verbs"]), name
