"""Network policies between running pods."""

from __future__ import annotations

import asyncio
from ipaddress import IPv6Address
from typing import Any

import pytest
from tests.network.services.conftest import PodCluster, run_pod_cluster

from pinnace.model.objects import Object
from pinnace.network.families import has_ipv6

_CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=0.7).close(); print("yes")
except OSError as error:
    print("no")
"""


async def _reaches(pods: PodCluster, pod: str, address: str, port: int = 8080) -> bool:
    return (await pods.run(pod, "python3", "-c", _CONNECT, address, str(port)))[1].endswith("yes")


async def _apply(pods: PodCluster, **spec: Any) -> None:
    policy: Object = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "policy", "namespace": "default"},
        "spec": spec,
    }
    await pods.client.apply(policy)


_LINK_LOCAL = """
import socket, sys
if sys.argv[1] == "serve":
    with socket.create_server(("::", 9000), family=socket.AF_INET6) as server:
        while True: server.accept()[0].close()
try:
    place = socket.getaddrinfo(sys.argv[1] + "%eth0", 9000, type=socket.SOCK_STREAM)[0][4]
    opened = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    opened.settimeout(2); opened.connect(place); print("yes")
except OSError as error:
    print("no", error)
"""


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
async def test_no_pod_reaches_another_past_the_node_and_its_policies() -> None:
    """Each interface has a link-local IPv6 address, which needs no route."""
    async with run_pod_cluster() as pods:
        await asyncio.gather(pods.start_client(), pods.create_pod("server", ["python3", "-c", _LINK_LOCAL, "serve"]))
        await pods.until_ready("server")

        async def address() -> str:
            lines = (await pods.run("server", "cat", "/proc/net/if_inet6"))[1].splitlines()
            (result,) = [line.split()[0] for line in lines if line.startswith("fe80")] or [""]
            return str(IPv6Address(int(result, 16))) if result else ""

        async def is_served() -> bool:
            own = await address()
            return bool(own) and (await pods.run("server", "python3", "-c", _LINK_LOCAL, own))[1].endswith("yes")

        await pods.until(is_served)
        _, output = await pods.run("client", "python3", "-c", _LINK_LOCAL, await address())
        assert output.startswith("no"), output


async def test_policies_decide_who_reaches_a_pod() -> None:
    async with run_pod_cluster() as pods:
        server, friend, stranger = await asyncio.gather(
            pods.start_server("server"),
            pods.start_client("friend", metadata={"labels": {"app": "friend"}}),
            pods.start_client("stranger"),
        )
        service = await pods.create_service()
        address, cluster_ip = server["status"]["podIP"], service["spec"]["clusterIP"]

        async def seen() -> tuple[bool, bool]:
            return await _reaches(pods, "friend", address), await _reaches(pods, "stranger", address)

        await pods.until(seen, (True, True))
        selected = {"podSelector": {"matchLabels": {"app": "web"}}}
        await _apply(pods, podSelector={})
        await pods.until(seen, (False, False))
        only_friend = [{"podSelector": {"matchLabels": {"app": "friend"}}}]
        await _apply(pods, **selected, ingress=[{"from": only_friend}])
        await pods.until(seen, (True, False))
        await pods.until(lambda: _reaches(pods, "friend", cluster_ip, 80))
        assert not await _reaches(pods, "stranger", cluster_ip, 80)
        await _apply(pods, **selected, ingress=[{"from": only_friend, "ports": [{"port": 9000}]}])
        await pods.until(seen, (False, False))
        await _apply(pods, **selected, ingress=[{"ports": [{"port": 8000, "endPort": 8100, "protocol": "TCP"}]}])
        await pods.until(seen, (True, True))
        own = stranger["status"]["podIP"]
        block = {"ipBlock": {"cidr": "10.244.0.0/16", "except": [f"{own}/32"]}}
        await _apply(pods, **selected, ingress=[{"from": [block]}])
        await pods.until(seen, (True, False))
        namespaces = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}
        await _apply(pods, **selected, ingress=[{"from": [namespaces]}])
        await pods.until(seen, (True, True))
        await _apply(pods, podSelector={"matchLabels": {"app": "friend"}}, policyTypes=["Egress"])
        await pods.until(seen, (False, True))
        await _apply(
            pods,
            podSelector={"matchLabels": {"app": "friend"}},
            policyTypes=["Egress"],
            egress=[{"to": [{"podSelector": {"matchLabels": {"app": "web"}}}], "ports": [{"port": 8080}]}],
        )
        await pods.until(seen, (True, True))
        assert friend["status"]["podIP"] != own
        await pods.client.delete("networking.k8s.io/v1/NetworkPolicy", "policy", namespace="default")
        await pods.until(seen, (True, True))


_RESOLVE = """
import socket, sys
query = b"\\0\\1\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\3web\\7default\\3svc\\7cluster\\5local\\0\\0\\1\\0\\1"
kind, place = (socket.SOCK_DGRAM, "udp") if sys.argv[1] == "udp" else (socket.SOCK_STREAM, "tcp")
try:
    with socket.socket(socket.AF_INET, kind) as opened:
        opened.settimeout(0.7); opened.connect(("10.96.0.10", 53))
        opened.send(query if place == "udp" else len(query).to_bytes(2, "big") + query)
        print(len(opened.recv(512)) > 1)
except OSError as error:
    print(error)
"""


async def test_queries_to_the_dns_server_need_an_egress_policy_that_allows_them() -> None:
    async with run_pod_cluster() as pods:
        await asyncio.gather(pods.start_client(), pods.create_service())
        selected = {"podSelector": {}, "policyTypes": ["Egress"]}
        kube_dns = {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
            "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
        }

        async def answered() -> tuple[bool, ...]:
            ways = [await pods.run("client", "python3", "-c", _RESOLVE, way) for way in ("udp", "tcp")]
            return tuple(output == "True" for _, output in ways)

        await pods.until(answered, (True, True))
        await _apply(pods, **selected)
        await pods.until(answered, (False, False))
        await _apply(pods, **selected, egress=[{"ports": [{"port": 53, "protocol": "UDP"}]}])
        await pods.until(answered, (True, False))
        await _apply(pods, **selected, egress=[{"to": [kube_dns], "ports": [{"port": "dns-tcp"}]}])
        await pods.until(answered, (False, True))
        await _apply(pods, **selected, egress=[{"to": [{"podSelector": {}}]}])
        await pods.until(answered, (False, False))
        await _apply(pods, **selected, egress=[{"to": [{"namespaceSelector": {}}]}])
        await pods.until(answered, (True, True))
