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
from tests.node.namespaces import need_namespaces

from pinnace.client.client import Client
from pinnace.cluster.cluster import RunningCluster, running
from pinnace.cluster.in_process import in_process_client
from pinnace.cluster.settings import Settings
from pinnace.model.clock import SystemClock
from pinnace.model.objects import Object
from pinnace.network.service_range import SERVICE_RANGE, ipv6_pod_network
from pinnace.node.agent.agent import AgentSettings
from pinnace.node.agent.connection import AgentConnection
from pinnace.node.agent.process import NodeSettings, run_node
from pinnace.node.runtime.embedded.root_file_systems import remove_tree
from pinnace.node.runtime.embedded.runtime import EmbeddedRuntime

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

    def __init__(self, cluster: RunningCluster, client: Client) -> None:
        self.cluster = cluster
        self.client = client
        self.runtimes: list[EmbeddedRuntime] = []

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
                (container,) = [one for one in await runtime.containers(sandbox.id) if one.config.name == "main"]
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
        found: Any = None
        try:
            async with asyncio.timeout(60):
                while (found := await condition()) != wanted:
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"expected {wanted!r}, found {found!r}") from None

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
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


@asynccontextmanager
async def run_pod_cluster(
    *,
    uses_nftables: bool = True,
    nodes: Sequence[str] = (NODE,),
    links: Path | None = None,
    service_ranges: Sequence[str] = (SERVICE_RANGE,),
) -> AsyncIterator[PodCluster]:
    need_namespaces()
    memory = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(prefix="pinnace-", dir=memory if os.access(memory, os.W_OK) else None))
    try:
        async with AsyncExitStack() as stack:
            cluster = await stack.enter_async_context(running(Settings(service_ranges=tuple(service_ranges))))
            made = PodCluster(cluster, in_process_client(cluster.plane.local()))
            made.is_nftables = uses_nftables
            for number, name in enumerate(nodes):
                is_dual = len(service_ranges) > 1
                four, *six = sorted(service_ranges, key=lambda one: ":" in one)
                settings = NodeSettings(
                    agent=AgentSettings(
                        name=name,
                        directory=directory / name,
                        service_network=four,
                        ipv6_service_network=six[0] if is_dual else "",
                    ),
                    pod_network=f"10.244.{number}.0/24",
                    ipv6_pod_network=ipv6_pod_network(number) if is_dual else "",
                    is_offline=True,
                    stops_pods=True,
                    uses_nftables=uses_nftables,
                    links=links,
                )
                own = in_process_client(cluster.plane.local(), field_manager="kubelet")
                runtime = await stack.enter_async_context(run_node(own, settings))
                made.runtimes.append(runtime)
                cluster.plane.nodes.register(name, AgentConnection(runtime, SystemClock()))
            await made.until(lambda: made.has_nodes(nodes))
            yield made
    finally:
        remove_tree(directory)


@pytest.fixture(params=["nftables", "proxy"])
async def pods(request: pytest.FixtureRequest) -> AsyncIterator[PodCluster]:
    async with run_pod_cluster(uses_nftables=request.param == "nftables") as made:
        yield made
