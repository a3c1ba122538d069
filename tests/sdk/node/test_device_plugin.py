"""A device plug-in of the SDK, and the node that it serves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.node.agent.conftest import NODE, NodeInMemory
from tests.node.plugins.conftest import node

from pinnace.model.node_plugins import device_plugin as api
from pinnace.process.grpc.errors import GrpcCode, GrpcError
from pinnace.process.grpc.methods import SocketChannel
from pinnace.sdk.installation.manifests import SCHEDULER_PROGRAM, DeploymentOptions
from pinnace.sdk.node import Allocation, Device, DeviceNode, DevicePlugin, MountedPath
from pinnace.testing.live_clock import LiveClock

__all__ = ["node"]
RESOURCE = "example.com/thing"
SECONDS = 30.0


@asynccontextmanager
async def serving(plugin: DevicePlugin, directory: Path) -> AsyncIterator[None]:
    running = asyncio.ensure_future(plugin.run(directory))
    try:
        yield
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def until_allocatable(node: NodeInMemory, amount: str) -> None:
    async def is_there() -> bool:
        status = (await node.client.get("v1/Node", NODE))["status"]
        return bool(status["allocatable"].get(RESOURCE) == amount)

    await node.until(is_there)


async def start_pod(node: NodeInMemory, name: str, amount: int) -> Any:
    """Return the configuration of its container."""
    await node.create(name, container={"resources": {"limits": {RESOURCE: str(amount)}}})
    pod = await node.until_phase(name, "Running")
    identity = pod["status"]["containerStatuses"][0]["containerID"].partition("://")[2]
    return (await node.runtime.container(identity)).config


async def test_a_file_without_protobuf_offers_devices_to_pods(node: NodeInMemory) -> None:
    plugin = DevicePlugin(RESOURCE)
    devices = [Device("a"), Device("b", numa_nodes=[0, 1]), Device("c", is_healthy=False)]
    resets: list[Sequence[str]] = []

    @plugin.devices()
    def find() -> list[Device]:
        return devices

    @plugin.prefer
    async def prefer(available: Sequence[str], must_include: Sequence[str], size: int) -> Sequence[str]:
        return sorted(available, reverse=True)[:size]

    @plugin.before_start
    def reset(ids: Sequence[str]) -> None:
        resets.append(ids)

    @plugin.allocate
    async def give(ids: Sequence[str]) -> Allocation:
        return Allocation(
            env={"IDS": ",".join(ids)},
            devices=[DeviceNode(path="/dev/null", container_path="/dev/thing")],
            mounts=[MountedPath(path="/etc")],
            annotations={"a": "b"},
        )

    async with serving(plugin, node.plugins):
        await until_allocatable(node, "2")
        config = await start_pod(node, "one", 1)
        assert dict(config.environment)["IDS"] == "b"
        assert resets == [["b"]]
        mounts = {mount.container_path: mount for mount in config.mounts}
        assert mounts["/dev/thing"].is_device
        assert (mounts["/etc"].host_path, mounts["/etc"].read_only) == ("/etc", True)
        assert config.annotations == {"a": "b"}
        devices[:] = [Device("a"), Device("b"), Device("c")]
        plugin.refresh()
        await until_allocatable(node, "3")
    await until_allocatable(node, "0")


async def test_a_plug_in_registers_with_the_next_agent_again(node: NodeInMemory) -> None:
    clock = LiveClock()
    plugin = DevicePlugin(RESOURCE, clock=clock)

    @plugin.devices()
    async def find() -> list[Device]:
        return [Device("a")]

    async with serving(plugin, node.plugins):
        await until_allocatable(node, "1")
        runtime, images = node.runtime, node.images

        async def same() -> Any:
            return runtime, images

        node.open_runtime = same  # type: ignore[method-assign]
        await node.kill_agent()
        await node.start_agent()
        await clock.advance(10)
        await until_allocatable(node, "1")
        assert "IDS" not in dict((await start_pod(node, "one", 1)).environment)


async def test_failures_of_the_author_reject_the_pod_with_their_text(node: NodeInMemory) -> None:
    plugin = DevicePlugin(RESOURCE)
    lists = [Device("a")]

    @plugin.devices()
    def find() -> list[Device]:
        if not lists:
            raise RuntimeError("the bus is gone")
        return lists

    @plugin.allocate
    def give(ids: Sequence[str]) -> Allocation:
        raise RuntimeError("no current")

    async with serving(plugin, node.plugins):
        await until_allocatable(node, "1")
        lists.clear()
        plugin.refresh()  # The last list holds.
        await node.create("one", container={"resources": {"limits": {RESOURCE: "1"}}})
        pod = await node.until_phase("one", "Failed")
        assert pod["status"]["message"] == (
            "Pod was rejected: Allocate failed due to "
            "rpc error: code = Unknown desc = RuntimeError: no current, which is unexpected"
        )
        channel = SocketChannel(node.plugins / "device-plugins" / f"{plugin.name}.sock")
        wanted = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=["z"])])
        with pytest.raises(GrpcError) as refused:
            await channel.call(api.ALLOCATE, wanted, seconds=SECONDS)
        assert (refused.value.code, refused.value.message) == (GrpcCode.NOT_FOUND, "there is no device z")
        channel.close()


@pytest.mark.parametrize("resource", ["cpu", "led", "kubernetes.io/led", "example.com/", "a b/c"])
def test_a_name_that_is_no_resource_of_devices_is_refused(resource: str) -> None:
    with pytest.raises(ValueError, match=r"write it as example.com/led"):
        DevicePlugin(resource)


async def test_devices_without_an_id_of_their_own_are_refused(tmp_path: Path) -> None:
    plugin = DevicePlugin(RESOURCE)
    with pytest.raises(ValueError, match="lists no devices"):
        await plugin.run(tmp_path)
    plugin.devices()(lambda: [Device("a"), Device("a")])
    with pytest.raises(ValueError, match="need an id each"):
        await plugin.run(tmp_path)


def test_its_daemon_set_needs_the_sockets_of_kubelet_and_no_permission() -> None:
    plugin = DevicePlugin(RESOURCE, host_paths=["/dev"])
    place = DeploymentOptions(
        namespace="devices", image="i:1", file="thing.py", env={"A": "b"}, program=SCHEDULER_PROGRAM
    )
    written = plugin.manifests(place)
    (daemons,) = written["daemonset.yaml"]
    assert [obj["kind"] for obj in written["rbac.yaml"]] == ["ServiceAccount"]
    spec = daemons["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert [volume["hostPath"]["path"] for volume in spec["volumes"]] == ["/var/lib/kubelet/device-plugins", "/dev"]
    (container,) = spec["containers"]
    assert container["command"] == ["pinnace", "run", "thing.py", "--no-reload"]
    assert [mount.get("readOnly", False) for mount in container["volumeMounts"]] == [False, True]
