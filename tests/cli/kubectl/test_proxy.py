"""`pinnace proxy` leads to the pods of a Service that are ready, whichever they are at the moment."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import orjson
import pytest
from tests.cli.streaming_twin import Pinnace, cluster, kubectl, node, ours
from tests.free_ports import free_port
from tests.server.streaming.conftest import made, run_pod
from tests.server.streaming.process_node import ProcessNode

from pinnace.client import kubeconfig_files as kubeconfig
from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.client.kubeconfig import access_of
from pinnace.client.ports import NoReadyPod
from pinnace.cluster.cluster import RunningCluster
from pinnace.model.objects import Object

__all__ = ["cluster", "kubectl", "node", "ours"]

SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


async def _serve(name: str, stack: contextlib.AsyncExitStack) -> int:
    """Open a port that answers with a name."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(name.encode())
        await writer.drain()
        writer.close()

    server = await stack.enter_async_context(await asyncio.start_server(answer, "127.0.0.1", 0))
    port: int = server.sockets[0].getsockname()[1]
    return port


def _slice(pod: str, port: int, *, is_ready: bool) -> Object:
    target = {"kind": "Pod", "namespace": "default", "name": pod}
    return {
        "metadata": {"name": pod, "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": port}],
        "endpoints": [{"addresses": ["10.244.0.9"], "conditions": {"ready": is_ready}, "targetRef": target}],
    }


@pytest.fixture
async def site(cluster: RunningCluster, node: ProcessNode) -> AsyncIterator[None]:
    """A Service with the pods `one`, which is ready, and `two`, which is not."""
    ports = [{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]
    await made(
        cluster.plane, "/api/v1/namespaces/default/services", {"metadata": {"name": "web"}, "spec": {"ports": ports}}
    )
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(60):
        for pod in ("one", "two"):
            await run_pod(cluster.plane, pod, "main")
            port = await _serve(pod, stack)
            await made(cluster.plane, SLICES, _slice(pod, port, is_ready=pod == "one"))
        yield


async def _set_ready(cluster: RunningCluster, pod: str, *, is_ready: bool) -> None:
    patch = [{"op": "replace", "path": "/endpoints/0/conditions/ready", "value": is_ready}]
    headers = {"content-type": "application/json-patch+json"}
    answer = await cluster.plane.local().request("PATCH", f"{SLICES}/{pod}", orjson.dumps(patch), headers)
    assert answer.status == 200, answer.body


async def _read(port: int) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = (await reader.read(-1)).decode()
    writer.close()
    return answer


@contextlib.asynccontextmanager
async def _proxying(ours: Pinnace, *arguments: str) -> AsyncIterator[tuple[int, str]]:
    """Yield the local port and the first line of output."""
    process = await ours.start("proxy", *arguments)
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode()
        assert line.startswith("Forwarding from 127.0.0.1:"), line + (await process.communicate())[1].decode()
        yield int(line.split(":")[1].split()[0]), line
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.parametrize("ports", [(), (":80",), (":http",)], ids=["every port", "by number", "by name"])
async def test_each_connection_goes_to_a_pod_that_is_ready_then(
    cluster: RunningCluster, site: None, ours: Pinnace, ports: tuple[str, ...]
) -> None:
    async with _proxying(ours, "svc/web", *ports) as (port, line):
        assert line.endswith(" -> service web port 80\n")
        assert [await _read(port) for _ in range(3)] == ["one"] * 3
        await _set_ready(cluster, "one", is_ready=False)
        assert await _read(port) == ""
        await _set_ready(cluster, "two", is_ready=True)
        assert [await _read(port) for _ in range(3)] == ["two"] * 3


async def test_the_local_port_may_be_chosen(site: None, ours: Pinnace) -> None:
    async with _proxying(ours, "service/web", f"{(wanted := free_port())}:80") as (port, _):
        assert (port, await _read(port)) == (wanted, "one")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["web"], "error: expected svc/NAME, found 'web'", id="no type"),
        pytest.param(["pod/web"], "error: expected svc/NAME, found 'pod/web'", id="no Service"),
        pytest.param(["svc/missing"], 'Error from server (NotFound): services "missing" not found', id="missing"),
        pytest.param(["svc/web", "81"], "error: service web has no port 81; it has 80, 53", id="no such port"),
        pytest.param(["svc/web", "53"], "error: port 53 is UDP; only TCP can be forwarded", id="UDP"),
        pytest.param(["svc/web", "x:80"], "error parsing local port 'x'", id="bad local port"),
    ],
)
async def test_a_wrong_command_line_says_what_was_expected(
    site: None, ours: Pinnace, arguments: list[str], message: str
) -> None:
    done = await ours("proxy", *arguments)
    assert (done.code, message in done.stderr.decode()) == (1, True), done.stderr


@pytest.fixture
async def client(cluster: RunningCluster) -> AsyncIterator[Client]:
    async with connect(access_of(kubeconfig.kubeconfig_of(cluster.access))) as made_client:
        yield made_client


async def test_from_python_a_deleted_pod_is_passed_over_and_no_pod_is_an_error(
    cluster: RunningCluster, site: None, client: Client
) -> None:
    await _set_ready(cluster, "two", is_ready=True)
    await client.delete("v1/Pod", "one", grace_seconds=0)
    async with client.service_forward("web", "http") as forward:
        assert [await _read(forward.port) for _ in range(5)] == ["two"] * 5
        await _set_ready(cluster, "two", is_ready=False)
        await _set_ready(cluster, "one", is_ready=False)
        with pytest.raises(NoReadyPod, match="no pod of service web accepts connections: none is ready"):
            await forward.open()
