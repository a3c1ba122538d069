"""The status of the Node: the features that it declares, and the extended resources that other clients write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.node.agent.conftest import NODE, NodeInMemory

from pinnace.cluster.cluster import running
from pinnace.cluster.in_process import in_process_client
from pinnace.cluster.settings import Settings
from pinnace.model.objects import Object


@asynccontextmanager
async def node_of(directory: Path, settings: Settings) -> AsyncIterator[NodeInMemory]:
    """Run a cluster with these settings, and its node."""
    async with running(settings) as cluster:
        node = NodeInMemory(cluster, in_process_client(cluster.plane.local()), directory)
        await node.start_agent()
        try:
            yield node
        finally:
            await node.stop_agent()


async def until_node(node: NodeInMemory, condition: Callable[[Object], bool]) -> Object:
    """Wait until the status of the Node fulfils a condition, and return it."""
    status: Object = {}

    async def is_met() -> bool:
        nonlocal status
        status = (await node.client.get("v1/Node", NODE))["status"]
        return condition(status)

    await node.until(is_met)
    return status


@pytest.mark.parametrize(
    ("version", "features"),
    [
        ("1.34", None),
        (
            "1.36",
            [
                "ExtendWebSocketsToKubelet",
                "InPlacePodLevelResourcesVerticalScaling",
                "InPlacePodVerticalScalingInitContainers",
                "RestartAllContainersOnContainerExits",
            ],
        ),
    ],
)
async def test_a_node_declares_the_features_of_the_served_minor(
    tmp_path: Path, version: str, features: list[str] | None
) -> None:
    async with node_of(tmp_path, Settings(kubernetes_version=version)) as node:
        status = await until_node(node, lambda status: "capacity" in status)
    assert status.get("declaredFeatures") == features
    assert status["features"] == {"supplementalGroupsPolicy": True}
    handler = {"name": "", "features": {"recursiveReadOnlyMounts": True, "userNamespaces": True}}
    assert status["runtimeHandlers"] == [handler]


async def test_extended_resources_in_the_capacity_become_allocatable_until_they_go(memory_node: NodeInMemory) -> None:
    name = "example.com/dongle"
    await memory_node.client.patch("v1/Node", NODE, {"status": {"capacity": {name: "3"}}}, subresource="status")
    await memory_node.clock.advance(10)
    await until_node(memory_node, lambda status: status["allocatable"].get(name) == "3")
    await memory_node.create("fits", container={"resources": {"limits": {name: "2"}}})
    await memory_node.until_phase("fits", "Running")
    await memory_node.create("second", container={"resources": {"limits": {name: "2"}}})
    pod = await memory_node.until_phase("second", "Failed")
    assert pod["status"]["reason"] == f"OutOf{name}"
    await memory_node.client.patch("v1/Node", NODE, {"status": {"capacity": {name: None}}}, subresource="status")
    await memory_node.clock.advance(10)
    await until_node(memory_node, lambda status: name not in status["allocatable"])


async def test_a_rejected_pod_has_a_reason_and_no_container_statuses(memory_node: NodeInMemory) -> None:
    await memory_node.create("big", container={"resources": {"requests": {"cpu": "10k"}}})
    status = (await memory_node.until_phase("big", "Failed"))["status"]
    assert status["reason"] == "OutOfcpu"
    assert not {"containerStatuses", "hostIP"} & set(status)
    assert "OutOfcpu" in await memory_node.kubectl("get pod big")


async def test_a_feature_that_the_node_does_not_declare_keeps_a_pod_away(tmp_path: Path) -> None:
    async with node_of(tmp_path, Settings(feature_gates="VolumeBindMountOptions=true")) as node:
        mount = {"name": "data", "mountPath": "/data", "bindMountOptions": ["noexec"]}
        volume = {"name": "data", "emptyDir": {}}
        await node.create("away", container={"volumeMounts": [mount]}, volumes=[volume])
        status = (await node.until_phase("away", "Failed"))["status"]
    message = "Pod requires node features that are not available: VolumeBindMountOptions"
    assert (status["reason"], status["message"]) == ("PodFeatureUnsupported", f"Pod was rejected: {message}")


async def test_the_conditions_of_a_running_pod_have_observed_the_generation(memory_node: NodeInMemory) -> None:
    await memory_node.create("seen")
    pod = await memory_node.until_phase("seen", "Running")
    conditions = {condition["type"]: condition for condition in pod["status"]["conditions"]}
    assert conditions["PodScheduled"]["status"] == "True"
    assert conditions["PodScheduled"]["observedGeneration"] == pod["metadata"]["generation"]
