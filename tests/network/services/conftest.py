"""A cluster in memory with one node that runs pods, and short ways to talk between pods."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.machine import need
from tests.node.namespaces import need_namespaces

from pinnace.client.client import Client
from pinnace.cluster.cluster import RunningCluster, running
from pinnace.cluster.in_process import in_process_client
from pinnace.cluster.settings import Settings
from pinnace.kinds.services.service_range import SERVICE_RANGE, ipv6_pod_network
from pinnace.model.objects import Object
from pinnace.node.agent.kubelet_api.connection import AgentConnection
from pinnace.node.agent.settings import AgentSettings
from pinnace.node.machine.mapped_root import remove_tree
from pinnace.node.node import NodeSettings, run_node
from pinnace.node.runtime.embedded.runtime import EmbeddedRuntime
from pinnace.process.clock import SystemClock

NODE = "this-machine"
_SERVER = """
import http.server, socket, socketserver, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = f"{socket.gethostname()} {self.client_address[0]}".encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args): pass
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        self.request[1].sendto(socket.gethostname().encode() + b" " + self.request[0], self.client_address)
threading.Thread(target=socketserver.UDPServer(("", 8080), Echo).serve_forever).start()
http.server.ThreadingHTTPServer(("", 8080), Handler).serve_forever()
"""


class PodCluster:
    """A cluster and its node, with shorthands for tests."""

    is_nftables = True

    directory: Path
    service_ranges: Sequence[str] = ()
    links: Path | None = None

    def __init__(self, cluster: RunningCluster, client: Client) -> None:
        self.cluster = cluster
        self.client = client
        self.runtimes: list[EmbeddedRuntime] = []

    @asynccontextmanager
    async def further_node(self, name: str, number: int) -> AsyncIterator[None]:
        """Run a node of this cluster within a block."""
        is_dual = len(self.service_ranges) > 1
        four, *six = sorted(self.service_ranges, key=lambda cidr: ":" in cidr)
        settings = NodeSettings(
            agent=AgentSettings(
                name=name,
                directory=self.directory / name,
                service_network=four,
                ipv6_service_network=six[0] if is_dual else "",
            ),
            pod_network=f"10.244.{number}.0/24",
            ipv6_pod_network=ipv6_pod_network(number) if is_dual else "",
            is_offline=True,
            stops_pods=True,
            uses_nftables=self.is_nftables,
            links=self.links,
        )
        own = in_process_client(self.cluster.plane.local(), field_manager="kubelet")
        async with run_node(own, settings) as runtime:
            self.runtimes.append(runtime)
            self.cluster.plane.nodes.register(name, AgentConnection(runtime, SystemClock()))
            try:
                yield
            finally:
                self.runtimes.remove(runtime)

    async def create_pod(self, name: str, command: list[str], **fields: Any) -> Object:
        container = {"name": "main", "image": "host", "command": command, **fields.pop("container", {})}
        metadata = {"name": name, "namespace": "default", **fields.pop("metadata", {})}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 0, "nodeName": NODE, **fields}
        return await self.client.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    async def start_server(self, name: str, **fields: Any) -> Object:
        """Start a pod that answers over HTTP and UDP with its name, and wait until it is ready."""
        probe = {"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 60}
        fields.setdefault("metadata", {"labels": {"app": "web"}})
        fields.setdefault("container", {"readinessProbe": probe})
        await self.create_pod(name, ["python3", "-c", _SERVER], **fields)
        return await self.until_ready(name)

    async def start_client(self, name: str = "client", **fields: Any) -> Object:
        await self.create_pod(name, ["sleep", "1000"], **fields)
        return await self.until_ready(name)

    async def create_service(self, name: str = "web", **spec: Any) -> Object:
        ports = [{"port": 80, "targetPort": 8080}]
        return await self.client.create(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"selector": {"app": "web"}, "ports": ports, **spec},
            }
        )

    async def run(self, pod: str, *command: str, namespace: str = "default") -> tuple[int, str]:
        """Run a command in a pod, and return its exit code and output."""
        for runtime in self.runtimes:
            for sandbox in await runtime.sandboxes(namespace, pod):
                (container,) = [
                    running for running in await runtime.containers(sandbox.id) if running.config.name == "main"
                ]
                result = await runtime.exec_sync(container.id, list(command), timeout=60)
                return result.exit_code, result.output.decode(errors="replace").strip()
        raise AssertionError(f"no node has a pod {pod}")

    async def has_nodes(self, names: Sequence[str]) -> bool:
        account = await self.client.get_or_none("v1/ServiceAccount", "default", namespace="default")
        return account is not None and all([await self.client.get_or_none("v1/Node", name) for name in names])

    async def fetch(self, pod: str, url: str) -> str:
        """Return the page, or curl's exit code as text: 7 is refused, 28 a time-out."""
        code, output = await self.run(pod, "curl", "-sS", "--max-time", "5", url)
        return output if code == 0 else f"curl {code}: {output}"

    async def until(self, condition: Callable[[], Awaitable[Any]], wanted: Any = True) -> None:
        """Wait until a condition gives the wanted result."""
        current: Any = None
        try:
            async with asyncio.timeout(60):
                while (current := await condition()) != wanted:
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"expected {wanted!r}, found {current!r}") from None

    async def until_ready(self, name: str, *, namespace: str = "default") -> Object:
        pod: Object | None = None
        try:
            async with asyncio.timeout(60):
                while pod is None or not is_ready(pod):
                    pod = await self.client.get_or_none("v1/Pod", name, namespace=namespace)
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(json.dumps((pod or {}).get("status"), indent=1)) from None
        return pod

    async def delete_pod(self, name: str) -> None:
        await self.client.delete("v1/Pod", name, namespace="default")

        async def is_gone() -> bool:
            return await self.client.get_or_none("v1/Pod", name, namespace="default") is None

        await self.until(is_gone)


def is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


@asynccontextmanager
async def run_pod_cluster(
    *,
    uses_nftables: bool = True,
    nodes: Sequence[str] = (NODE,),
    links: Path | None = None,
    service_ranges: Sequence[str] = (SERVICE_RANGE,),
) -> AsyncIterator[PodCluster]:
    need_namespaces()
    need("curl")
    memory = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(prefix="pinnace-", dir=memory if os.access(memory, os.W_OK) else None))
    try:
        async with AsyncExitStack() as stack:
            cluster = await stack.enter_async_context(running(Settings(service_ranges=tuple(service_ranges))))
            made = PodCluster(cluster, in_process_client(cluster.plane.local()))
            made.is_nftables = uses_nftables
            made.directory, made.service_ranges, made.links = directory, service_ranges, links
            for number, name in enumerate(nodes):
                await stack.enter_async_context(made.further_node(name, number))
            await made.until(lambda: made.has_nodes(nodes))
            yield made
    finally:
        remove_tree(directory)


@pytest.fixture(params=["nftables", "proxy"])
async def pods(request: pytest.FixtureRequest) -> AsyncIterator[PodCluster]:
    async with run_pod_cluster(uses_nftables=request.param == "nftables") as made:
        yield made
