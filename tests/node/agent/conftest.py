"""A cluster in memory with one node: its agent runs containers of the image `host`, or has a runtime in memory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.clients.kubectl_command import Kubectl, kubectl_binary
from tests.node.namespaces import need_namespaces

from pinnace.client.client import Client
from pinnace.client.kubeconfig_files import write
from pinnace.cluster.cluster import RunningCluster, running
from pinnace.cluster.in_process import in_process_client
from pinnace.cluster.settings import Settings
from pinnace.model.objects import Object
from pinnace.model.users import User
from pinnace.node.agent.agent import NodeAgent
from pinnace.node.agent.kubelet_api.connection import AgentConnection
from pinnace.node.agent.settings import AgentSettings
from pinnace.node.image_service import ImageService
from pinnace.node.images.images import Images
from pinnace.node.machine.mapped_root import remove_tree
from pinnace.node.pressure.signals import Signal
from pinnace.node.resources.alignment.node_resources import ResourcePolicies
from pinnace.node.runtime.embedded.runtime import EmbeddedRuntime, EmbeddedSettings
from pinnace.node.runtime.in_memory import InMemoryImages, InMemoryRuntime
from pinnace.node.runtime.runtime import Runtime
from pinnace.process.clock import SystemClock
from pinnace.reconcile.manager import Manager
from pinnace.reconcile.metrics import Metrics
from pinnace.testing.live_clock import LiveClock

NODE = "this-machine"


class FixedSignals:
    """Signals of the node that a test sets."""

    def __init__(self) -> None:
        self.readings: dict[str, Signal] = {}

    def read(self) -> dict[str, Signal]:
        return dict(self.readings)


class NodeUnderTest(ABC):
    """A cluster and its node, with shorthands for tests."""

    image = "host"
    """The image of the containers that name none."""
    feature_gates = ""
    has_plugins = False
    """Whether the node has the sockets of plug-ins, in `plugins`."""
    options: Mapping[str, Any] = {}
    """Further fields of the agent's settings."""

    def __init__(self, cluster: RunningCluster, client: Client, directory: Path) -> None:
        self.cluster = cluster
        self.client = client
        self.directory = directory
        self.agent: NodeAgent
        self.metrics: Metrics
        self.manifests = directory / "manifests"
        self.plugins = directory / "kubelet"
        self.signals = FixedSignals()
        self.clock = LiveClock()
        """The clock of the agent."""
        self._running: asyncio.Task[None] | None = None

    @abstractmethod
    async def open_runtime(self) -> tuple[Runtime, ImageService]: ...

    @abstractmethod
    async def end_runtime(self) -> None:
        """Remove the pods."""

    async def start_agent(self) -> None:
        runtime, images = await self.open_runtime()
        user = User(f"system:node:{NODE}", ("system:nodes", "system:authenticated"))
        client = in_process_client(self.cluster.plane.local(user), clock=self.clock, field_manager="kubelet")
        manager = Manager(client, name="kubelet")
        self.metrics = manager.metrics
        self.manifests.mkdir(exist_ok=True)
        agent_settings = AgentSettings(
            name=NODE,
            directory=self.directory,
            manifests=self.manifests,
            signals=self.signals,
            feature_gates=self.feature_gates,
            plugins=self.plugins if self.has_plugins else None,
            **self.options,
        )
        self.agent = agent = NodeAgent(agent_settings, manager, runtime, images)
        manager.add(agent.controller)
        self.cluster.plane.nodes.register(NODE, AgentConnection(runtime, SystemClock()))

        async def run() -> None:
            async with agent.running():
                await manager.run()

        self._running = asyncio.ensure_future(run())
        await self.until(self._is_registered)

    async def stop_agent(self) -> None:
        """Stop the agent, and remove its pods."""
        await self.kill_agent()
        await self.end_runtime()

    async def kill_agent(self) -> None:
        """Stop the agent without a word to its pods."""
        assert self._running is not None
        self._running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._running

    async def create(self, name: str, command: str | list[str] | None = None, **spec: Any) -> Object:
        argv = ["sh", "-c", command] if isinstance(command, str) else command
        container: Object = {"name": "main", "image": self.image, **spec.pop("container", {})}
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
            events = [event["message"] for event in await self.client.list("v1/Event", namespace="default")]
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

    async def until_event(self, name: str, text: str, *, reason: str = "") -> None:
        """Wait until an Event of a pod has a message with this text, and this reason if one is given."""

        async def is_there() -> bool:
            return any(
                event["involvedObject"]["name"] == name and reason in ("", event["reason"]) and text in event["message"]
                for event in await self.client.list("v1/Event", namespace="default")
            )

        await self.until(is_there)

    async def advance(self, seconds: float) -> None:
        """Let the agent's time pass, after what it does now: a delay that it decides on later would begin later."""
        await self.agent.controller.queue.idle()
        await self.clock.advance(seconds)

    async def kubectl(self, command: str, *, stdin: str = "") -> str:
        path = self.directory / "kubeconfig"
        write(path, self.cluster.access)
        runs = Kubectl(kubectl_binary(), path, self.directory / "cache", "default")
        return await asyncio.to_thread(lambda: runs(command, stdin=stdin))

    async def logs(self, name: str, container: str = "main") -> str:
        target = f"/api/v1/namespaces/default/pods/{name}/log?container={container}"
        return (await self.client.read(target)).decode()

    async def until_logs(self, name: str, text: str) -> None:
        """Wait until a running container has printed exactly this."""
        result = ""
        try:
            async with asyncio.timeout(60):
                while result != text:
                    await asyncio.sleep(0.01)
                    result = await self.logs(name)
        except TimeoutError:
            assert result == text

    async def _is_registered(self) -> bool:
        """Whether pods can start: the node has a lease, and their namespace what each pod mounts."""
        needed = (
            ("coordination.k8s.io/v1/Lease", NODE, "kube-node-lease"),
            ("v1/ServiceAccount", "default", "default"),
            ("v1/ConfigMap", "kube-root-ca.crt", "default"),
        )
        obj = [await self.client.get_or_none(kind, name, namespace=namespace) for kind, name, namespace in needed]
        return None not in obj


