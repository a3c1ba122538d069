"""After `kill -9` of a node's fork server its pods go on without a restart, connected with everything as before."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

from tests.network.services.conftest import PodCluster, run_pod_cluster

from pinnace.node.runtime.embedded.runtime import EmbeddedRuntime

_CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=0.7).close(); print("yes")
except OSError as error:
    print("no")
"""
_NODES = ("first", "second")


async def kill_fork_server(runtime: EmbeddedRuntime) -> None:
    """Kill it, and wait for the next."""
    before = await runtime.node_pid()
    ended = os.pidfd_open(before)
    os.kill(before, signal.SIGKILL)
    async with asyncio.timeout(60):
        while await runtime.node_pid() == before:
            await asyncio.sleep(0.01)
    os.close(ended)


async def _containers_of(pods: PodCluster) -> dict[str, str]:
    listed = await pods.client.list("v1/Pod", namespace="default")
    return {obj["metadata"]["name"]: obj["status"]["containerStatuses"][0]["containerID"] for obj in listed}


async def _page(pods: PodCluster, pod: str, url: str) -> str:
    return (await pods.fetch(pod, url)).partition(" ")[0]


async def test_pods_of_a_killed_fork_server_stay_connected_with_all_that_comes_later(tmp_path: Path) -> None:
    async with run_pod_cluster(nodes=_NODES, links=tmp_path / "links") as pods:
        mapped = {"ports": [{"containerPort": 8080, "hostPort": 18080}]}
        await asyncio.gather(
            pods.start_client(nodeName="first"),
            pods.start_server("old", nodeName="first", metadata={"labels": {"app": "old"}}, container=mapped),
        )
        web = (await pods.create_service())["spec"]["clusterIP"]
        before = await _containers_of(pods)
        for _ in range(2):
            await kill_fork_server(pods.runtimes[0])
        near, far = await asyncio.gather(
            pods.start_server("near", nodeName="first", metadata={"labels": {"app": "web"}}),
            pods.start_server("far", nodeName="second", metadata={"labels": {"app": "other"}}),
        )
        await pods.create_service("other", selector={"app": "other"})
        await pods.until(lambda: _page(pods, "client", f"http://{near['status']['podIP']}:8080/"), "near")
        await pods.until(lambda: _page(pods, "client", f"http://{far['status']['podIP']}:8080/"), "far")
        await pods.until(lambda: _page(pods, "client", f"http://{web}/"), "near")
        await pods.until(lambda: _page(pods, "client", "http://other.default.svc.cluster.local/"), "far")
        old = (await pods.client.get("v1/Pod", "old", namespace="default"))["status"]["podIP"]
        await pods.until(lambda: _page(pods, "far", f"http://{old}:8080/"), "old")
        await pods.until(lambda: _page(pods, "near", "http://10.244.0.1:18080/"), "old")
        assert before.items() <= (await _containers_of(pods)).items(), "no container was restarted"


async def test_policies_hold_between_the_pods_of_two_fork_servers() -> None:
    async with run_pod_cluster() as pods:
        old = await pods.start_server("old")
        await kill_fork_server(pods.runtimes[0])
        await pods.start_client()
        address = old["status"]["podIP"]

        async def reaches() -> bool:
            return (await pods.run("client", "python3", "-c", _CONNECT, address, "8080"))[1] == "yes"

        await pods.until(reaches, True)
        policy: dict[str, Any] = {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "policy", "namespace": "default"},
            "spec": {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"]},
        }
        await pods.client.apply(policy)
        await pods.until(reaches, False)
        await pods.client.delete("networking.k8s.io/v1/NetworkPolicy", "policy", namespace="default")
        await pods.until(reaches, True)


async def test_a_node_that_has_lost_its_whole_network_is_reached_by_the_others(tmp_path: Path) -> None:
    """Its agent and its fork server have ended, and no pod was left that has held the network."""
    async with run_pod_cluster(nodes=("first",), links=tmp_path / "links") as pods:
        await pods.start_client(nodeName="first")
        for _ in range(2):
            async with pods.further_node("second", 1):
                far = await pods.start_server("far", nodeName="second")
                address = far["status"]["podIP"]
                await pods.until(partial(_page, pods, "client", f"http://{address}:8080/"), "far")
                await pods.delete_pod("far")
