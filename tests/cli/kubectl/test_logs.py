"""logs asks the node for what kubectl would ask for, and prints what it would print."""

from __future__ import annotations

import asyncio

import pytest
from tests.cli.streaming_twin import Pinnace, cluster, differences, kubectl, node, ours
from tests.server.streaming.conftest import SECONDS, Kubectl, run_pod
from tests.server.streaming.process_node import ProcessNode

from pinnace.cluster.cluster import RunningCluster
from pinnace.model.node_connections import ContainerLogOptions

__all__ = ["cluster", "kubectl", "node", "ours"]

DEPLOYMENT = b"""
apiVersion: apps/v1
kind: Deployment
metadata: {name: site}
spec:
  selector: {matchLabels: {app: site}}
  template: {metadata: {labels: {app: site}}, spec: {containers: [{name: main, image: image}]}}
"""
COMMANDS = [
    "logs web --since=10m",
    "logs web --since 1h30m5s",
    "logs web --since 1500ms",
    "logs web --since-time=2030-01-01T00:00:00Z",
    "logs web --previous",
    "logs web -p",
    "logs web --tail=0",
    "logs web --tail=-1",
    "logs web --limit-bytes=5",
    "logs web --timestamps",
    "logs web --prefix",
    "logs two other",
    "logs two --all-containers",
    "logs two --all-containers=true --tail=1",
    "logs -l app=site",
    "logs -l app=site --tail=-1",
    "logs -l app=site --tail=1",
    "logs -l app=site --all-containers --prefix --timestamps",
    "logs deploy/site",
    "logs deployment/site --all-containers --tail 1",
    "logs deployment.apps/site -c other",
]
REFUSED = [
    "logs web --tail=-2",
    "logs web --since=-5s",
    "logs web --since-time=yesterday",
    "logs web --since=5m --since-time=2030-01-01T00:00:00Z",
    "logs two -c other main",
    "logs two -c other --all-containers",
    "logs two -c nope",
    "logs web -l app=site",
    "logs deploy/nope",
    "logs two -c other --previous",
]


@pytest.fixture
async def site(cluster: RunningCluster, node: ProcessNode, kubectl: Kubectl) -> None:
    """A pod with two containers that a deployment is said to have made."""
    await run_pod(cluster.plane, "two", "main", "other")
    node.lines["main"] = [f"main {number}\n".encode() for number in range(12)]
    node.lines["other"] = [b"other 1\n", b"other 2\n"]
    assert (await kubectl("label", "pod", "two", "app=site")).code == 0
    assert (await kubectl("create", "-f", "-", stdin=DEPLOYMENT)).code == 0


async def test_bytes_that_are_no_text_are_printed_unchanged(ours: Pinnace, kubectl: Kubectl, node: ProcessNode) -> None:
    node.lines["main"] = [b"gr\xc3", b"\xb6n\r\n\n\x00\xff\xfe\n", b"no end"]
    for command in ("logs web", "logs web --prefix", "logs web --limit-bytes=3"):
        theirs, mine = await kubectl(*command.split()), await ours(*command.split())
        assert (mine.code, mine.stdout) == (theirs.code, theirs.stdout), command
    assert (await ours("logs", "web")).stdout == b"".join(node.lines["main"])


@pytest.mark.parametrize("commands", [COMMANDS, REFUSED], ids=["printed", "refused"])
async def test_logs_are_the_same_as_with_kubectl(
    commands: list[str], ours: Pinnace, kubectl: Kubectl, node: ProcessNode, site: None
) -> None:
    differing = []
    for command in commands:
        node.calls.clear()
        differing += await differences(kubectl, ours, *command.split())
        arguments = [call for call in node.calls if isinstance(call, ContainerLogOptions)]
        if any(arguments.count(call) % 2 for call in arguments):
            differing.append(f"{command}: {arguments}")
    assert not differing, "\n".join(differing)


async def test_all_pods_are_distinguished(ours: Pinnace, cluster: RunningCluster, kubectl: Kubectl, site: None) -> None:
    await run_pod(cluster.plane, "three", "main")
    assert (await kubectl("label", "pod", "three", "app=site")).code == 0
    ended = await ours("logs", "deploy/site", "--all-pods", "-c", "main", "--tail=1")
    assert sorted(ended.stdout.splitlines()) == [b"[pod/three/main] main 11", b"[pod/two/main] main 11"]
    logged = await ours("logs", "deploy/site", "-c", "main", "--tail=1")
    assert logged.stdout == b"main 11\n"
    assert logged.stderr.startswith(b"Found 2 pods, using pod/t")


async def test_several_are_followed_at_once_but_not_too_many(ours: Pinnace, node: ProcessNode, site: None) -> None:
    refused = await ours("logs", "two", "--all-containers", "-f", "--max-log-requests", "1")
    assert refused.code == 1
    assert refused.stderr.startswith(b"error: you are attempting to follow 2 log streams, but maximum allowed")
    process = await ours.start("logs", "-l", "app=site", "--all-containers", "--prefix", "-f", "--tail=1")
    assert process.stdout is not None
    async with asyncio.timeout(SECONDS):
        output = {await process.stdout.readline() for _ in range(2)}
        await node.say("other", b"other 3\n")
        output.add(await process.stdout.readline())
        process.terminate()
        await process.wait()
    assert output == {b"[pod/two/main] main 11\n", b"[pod/two/other] other 2\n", b"[pod/two/other] other 3\n"}
