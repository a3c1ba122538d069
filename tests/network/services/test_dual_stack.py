"""Pods and Services with IPv4 and IPv6 addresses: Service addresses, names, policies and several nodes."""

from __future__ import annotations

import asyncio
import contextlib
import urllib.request
from collections.abc import AsyncIterator
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
from tests.network.services.conftest import PodCluster, run_pod_cluster

from pinnace.kinds.services.service_range import SERVICE_RANGE
from pinnace.model.objects import Object
from pinnace.network.families import has_ipv6

RANGES = (SERVICE_RANGE, "fd00:10:96::/112")
_SERVER = """
import socket, threading
def serve(family):
    opened = socket.socket(family, socket.SOCK_DGRAM); opened.bind(("", 8080))
    while True:
        data, client = opened.recvfrom(100); opened.sendto(socket.gethostname().encode(), client)
threading.Thread(target=serve, args=[socket.AF_INET6]).start()
with socket.create_server(("", 8080), family=socket.AF_INET6, dualstack_ipv6=True, backlog=100) as server:
    while True:
        client, address = server.accept(); client.recv(1000)
        body = f"{socket.gethostname()} {address[0].removeprefix('::ffff:')}".encode()
        client.sendall(b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)
        client.close()
"""
_UDP = """
import socket, sys
client = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); client.settimeout(5)
client.connect((sys.argv[1], int(sys.argv[2]))); client.send(b"hello"); print(client.recv(100).decode())
"""
_NAMES = """
import socket, sys
print(sorted({answer[4][0] for answer in socket.getaddrinfo(sys.argv[1], 80, type=socket.SOCK_STREAM)}))
"""


def _need_ipv6() -> None:
    if not has_ipv6():
        pytest.skip("this machine has no IPv6")


@pytest.fixture(params=["nftables", "proxy"])
async def pods(request: pytest.FixtureRequest) -> AsyncIterator[PodCluster]:
    _need_ipv6()
    async with run_pod_cluster(uses_nftables=request.param == "nftables", service_ranges=RANGES) as made:
        yield made


