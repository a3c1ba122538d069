"""Names looked up from pods."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address, ip_network

from tests.network.services.conftest import PodCluster, run_pod_cluster

_LOOK_UP = (
    "import socket, sys; print(sorted({info[4][0] for info in socket.getaddrinfo(sys.argv[1], 80, socket.AF_INET)}))"
)

_FLOOD = """
import contextlib, os, socket
opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
opened.connect(("10.96.0.10", 53))
while True:
    with contextlib.suppress(OSError):  # The server may not listen yet.
        name = b"\\x04" + os.urandom(4) + b"\\x07cluster\\x05local\\0"
        opened.send(os.urandom(2) + bytes.fromhex("01000001000000000000") + name + b"\\0\\1\\0\\1")
"""


async def _look_up(pods: PodCluster, name: str, *, pod: str = "client") -> str:
    return (await pods.run(pod, "python3", "-c", _LOOK_UP, name))[1].rpartition("\n")[2]


async def test_pods_find_services_and_members_by_name() -> None:
    async with run_pod_cluster() as pods:
        member = {"hostname": "db-0", "subdomain": "db", "metadata": {"labels": {"app": "db"}}}
        _, server = await asyncio.gather(pods.start_client(), pods.start_server("db-0", **member))
        service = await pods.create_service()
        await pods.create_service("db", clusterIP="None", selector={"app": "db"})
        address = server["status"]["podIP"]
        for name, expected in (
            ("web", [service["spec"]["clusterIP"]]),
            ("web.default", [service["spec"]["clusterIP"]]),
            ("web.default.svc.cluster.local", [service["spec"]["clusterIP"]]),
            ("db", [address]),
            ("db-0.db", [address]),
            ("kubernetes.default.svc", ["10.96.0.1"]),
        ):

            async def looked_up(name: str = name) -> str:
                return await _look_up(pods, name)

            await pods.until(looked_up, str(expected))
        assert "Name or service not known" in await _look_up(pods, "nothing.default.svc.cluster.local")
        resolver = (await pods.run("client", "cat", "/etc/resolv.conf"))[1].splitlines()
        assert resolver == [
            "search default.svc.cluster.local svc.cluster.local cluster.local",
            "nameserver 10.96.0.10",
            "options ndots:5",
        ]
        await pods.client.delete("v1/Service", "web", namespace="default")

        async def is_gone() -> bool:
            return "not known" in await _look_up(pods, "web")

        await pods.until(is_gone)


async def test_a_flood_of_queries_from_one_pod_leaves_the_lookups_of_others_untouched() -> None:
    async with run_pod_cluster() as pods:
        await pods.create_pod("flood", ["python3", "-c", _FLOOD])
        await pods.until_ready("flood")
        await pods.start_client()

        async def looked_up() -> str:
            return await _look_up(pods, "kubernetes.default")

        await pods.until(looked_up, "['10.96.0.1']")
        once = (
            'import socket; print([socket.gethostbyname("kubernetes.default") for _ in range(50)].count("10.96.0.1"))'
        )

        async def looked_up_often() -> tuple[int, str]:
            # A query that is lost once fails the lookup.
            return await pods.run("client", "env", "RES_OPTIONS=attempts:1", "python3", "-c", once)

        # While other processes need the whole machine, the server cannot answer even the queries within the limit.
        await pods.until(looked_up_often, (0, "50"))


async def test_services_and_names_work_in_another_service_range() -> None:
    async with run_pod_cluster(service_ranges=["10.97.16.0/20"]) as pods:
        await pods.start_server("one")
        service = await pods.create_service()
        assert ip_address(service["spec"]["clusterIP"]) in ip_network("10.97.16.0/20")
        await pods.start_client()

        async def answer() -> str:
            return (await pods.fetch("client", "http://web/")).partition(" ")[0]

        await pods.until(answer, "one")
        assert "nameserver 10.97.16.10" in (await pods.run("client", "cat", "/etc/resolv.conf"))[1]
        assert (await pods.fetch("client", "http://10.97.16.200/")).startswith("curl 7:")
