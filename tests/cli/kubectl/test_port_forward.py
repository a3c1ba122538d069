"""port-forward leads to a pod of a service or of a workload, through the ports that these name."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import orjson
import pytest
from tests.cli.streaming_twin import Pinnace, cluster, differences, kubectl, node, ours
from tests.server.streaming.conftest import SECONDS, Kubectl, made
from tests.server.streaming.process_node import ProcessNode

from pinnace.cluster.cluster import RunningCluster
from pinnace.model.objects import Object

__all__ = ["cluster", "kubectl", "node", "ours"]

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
async def echo() -> AsyncIterator[int]:
    """A port that answers with the received text in capitals."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readline()).upper())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.fixture
async def site(cluster: RunningCluster, node: ProcessNode, echo: int) -> None:
    """A pod that runs and one that waits, behind services and a deployment."""
    container = {"name": "main", "image": "image", "ports": [{"name": "http", "containerPort": echo}]}
    for name, spec in (("runs", {"nodeName": "machine"}), ("waits", {})):
        labels = {"app": "site", "name": name}
        pod: Object = {"metadata": {"name": name, "labels": labels}, "spec": {**spec, "containers": [container]}}
        await made(cluster.plane, PODS, pod)
    await cluster.plane.local().request(
        "PATCH",
        f"{PODS}/runs/status",
        orjson.dumps({"status": {"phase": "Running"}}),
        {"content-type": "application/merge-patch+json"},
    )
    services: dict[str, Object] = {
        "named": {"selector": {"app": "site"}, "ports": [{"name": "web", "port": 80, "targetPort": "http"}]},
        "numbered": {"selector": {"app": "site"}, "ports": [{"port": 81, "targetPort": echo}]},
        "headless": {
            "clusterIP": "None",
            "selector": {"app": "site"},
            "ports": [{"name": "web", "port": echo, "targetPort": 1}],
        },
        "wrong": {"selector": {"app": "site"}, "ports": [{"name": "web", "port": 80, "targetPort": "nope"}]},
        "loose": {"ports": [{"port": 80}]},
        "waiting": {"selector": {"name": "waits"}, "ports": [{"port": 80}]},
    }
    for name, spec in services.items():
        await made(cluster.plane, "/api/v1/namespaces/default/services", {"metadata": {"name": name}, "spec": spec})
    template = {"metadata": {"labels": {"app": "site"}}, "spec": {"containers": [container]}}
    workload: Object = {"selector": {"matchLabels": {"app": "site"}}, "template": template}
    await made(
        cluster.plane, "/apis/apps/v1/namespaces/default/deployments", {"metadata": {"name": "site"}, "spec": workload}
    )


@contextlib.asynccontextmanager
async def forwarding(ours: Pinnace, *arguments: str) -> AsyncIterator[tuple[int, int]]:
    """Return the local port and the pod's, as the command prints them."""
    process = await ours.start("port-forward", *arguments)
    assert process.stdout is not None
    async with asyncio.timeout(SECONDS):
        output = (await process.stdout.readline()).decode()
        assert output.startswith("Forwarding from 127.0.0.1:"), output + (await process.communicate())[1].decode()
        local, _, remote = output.removeprefix("Forwarding from 127.0.0.1:").partition(" -> ")
        yield int(local), int(remote)
        process.terminate()
        await process.wait()


@pytest.mark.parametrize(
    ("target", "port"),
    [
        ("svc/named", ":web"),
        ("service/named", ":80"),
        ("svc/numbered", ":81"),
        ("svc/headless", ":web"),
        ("deployment/site", ":http"),
        ("deploy/site", ":ECHO"),
        ("pod/runs", ":http"),
    ],
)
async def test_data_reaches_the_pod_that_runs(
    target: str, port: str, ours: Pinnace, node: ProcessNode, site: None, echo: int
) -> None:
    async with forwarding(ours, target, port.replace("ECHO", str(echo))) as (local, remote):
        assert remote == echo
        reader, writer = await asyncio.open_connection("127.0.0.1", local)
        writer.write(b"hello\n")
        assert await reader.readline() == b"HELLO\n"
        writer.close()
    assert ("connect", "runs", echo) in node.calls


async def test_a_port_that_is_taken_is_reported(ours: Pinnace, site: None, echo: int) -> None:
    ended = await ours("port-forward", "svc/named", f"{echo}:web")
    assert ended.code == 1
    assert ended.stderr.startswith(f"error: unable to listen on port {echo}".encode())


REFUSED = [
    "port-forward svc/named 8080:nope",
    "port-forward svc/named :8080",
    "port-forward svc/nope 80",
    "port-forward svc/wrong :web",
    "port-forward svc/waiting :80",
    "port-forward deploy/site :nope",
    "port-forward deploy/nope 80",
    "port-forward runs",
    "port-forward runs 0:0",
    "port-forward runs x",
    "port-forward runs x:80",
    "port-forward runs 70000:80",
    "port-forward waits :http",
]


async def test_invalid_arguments_are_refused_as_by_kubectl(ours: Pinnace, kubectl: Kubectl, site: None) -> None:
    differing = []
    for command in REFUSED:
        differing += await differences(kubectl, ours, *command.split())
    assert not differing, "\n".join(differing)


@pytest.mark.parametrize("target", ["svc/loose", "configmap/kube-root"])
async def test_a_target_without_a_pod_is_refused(
    target: str, ours: Pinnace, cluster: RunningCluster, node: ProcessNode, site: None
) -> None:
    named = {"metadata": {"name": "kube-root"}}
    await made(cluster.plane, "/api/v1/namespaces/default/configmaps", named)
    ended = await ours("port-forward", target, "80")
    assert ended.code == 1
    assert b"it has no selector" in ended.stderr
