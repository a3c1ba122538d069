"""Pods of two nodes on one machine reach each other."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.network.services.conftest import PodCluster, run_pod_cluster

_SPEED = """
import socket, sys, time
if sys.argv[1] == "serve":
    with socket.create_server(("", 9000)) as server:
        while True:
            client, _ = server.accept()
            total = 0
            while data := client.recv(1 << 20): total += len(data)
            client.close()
else:
    with socket.create_connection((sys.argv[2], 9000), timeout=60) as server:
        started = time.monotonic()
        for _ in range(64): server.sendall(bytes(1 << 20))
        server.shutdown(socket.SHUT_WR); server.recv(1)
        print(round(64 / (time.monotonic() - started)), "MB/s")
"""


async def _check_remote_node_port(pods: PodCluster) -> None:
    """A node port leads back to the client's own node: each session stays with one of two endpoints."""
    await pods.start_server("near", nodeName="first")
    service = await pods.create_service("sticky", type="NodePort", sessionAffinity="ClientIP")
    node_port = service["spec"]["ports"][0]["nodePort"]
    for pod in ("client", "near", "far"):
        for address in ("10.244.0.1", "10.244.1.1"):

            async def fetched(pod: str = pod, url: str = f"http://{address}:{node_port}/") -> bool:
                return (await pods.fetch(pod, url)).partition(" ")[0] in ("near", "far")

            await pods.until(fetched)


async def test_pods_on_several_nodes_reach_each_other(tmp_path: Path) -> None:
    async with run_pod_cluster(links=tmp_path, nodes=("first", "second")) as pods:
        near, far, _ = await asyncio.gather(
            pods.start_client(nodeName="first"),
            pods.start_server("far", nodeName="second"),
            pods.create_pod("sink", ["python3", "-c", _SPEED, "serve"], nodeName="second"),
        )
        assert near["status"]["podIP"].startswith("10.244.0.")
        assert far["status"]["podIP"].startswith("10.244.1.")
        service = await pods.create_service()

        async def fetched() -> str:
            return await pods.fetch("client", f"http://{service['spec']['clusterIP']}/")

        await pods.until(fetched, f"far {near['status']['podIP']}")
        assert await pods.fetch("client", f"http://{far['status']['podIP']}:8080/") == f"far {near['status']['podIP']}"
        await _check_remote_node_port(pods)
        receiver = await pods.until_ready("sink")
        code, output = await pods.run("client", "python3", "-c", _SPEED, "send", receiver["status"]["podIP"])
        assert code == 0 and output.endswith("MB/s"), output
        print(output)