async def _start_server(pods: PodCluster, name: str, **fields: Any) -> Object:
    probe = {"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 60}
    fields.setdefault("metadata", {"labels": {"app": "web"}})
    await pods.create_pod(name, ["python3", "-c", _SERVER], container={"readinessProbe": probe}, **fields)
    return await pods.until_ready(name)


async def _create_dual(pods: PodCluster, name: str = "web", **spec: Any) -> Object:
    return await pods.create_service(name, ipFamilyPolicy="RequireDualStack", **spec)


def _addresses(pod: Object) -> tuple[str, str]:
    four, six = [address["ip"] for address in pod["status"]["podIPs"]]
    return four, six


async def test_a_dual_stack_service_leads_to_its_pods_over_both_families(pods: PodCluster) -> None:
    ports = [
        {"name": "http", "port": 80, "targetPort": 8080},
        {"name": "udp", "port": 80, "targetPort": 8080, "protocol": "UDP"},
    ]
    service = await _create_dual(pods, ports=ports, type="NodePort", sessionAffinity="ClientIP")
    four, six = service["spec"]["clusterIPs"]
    client, *_ = await asyncio.gather(pods.start_client(), _start_server(pods, "one"), _start_server(pods, "two"))
    assert ip_address(_addresses(client)[1]) in ip_network("fd00:10:244::/64")
    assert client["status"]["podIP"] == _addresses(client)[0]
    sources = _addresses(client) if pods.is_nftables else ("10.244.0.1", "fd00:10:244::1")
    for url, source in ((f"http://{four}/", sources[0]), (f"http://[{six}]/", sources[1])):

        async def served(url: str = url, source: str = source) -> bool:
            pages = {await pods.fetch("client", url) for _ in range(3)}
            return pages in ({f"one {source}"}, {f"two {source}"})

        await pods.until(served)
    await pods.until(lambda: _ends(pods, "python3", "-c", _UDP, six, "80"))
    node_port = service["spec"]["ports"][0]["nodePort"]
    assert (await pods.fetch("client", f"http://[fd00:10:244::1]:{node_port}/")).partition(" ")[0] in ("one", "two")
    assert (await pods.fetch("client", f"http://[{six}]:81/")).startswith("curl 7"), "refused at once"
    assert (await pods.fetch("one", f"http://[{six}]/")).partition(" ")[0] in ("one", "two")
    code, routes = await pods.run("client", "cat", "/proc/net/ipv6_route")
    gateways = [line.split() for line in routes.splitlines() if line.split()[1] == "00"]
    assert code == 0 and all(words[-1] == "lo" for words in gateways), "there is no default route"


async def test_the_machine_reaches_a_service_of_ipv6_alone_through_its_load_balancer(pods: PodCluster) -> None:
    ports = [{"port": 8088, "targetPort": 8080}]
    await pods.create_service(type="LoadBalancer", ports=ports, ipFamilies=["IPv6"], ipFamilyPolicy="SingleStack")
    await _start_server(pods, "one")

    def fetch(address: str) -> str:
        with urllib.request.urlopen(f"http://{address}:8088/", timeout=60) as page:
            return str(page.read().decode())

    async def answers() -> str:
        obj = await pods.client.get("v1/Service", "web", namespace="default")
        assert [ip_address(address).version for address in obj["spec"]["clusterIPs"]] == [6]
        for ingress in (obj["status"].get("loadBalancer") or {}).get("ingress") or ():
            with contextlib.suppress(OSError):
                return await asyncio.to_thread(fetch, ingress["ip"])
        return ""

    await pods.until(answers, "one fd00:10:244::1")


@pytest.mark.parametrize("way", ["nftables", "proxy"])
async def test_services_and_the_api_server_are_reached_where_ipv6_comes_first(way: str) -> None:
    _need_ipv6()
    async with run_pod_cluster(uses_nftables=way == "nftables", service_ranges=RANGES[::-1]) as pods:
        service = await pods.create_service()
        assert [ip_address(address).version for address in service["spec"]["clusterIPs"]] == [6]
        await asyncio.gather(pods.start_client(), _start_server(pods, "one"))

        async def served() -> str:
            return (await pods.fetch("client", "http://web/")).partition(" ")[0]

        await pods.until(served, "one")
        ask = (
            "cd /var/run/secrets/kubernetes.io/serviceaccount; "
            'curl -sS --cacert ca.crt "https://[$KUBERNETES_SERVICE_HOST]:$KUBERNETES_SERVICE_PORT/version"; '
            "curl -sS --cacert ca.crt https://kubernetes.default.svc/version"
        )

        async def versions() -> int:
            return (await pods.run("client", "sh", "-c", ask))[1].count('"gitVersion"')

        await pods.until(versions, 2)


async def _ends(pods: PodCluster, *command: str) -> bool:
    return (await pods.run("client", *command))[1].endswith(("one", "two"))


async def test_names_have_addresses_of_both_families(pods: PodCluster) -> None:
    member = {"hostname": "db-0", "subdomain": "db", "metadata": {"labels": {"app": "db"}}}
    service = await _create_dual(pods)
    await _create_dual(pods, "db", clusterIP="None", selector={"app": "db"})
    server, _ = await asyncio.gather(_start_server(pods, "db-0", **member), pods.start_client())
    four, six = _addresses(server)
    by_address = six.replace(":", "-")
    for name, expected in (
        ("web", service["spec"]["clusterIPs"]),
        ("db", [four, six]),
        ("db-0.db", [four, six]),
        (f"{by_address}.default.pod.cluster.local", [six]),
    ):

        async def looked_up(name: str = name) -> str:
            return (await pods.run("client", "python3", "-c", _NAMES, name))[1].rpartition("\n")[2]

        await pods.until(looked_up, str(sorted(expected)))
    hosts = (await pods.run("db-0", "cat", "/etc/hosts"))[1]
    assert f"{six}\tdb-0.db.default.svc.cluster.local\tdb-0" in hosts


async def test_policies_hold_for_ipv6_too() -> None:
    _need_ipv6()
    async with run_pod_cluster(service_ranges=RANGES) as pods:
        server, _, stranger = await asyncio.gather(
            _start_server(pods, "server"),
            pods.start_client("friend", metadata={"labels": {"app": "friend"}}),
            pods.start_client("stranger"),
        )
        _, six = _addresses(server)

        async def seen() -> tuple[bool, bool]:
            pages = [await _reaches(pods, pod, six) for pod in ("friend", "stranger")]
            return pages[0], pages[1]

        await pods.until(seen, (True, True))
        for spec, expected in (
            ({"podSelector": {}}, (False, False)),
            (_ingress({"podSelector": {"matchLabels": {"app": "friend"}}}), (True, False)),
            (_ingress({"ipBlock": {"cidr": "10.244.0.0/16"}}), (False, False)),
            (
                _ingress({"ipBlock": {"cidr": "fd00:10:244::/48", "except": [f"{_addresses(stranger)[1]}/128"]}}),
                (True, False),
            ),
            ({"podSelector": {"matchLabels": {"app": "friend"}}, "policyTypes": ["Egress"]}, (False, True)),
        ):
            await pods.client.apply(
                {
                    "apiVersion": "networking.k8s.io/v1",
                    "kind": "NetworkPolicy",
                    "metadata": {"name": "policy", "namespace": "default"},
                    "spec": spec,
                },
                force=True,
            )
            await pods.until(seen, expected)
        await pods.client.delete("networking.k8s.io/v1/NetworkPolicy", "policy", namespace="default")
        await pods.until(seen, (True, True))


def _ingress(peer: Object) -> Object:
    return {"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [peer], "ports": [{"port": 8080}]}]}


async def _reaches(pods: PodCluster, pod: str, address: str) -> bool:
    code, _ = await pods.run(pod, "curl", "-sS", "--max-time", "0.7", f"http://[{address}]:8080/")
    return code == 0


async def test_pods_of_several_nodes_reach_each_other_over_ipv6(tmp_path: Path) -> None:
    _need_ipv6()
    async with run_pod_cluster(links=tmp_path, nodes=("first", "second"), service_ranges=RANGES) as pods:
        service = await _create_dual(pods)
        near, far = await asyncio.gather(
            pods.start_client(nodeName="first"), _start_server(pods, "far", nodeName="second")
        )
        assert _addresses(far)[1].startswith("fd00:10:244:1:")
        for url in (f"http://[{_addresses(far)[1]}]:8080/", f"http://[{service['spec']['clusterIPs'][1]}]/"):

            async def fetched(url: str = url) -> str:
                return await pods.fetch("client", url)

            await pods.until(fetched, f"far {_addresses(near)[1]}")