class RealNode(NodeUnderTest):
    """A node that runs containers."""

    runtime: EmbeddedRuntime
    images: Images

    async def open_runtime(self) -> tuple[Runtime, ImageService]:
        clock = SystemClock()
        self.images = Images(self.directory / "images", clock, is_offline=True)
        policies: ResourcePolicies = self.options.get("policies", ResourcePolicies())
        settings = EmbeddedSettings(directory=self.directory / "runtime", pins_containers=policies.pins_containers)
        self.runtime = await EmbeddedRuntime.open(settings, self.images, clock)
        return self.runtime, self.images

    async def end_runtime(self) -> None:
        await self.runtime.end()

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


class NodeInMemory(NodeUnderTest):
    """A node without containers: `runtime` does what the test states. It needs no namespaces."""

    image = "web"
    runtime: InMemoryRuntime
    images: InMemoryImages

    async def open_runtime(self) -> tuple[Runtime, ImageService]:
        self.runtime, self.images = InMemoryRuntime(self.directory, self.clock), InMemoryImages(self.image)
        return self.runtime, self.images

    async def end_runtime(self) -> None:
        await self.runtime.close()


def is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


@contextlib.asynccontextmanager
async def running_node(
    directory: Path, *, feature_gates: str = "", options: Mapping[str, Any] | None = None
) -> AsyncIterator[RealNode]:
    """Run a cluster and its node with this state directory within a block."""
    async with running(Settings(feature_gates=feature_gates)) as cluster:
        made = RealNode(cluster, in_process_client(cluster.plane.local()), directory)
        made.feature_gates = feature_gates
        made.options = options or {}
        await made.start_agent()
        try:
            yield made
        finally:
            await made.stop_agent()


@pytest.fixture
async def memory_node(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[NodeInMemory]:
    """A cluster and its node. `parametrize("memory_node", ["1.35"], indirect=True)` sets the version of Kubernetes."""
    version = getattr(request, "param", "")
    async with running(Settings(kubernetes_version=version)) as cluster:
        made = NodeInMemory(cluster, in_process_client(cluster.plane.local()), tmp_path)
        await made.start_agent()
        try:
            yield made
        finally:
            await made.stop_agent()


@pytest.fixture
async def node(request: pytest.FixtureRequest) -> AsyncIterator[RealNode]:
    """A cluster and its node. `parametrize("node", ["Gate=true"], indirect=True)` sets feature gates."""
    need_namespaces()
    memory = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(prefix="pinnace-", dir=memory if os.access(memory, os.W_OK) else None))
    try:
        async with running_node(directory, feature_gates=getattr(request, "param", "")) as made:
            yield made
    finally:
        remove_tree(directory)
