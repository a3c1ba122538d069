"""Host ports between running pods: the client's address stays, and network policies apply."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import urllib.error
import urllib.request
from typing import Any

from tests.free_ports import free_port
from tests.network.services.conftest import PodCluster, run_pod_cluster

from pinnace.model.objects import Object
from pinnace.network.nftables.transactions import PROTOCOL, Nftables

NODE_ADDRESS = "10.244.0.1"
_UDP = """
import socket, sys
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); client.settimeout(1)
client.connect((sys.argv[1], int(sys.argv[2]))); client.send(b"hello")
try: print(client.recv(100).decode())
except OSError as error: print("none", error)
"""


async def apply_policy(pods: PodCluster, name: str, **spec: Any) -> None:
    policy: Object = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": spec}
    await pods.client.apply({**policy, "metadata": {"name": name, "namespace": "default"}})


def _ports(port: int) -> dict[str, Any]:
    probe = {"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 60}
    both = [{"containerPort": 8080, "hostPort": port, "protocol": protocol} for protocol in ("TCP", "UDP")]
    return {"ports": both, "readinessProbe": probe}


async def test_a_host_port_keeps_the_address_of_its_client_and_its_policies() -> None:
    port = free_port()
    async with run_pod_cluster() as pods:
        _, friend, stranger, _ = await asyncio.gather(
            pods.start_server("server", container=_ports(port)),
            pods.start_client("friend", metadata={"labels": {"app": "friend"}}),
            pods.start_client("stranger"),
            pods.start_client("of-the-node", hostNetwork=True),
        )
        place = f"http://{NODE_ADDRESS}:{port}/"

        async def pages() -> tuple[str, ...]:
            return tuple([(await pods.fetch(name, place)).partition(":")[0] for name in ("friend", "stranger")])

        seen = tuple(f"server {pod['status']['podIP']}" for pod in (friend, stranger))
        await pods.until(pages, seen)
        assert (await pods.run("friend", "python3", "-c", _UDP, NODE_ADDRESS, str(port)))[1] == "server hello"
        own = {"podSelector": {"matchLabels": {"app": "web"}}}
        only_friend = [{"from": [{"podSelector": {"matchLabels": {"app": "friend"}}}]}]
        await apply_policy(pods, "ingress", **own, ingress=only_friend)
        await pods.until(pages, (seen[0], "curl 28"))
        assert (await pods.run("stranger", "python3", "-c", _UDP, NODE_ADDRESS, str(port)))[1].startswith("none")
        for address in ("127.0.0.1", NODE_ADDRESS):  # Policies always allow the traffic of the node.
            assert await pods.fetch("of-the-node", f"http://{address}:{port}/") == f"server {NODE_ADDRESS}"
        assert await asyncio.to_thread(_fetch, port) == f"server {NODE_ADDRESS}"
        await pods.delete_pod("server")

        async def is_closed() -> bool:
            return (await pods.fetch("friend", place)).startswith("curl 7")

        await pods.until(is_closed)


async def test_no_way_over_the_node_leads_past_the_egress_policy_of_a_pod() -> None:
    port = free_port()
    async with run_pod_cluster() as pods:
        server, _ = await asyncio.gather(
            pods.start_server("server", container=_ports(port)),
            pods.start_client("client", metadata={"labels": {"app": "client"}}),
        )
        service = await pods.create_service(type="NodePort", externalIPs=[NODE_ADDRESS])
        places = [
            f"{server['status']['podIP']}:8080",
            f"{NODE_ADDRESS}:{port}",
            f"{NODE_ADDRESS}:{service['spec']['ports'][0]['nodePort']}",
            f"{NODE_ADDRESS}:80",
            f"{service['spec']['clusterIP']}:80",
        ]

        async def reached() -> list[str]:
            pages = await asyncio.gather(*(pods.fetch("client", f"http://{place}/") for place in places))
            return [place for place, page in zip(places, pages, strict=True) if page.startswith("server ")]

        await pods.until(reached, places)
        selected = {"podSelector": {"matchLabels": {"app": "client"}}}
        await apply_policy(pods, "egress", **selected, policyTypes=["Egress"])
        await pods.until(reached, [])
        only_elsewhere = [{"to": [{"ipBlock": {"cidr": f"{NODE_ADDRESS}/32"}}, {"ipBlock": {"cidr": "10.96.0.0/16"}}]}]
        await apply_policy(pods, "egress", **selected, policyTypes=["Egress"], egress=only_elsewhere)
        await apply_policy(pods, "other", podSelector={"matchLabels": {"app": "web"}}, ingress=[{}])
        assert await reached() == [], "a policy decides on the pod behind an address"


def _fetch(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as page:
            return str(page.read().decode())
    except urllib.error.URLError as error:
        return str(error)


async def test_a_node_has_rules_for_host_ports_while_a_pod_has_one() -> None:
    async with run_pod_cluster() as pods:
        runtime = pods.runtimes[0]
        nftables = Nftables(await runtime.open_socket(socket.AF_NETLINK, socket.SOCK_RAW, PROTOCOL))
        with contextlib.closing(nftables):

            async def has_rules() -> bool:
                return nftables.has_chain("pinnace-host-ports", "prerouting")

            assert not await has_rules(), "each new connection would pass them"
            for name in ("first", "second"):
                await pods.start_server(name, container=_ports(free_port()))
            assert await has_rules()
            await pods.delete_pod("first")
            assert await has_rules()
            await pods.delete_pod("second")
            await pods.until(has_rules, False)
