"""Devices of plug-ins in containers that run."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.node.agent.conftest import NODE, RealNode
from tests.node.namespaces import need_namespaces
from tests.node.plugins.device_plugin import RESOURCE, FakePlugin

from pinnace.cluster.cluster import running
from pinnace.cluster.in_process import in_process_client
from pinnace.cluster.settings import Settings
from pinnace.model.node_plugins import device_plugin as api
from pinnace.node.machine.mapped_root import remove_tree


@pytest.fixture
async def node() -> AsyncIterator[RealNode]:
    need_namespaces()
    memory = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(prefix="pinnace-", dir=memory if os.access(memory, os.W_OK) else None))
    try:
        async with running(Settings()) as cluster:
            made = RealNode(cluster, in_process_client(cluster.plane.local()), directory)
            made.has_plugins = True
            await made.start_agent()
            yield made
            await made.stop_agent()
    finally:
        remove_tree(directory)


async def test_a_container_uses_its_device_and_no_other_container_sees_it(node: RealNode) -> None:
    async def is_there() -> bool:
        return (node.plugins / "plugins_registry").exists()

    await node.until(is_there)
    plugin = FakePlugin(node.plugins)
    plugin.response = api.ContainerAllocateResponse(
        envs={"DEVICE": "zero"},
        devices=[api.DeviceSpec(container_path="/dev/mine", host_path="/dev/zero", permissions="rwm")],
    )
    await plugin.start(["zero"])

    async def has_device() -> bool:
        return bool((await node.client.get("v1/Node", NODE))["status"]["allocatable"].get(RESOURCE) == "1")

    await node.until(has_device)
    command = "echo $DEVICE; head -c 3 /dev/mine | od -An -tx1; sleep 100"
    await node.create("with", command, container={"resources": {"limits": {RESOURCE: "1"}}})
    await node.create("without", "test -e /dev/mine || echo missing; sleep 100")
    await node.until_phase("with", "Running")
    await node.until_logs("with", "zero\n 00 00 00\n")
    await node.until_phase("without", "Running")
    await node.until_logs("without", "missing\n")
    await plugin.stop()
