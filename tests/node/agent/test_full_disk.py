"""A node whose disk is full ends no pod for it: pods wait with an event, and start when there is space."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.node.agent.conftest import NODE, RealNode, is_ready, running_node
from tests.node.namespaces import need_namespaces

from pinnace.model.objects import Object

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
_REPLICAS = 3


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[RealNode]:
    """A node whose state directory is a small disk."""
    need_namespaces()
    directory = Path(tempfile.mkdtemp(prefix="pinnace-small-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m,mode=700", "small", str(directory)], check=True, timeout=60)
    try:
        async with running_node(directory) as made:
            yield made
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True, timeout=60)
        directory.rmdir()


def _fill(directory: Path) -> Path:
    """Leave no byte free."""
    ballast = directory / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    return ballast


async def _pods(node: RealNode) -> list[Object]:
    return await node.client.list("v1/Pod", namespace="default")


async def test_pods_of_a_deployment_wait_while_the_disk_is_full_and_start_afterwards(small: RealNode) -> None:
    await small.create("before", "sleep 1000")
    await small.until_ready("before")
    ballast = _fill(small.directory)
    labels = {"app": "web"}
    container = {"name": "main", "image": "host", "command": ["sleep", "1000"]}
    template = {
        "metadata": {"labels": labels},
        "spec": {"nodeName": NODE, "containers": [container], "terminationGracePeriodSeconds": 0},
    }
    spec = {"replicas": _REPLICAS, "selector": {"matchLabels": labels}, "template": template}
    metadata = {"name": "web", "namespace": "default"}
    await small.client.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})

    async def have_events() -> bool:
        listed = await small.client.list("v1/Event", namespace="default")
        warned = {event["involvedObject"]["name"] for event in listed if event["type"] == "Warning"}
        return len([name for name in warned if name.startswith("web-")]) >= _REPLICAS

    await small.until(have_events)
    pods = [pod for pod in await _pods(small) if pod["metadata"]["name"] != "before"]
    assert [pod["status"]["phase"] for pod in pods] == ["Pending"] * _REPLICAS
    ballast.unlink()
    names = {pod["metadata"]["name"] for pod in pods}

    async def are_ready() -> bool:
        await small.clock.advance(1.0)
        return {pod["metadata"]["name"] for pod in await _pods(small) if is_ready(pod)} == {*names, "before"}

    await small.until(are_ready)
