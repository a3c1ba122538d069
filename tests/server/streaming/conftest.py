"""A cluster with one node that runs real processes, and kubectl pointed at it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.clients.kubectl_command import kubectl_binary
from tests.server.streaming.process_node import ProcessNode

from pinnace.client import kubeconfig_files as kubeconfig
from pinnace.cluster.cluster import RunningCluster, running
from pinnace.cluster.control_plane import ControlPlane
from pinnace.cluster.settings import Settings
from pinnace.model.objects import Object

POD = "web"
SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True, slots=True)
class Kubectl:
    """The machine's kubectl. With `is_old` it speaks SPDY, as all did before 1.31."""

    binary: str
    kubeconfig: Path
    is_old: bool

    async def __call__(self, *arguments: str, stdin: bytes = b"") -> Ended:
        process = await self.start(*arguments)
        async with asyncio.timeout(SECONDS):
            stdout, stderr = await process.communicate(stdin)
        assert process.returncode is not None
        return Ended(process.returncode, stdout, stderr)

    async def start(self, *arguments: str, **streams: Any) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            self.binary,
            *arguments,
            **{"stdin": pipe, "stdout": pipe, "stderr": pipe, **streams},
            env={
                **os.environ,
                "KUBECONFIG": str(self.kubeconfig),
                "KUBECACHEDIR": str(self.kubeconfig.parent / "cache"),
                "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": str(not self.is_old).lower(),
                "KUBECTL_PORT_FORWARD_WEBSOCKETS": str(not self.is_old).lower(),
            },
        )


async def made(plane: ControlPlane, path: str, obj: Object) -> Object:
    """Have the cluster store an object."""
    answer = await plane.local().request("POST", path, orjson.dumps(obj), {"content-type": "application/json"})
    body = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
    assert answer.status == 201, body
    stored: Object = orjson.loads(body)
    return stored


async def run_pod(plane: ControlPlane, name: str, *containers: str, node: str = "machine", ip: str = "") -> None:
    """A pod that is bound to a node, and said to run."""
    spec = {"nodeName": node, "containers": [{"name": container, "image": "image"} for container in containers]}
    await made(plane, "/api/v1/namespaces/default/pods", {"metadata": {"name": name}, "spec": spec})
    status: Object = {"phase": "Running", **({"podIP": ip, "podIPs": [{"ip": ip}]} if ip else {})}
    answer = await plane.local().request(
        "PATCH",
        f"/api/v1/namespaces/default/pods/{name}/status",
        orjson.dumps({"status": status}),
        {"content-type": "application/merge-patch+json"},
    )
    assert answer.status == 200, answer.body


async def furnish(plane: ControlPlane) -> ProcessNode:
    """Give a cluster a node and a pod that runs there."""
    node = ProcessNode()
    plane.nodes.register("machine", node)
    await made(plane, "/api/v1/nodes", {"metadata": {"name": "machine"}})
    await run_pod(plane, POD, "main")
    return node


@pytest.fixture
async def cluster() -> AsyncIterator[RunningCluster]:
    async with running(Settings(controllers=False)) as running_cluster:
        yield running_cluster


@pytest.fixture
async def node(cluster: RunningCluster) -> ProcessNode:
    return await furnish(cluster.plane)


@pytest.fixture(params=[False, True], ids=["websocket", "spdy"])
def kubectl(request: pytest.FixtureRequest, cluster: RunningCluster, node: ProcessNode, tmp_path: Path) -> Kubectl:
    return kubectl_for(cluster, tmp_path, is_old=request.param)


def kubectl_for(cluster: RunningCluster, directory: Path, *, is_old: bool = False) -> Kubectl:
    binary = kubectl_binary()
    path = directory / "kubeconfig"
    kubeconfig.write(path, cluster.access)
    return Kubectl(binary, path, is_old)
