"""A cluster in memory with one real node: the agent, the embedded runtime and the image `host`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.clients.kubectl_command import Kubectl, kubectl_binary
from tests.node.namespaces import need_namespaces

from pinnace.auth.users import User
from pinnace.client.client import Client
from pinnace.cluster.cluster import RunningCluster, running
from pinnace.cluster.in_process import in_process_client
from pinnace.cluster.kubeconfig import write
from pinnace.cluster.settings import Settings
from pinnace.model.clock import SystemClock
from pinnace.model.objects import Object
from pinnace.node.agent.agent import AgentSettings, NodeAgent
from pinnace.node.agent.connection import AgentConnection
from pinnace.node.images.images import Images
from pinnace.node.pressure.signals import Signal
from pinnace.node.runtime.embedded.root_file_systems import remove_tree
from pinnace.node.runtime.embedded.runtime import EmbeddedRuntime, EmbeddedSettings
from pinnace.reconcile.manager import Manager
from pinnace.testing.live_clock import LiveClock

NODE = "this-machine"


class FixedSignals:
    """Signals of the node that a test sets."""

    def __init__(self) -> None:
        self.found: dict[str, Signal] = {}

    def read(self) -> dict[str, Signal]:
        return dict(self.found)


class RealNode:
    """A cluster and its node, with shorthands for tests."""

    def __init__(self, cluster: RunningCluster, client: Client, directory: Path) -> None:
        self.cluster = cluster
        self.client = client
        self.directory = directory
        self.runtime: EmbeddedRuntime
        self.images: Images
        self.agent: NodeAgent
        self.manifests = directory / "manifests"
        self.signals = FixedSignals()
        self.clock = LiveClock()
        """The clock of the agent."""
        self._running: asyncio.Task[None] | None = None

    async def start_agent(self) -> None:
        clock = SystemClock()
        self.images = Images(self.directory / "images", clock, is_offline=True)
        settings = EmbeddedSettings(directory=self.directory / "runtime")
        self.runtime = await EmbeddedRuntime.open(settings, self.images, clock)
        user = User(f"system:node:{NODE}", ("system:nodes", "system:authenticated"))
        client = in_process_client(self.cluster.plane.local(user), clock=self.clock, field_manager="kubelet")
        manager = Manager(client, name="kubelet")
        self.manifests.mkdir(exist_ok=True)
        agent_settings = AgentSettings(
            name=NODE, directory=self.directory, manifests=self.manifests, signals=self.signals
        )
        self.agent = agent = NodeAgent(agent_settings, manager, self.runtime, self.images)
        manager.add(agent.controller)
        self.cluster.plane.nodes.register(NODE, AgentConnection(self.runtime, clock))

        async def run() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(manager.run())
                group.create_task(agent.run())

        self._running = asyncio.ensure_future(run())
        await self.until(self._is_registered)

    async def stop_agent(self) -> None:
        """Stop the agent, and remove its pods."""
        await self.kill_agent()
        await self.runtime.end()

    async def kill_agent(self) -> None:
        """Stop the agent without a word to its pods."""
        assert self._running is not None
        self._running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._running

    async def create(self, name: str, command: str | list[str] | None = None, **spec: Any) -> Object:
        argv = ["sh", "-c", command] if isinstance(command, str) else command
        container: Object = {"name": "main", "image": "host", **spec.pop("container", {})}
        if argv is not None:
            container["command"] = argv
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", **spec.pop("metadata", {})},
            "spec": {"nodeName": NODE, "containers": [container], "terminationGracePeriodSeconds": 5, **spec},
        }
        return await self.client.create(pod)

    async def get(self, name: str) -> Object | None:
        return await self.client.get_or_none("v1/Pod", name, namespace="default")

    async def until_pod(self, name: str, condition: Callable[[Object], Any]) -> Object:
        """Wait until the pod fulfils a condition, and return it."""
        pod: Object | None = None
        try:
            async with asyncio.timeout(60):
                while True:
                    pod = await self.get(name)
                    if pod is not None and condition(pod):
                        return pod
                    await asyncio.sleep(0.01)
        except TimeoutError:
            events = [one["message"] for one in await self.client.list("v1/Event", namespace="default")]
            raise AssertionError(f"{json.dumps((pod or {}).get('status'), indent=1)}\n{events}") from None

    async def until_phase(self, name: str, phase: str) -> Object:
        return await self.until_pod(name, lambda pod: (pod.get("status") or {}).get("phase") == phase)

    async def until_ready(self, name: str) -> Object:
        return await self.until_pod(name, is_ready)

    async def until_gone(self, name: str) -> None:
        async def is_gone() -> bool:
            return await self.get(name) is None

        await self.until(is_gone)

    async def delete(self, name: str) -> None:
        await self.client.delete("v1/Pod", name, namespace="default")
        await self.until_gone(name)

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(60):
            while not await condition():
                await asyncio.sleep(0.01)

    async def kubectl(self, command: str, *, stdin: str = "") -> str:
        path = self.directory / "kubeconfig"
        write(path, self.cluster.access)
        runs = Kubectl(kubectl_binary(), path, self.directory / "cache", "default")
        return await asyncio.to_thread(lambda: runs(command, stdin=stdin))

    async def read(self, name: str, path: str) -> str:
        """Read a file in the first container of a running pod; empty if it is missing."""
        pod = await self.client.get("v1/Pod", name, namespace="default")
        container = pod["status"]["containerStatuses"][0]["containerID"].partition("://")[2]
        return (await self.runtime.exec_sync(container, ["cat", path], timeout=60)).output.decode()

    async def until_file(self, name: str, path: str, condition: Callable[[str], bool]) -> str:
        """Wait until a file in a running pod fulfils a condition, and return its content."""
        text = ""
        try:
            async with asyncio.timeout(60):
                while not condition(text := await self.read(name, path)):
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"{path}: {text}") from None
        return text

    async def logs(self, name: str, container: str = "main") -> str:
        target = f"/api/v1/namespaces/default/pods/{name}/log?container={container}"
        return (await self.client.read(target)).decode()

    async def until_logs(self, name: str, text: str) -> None:
        """Wait until a running container has printed exactly this."""
        found = ""
        try:
            async with asyncio.timeout(60):
                while found != text:
                    await asyncio.sleep(0.01)
                    found = await self.logs(name)
        except TimeoutError:
            assert found == text

    async def _is_registered(self) -> bool:
        return (
            await self.client.get_or_none("coordination.k8s.io/v1/Lease", NODE, namespace="kube-node-lease") is not None
            and await self.client.get_or_none("v1/ServiceAccount", "default", namespace="default") is not None
        )


def is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


@pytest.fixture
async def node() -> AsyncIterator[RealNode]:
    need_namespaces()
    memory = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(prefix="pinnace-", dir=memory if os.access(memory, os.W_OK) else None))
    try:
        async with running(Settings()) as cluster:
            made = RealNode(cluster, in_process_client(cluster.plane.local()), directory)
            await made.start_agent()
            try:
                yield made
            finally:
                await made.stop_agent()
    finally:
        remove_tree(directory)
