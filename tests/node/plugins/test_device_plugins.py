"""Device plug-ins of a node, from their registration to the containers that have their devices."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.node.agent.conftest import NODE, NodeInMemory
from tests.node.plugins.device_plugin import RESOURCE, FakePlugin

from pinnace.model.node_plugins import device_plugin as api
from pinnace.model.node_plugins import pod_resources
from pinnace.model.node_plugins.registration import DEVICE_PLUGIN, PluginInfo
from pinnace.model.objects import Object
from pinnace.node.plugins.devices import STOP_GRACE_SECONDS
from pinnace.node.runtime.runtime import ContainerConfig
from pinnace.process.grpc.errors import GrpcError
from pinnace.process.grpc.methods import SocketChannel

SECONDS = 30.0


@pytest.fixture
async def plugin(node: NodeInMemory) -> AsyncIterator[FakePlugin]:
    await until_listening(node)
    plugin = FakePlugin(node.plugins)
    yield plugin
    await plugin.stop()


async def until_listening(node: NodeInMemory) -> None:
    async def is_listening() -> bool:
        return (node.plugins / "plugins_registry").exists()

    await node.until(is_listening)


async def until_amounts(node: NodeInMemory, capacity: str | None, allocatable: str | None) -> None:
    async def is_there() -> bool:
        status = (await node.client.get("v1/Node", NODE))["status"]
        return (status["capacity"].get(RESOURCE), status["allocatable"].get(RESOURCE)) == (capacity, allocatable)

    await node.until(is_there)


def asking(amount: int, resource: str = RESOURCE, **container: Any) -> dict[str, Any]:
    return {"container": {"resources": {"limits": {resource: str(amount)}}, **container}}


async def config_of(node: NodeInMemory, name: str) -> ContainerConfig:
    """Return the configuration of the running container of a pod."""
    pod = await node.until_phase(name, "Running")
    return (await node.runtime.container(id_of(pod))).config


def id_of(pod: Object) -> str:
    return str(pod["status"]["containerStatuses"][0]["containerID"].partition("://")[2])


async def test_a_container_gets_devices_and_everything_that_their_plug_in_answers(
    node: NodeInMemory, plugin: FakePlugin, tmp_path: Path
) -> None:
    plugin.response = api.ContainerAllocateResponse(
        envs={"DEVICE": "a", "OWN": "of the plug-in"},
        mounts=[api.PluginMount(container_path="/lib/x", host_path=str(tmp_path), read_only=True)],
        devices=[api.DeviceSpec(container_path="/dev/x", host_path="/dev/null", permissions="rwm")],
        annotations={"example.com/a": "b"},
        cdi_devices=[api.CdiName(name="example.com/class=x")],
    )
    await plugin.start(["a", "b", "c"])
    await until_amounts(node, "3", "3")
    await node.create("one", **asking(2, env=[{"name": "OWN", "value": "of the pod"}]))
    config = await config_of(node, "one")
    environment = dict(config.environment)
    assert (environment["DEVICE"], environment["OWN"]) == ("a", "of the pod")
    mounts = {mount.container_path: mount for mount in config.mounts}
    assert (mounts["/lib/x"].host_path, mounts["/lib/x"].read_only) == (str(tmp_path), True)
    assert (mounts["/dev/x"].host_path, mounts["/dev/x"].is_device) == ("/dev/null", True)
    assert config.annotations == {"example.com/a": "b"}
    assert config.cdi_devices == ["example.com/class=x"]
    (request,) = plugin.calls_of("Allocate")
    assert request.container_requests[0].devices_ids == ["a", "b"]


async def test_no_device_belongs_to_two_pods_and_those_of_ended_pods_are_free(
    node: NodeInMemory, plugin: FakePlugin
) -> None:
    await plugin.start(["a", "b", "c"])
    await until_amounts(node, "3", "3")
    for name in ("one", "two"):
        await node.create(name, **asking(1))
    for name in ("one", "two"):
        await node.until_phase(name, "Running")
    await node.create("three", **asking(2))
    rejected = await node.until_phase("three", "Failed")
    assert rejected["status"]["reason"] == f"OutOf{RESOURCE}"
    assert rejected["status"]["message"] == (
        f"Pod was rejected: Node didn't have enough resource: {RESOURCE}, requested: 2, used: 2, capacity: 3"
    )
    await node.delete("one")
    await node.create("four", **asking(2))
    await node.until_phase("four", "Running")
    given = [request.container_requests[0].devices_ids for request in plugin.calls_of("Allocate")]
    assert sorted(given[0] + given[1]) == ["a", "b"]
    assert sorted(given[1] + given[2]) == ["a", "b", "c"]


async def test_init_containers_share_their_devices_with_containers_and_sidecars_keep_theirs(
    node: NodeInMemory, plugin: FakePlugin
) -> None:
    await plugin.start(["a", "b"])
    await until_amounts(node, "2", "2")
    limits = {"resources": {"limits": {RESOURCE: "1"}}}
    inits = [
        {"name": "first", "image": node.image, **limits},
        {"name": "sidecar", "image": node.image, "restartPolicy": "Always", **limits},
    ]
    await node.create("one", **asking(1), initContainers=inits)
    requests = await plugin.wait_for("Allocate", 3)
    given = [request.container_requests[0].devices_ids for request in requests]
    assert given[0] == given[1] != given[2]


async def test_the_plug_in_is_asked_which_devices_it_prefers(node: NodeInMemory, plugin: FakePlugin) -> None:
    plugin.options = api.DevicePluginOptions(get_preferred_allocation_available=True)
    plugin.preferred = ["c", "lie", "b"]
    await plugin.start(["a", "b", "c", "d"])
    await until_amounts(node, "4", "4")
    await node.create("one", **asking(3))
    (request,) = await plugin.wait_for("Allocate")
    assert request.container_requests[0].devices_ids == ["c", "b", "a"]
    (question,) = plugin.calls_of("GetPreferredAllocation")
    assert question.container_requests[0].available_ids == ["a", "b", "c", "d"]
    assert question.container_requests[0].allocation_size == 3


async def test_the_plug_in_is_called_before_each_start_if_it_wants_it(node: NodeInMemory, plugin: FakePlugin) -> None:
    plugin.options = api.DevicePluginOptions(pre_start_required=True)
    plugin.failing = {"PreStartContainer"}
    await plugin.start(["a"])
    await until_amounts(node, "1", "1")
    await node.create("one", **asking(1))
    pod = await node.until_pod("one", lambda pod: "CreateContainerConfigError" in str(pod.get("status")))
    assert pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"] == (
        "device plugin PreStartContainer rpc failed with err: "
        "rpc error: code = Internal desc = PreStartContainer does not work"
    )
    plugin.failing.clear()
    await node.until_phase("one", "Running")
    assert plugin.calls_of("PreStartContainer")[-1].devices_ids == ["a"]


@pytest.mark.parametrize(
    ("method", "failure"),
    [
        ("Allocate", "rpc error: code = Internal desc = Allocate does not work"),
        (
            "GetPreferredAllocation",
            "device plugin GetPreferredAllocation rpc failed with err: "
            "rpc error: code = Internal desc = GetPreferredAllocation does not work",
        ),
    ],
)
async def test_a_pod_whose_devices_cannot_be_given_is_rejected_in_kubelets_words(
    node: NodeInMemory, plugin: FakePlugin, method: str, failure: str
) -> None:
    plugin.options = api.DevicePluginOptions(get_preferred_allocation_available=True)
    plugin.failing = {method}
    await plugin.start(["a"])
    await until_amounts(node, "1", "1")
    await node.create("one", **asking(1))
    pod = await node.until_phase("one", "Failed")
    assert (pod["status"]["reason"], pod["status"]["message"]) == (
        "UnexpectedAdmissionError",
        f"Pod was rejected: Allocate failed due to {failure}, which is unexpected",
    )
    plugin.failing.clear()
    await node.create("two", **asking(1))  # Nothing is left of the first pod.
    await node.until_phase("two", "Running")


async def test_a_plug_in_that_hangs_keeps_no_other_pod_waiting(node: NodeInMemory, plugin: FakePlugin) -> None:
    plugin.hanging = {"Allocate"}
    await plugin.start(["a", "b"])
    other = FakePlugin(node.plugins, "other.sock", "example.com/other")
    await other.start(["x"])
    await until_amounts(node, "2", "2")
    await node.create("hanging", **asking(1))
    await plugin.wait_for("Allocate")
    await node.create("plain")
    await node.create("with-other", **asking(1, "example.com/other"))
    await node.until_phase("plain", "Running")
    await node.until_phase("with-other", "Running")
    await plugin.stop()
    pod = await node.until_phase("hanging", "Failed")
    assert pod["status"]["reason"] == "UnexpectedAdmissionError"
    await other.stop()
    await plugin.start(["a"], registers=False)


async def test_health_is_in_the_status_of_pods_and_sick_devices_are_not_given(
    node: NodeInMemory, plugin: FakePlugin
) -> None:
    await plugin.start(["a", "b"])
    await until_amounts(node, "2", "2")
    await node.create("one", **asking(1))

    def shows(health: str) -> Any:
        wanted = [{"name": RESOURCE, "resources": [{"resourceID": "a", "health": health}]}]
        return lambda pod: any(
            status.get("allocatedResourcesStatus") == wanted
            for status in (pod.get("status") or {}).get("containerStatuses") or ()
        )

    await node.until_pod("one", shows("Healthy"))
    await plugin.set_health("a", api.UNHEALTHY)
    await node.until_pod("one", shows("Unhealthy"))
    await until_amounts(node, "2", "1")
    await plugin.set_health("a", api.HEALTHY)
    await node.until_pod("one", shows("Healthy"))
    await until_amounts(node, "2", "2")


async def test_a_plug_in_that_dies_leaves_its_pods_running_and_comes_back(
    node: NodeInMemory, plugin: FakePlugin
) -> None:
    await plugin.start(["a", "b"])
    await until_amounts(node, "2", "2")
    await node.create("one", **asking(1))
    await node.until_phase("one", "Running")
    await plugin.stop()
    await until_amounts(node, "2", "0")
    await node.create("two", **asking(1))
    rejected = await node.until_phase("two", "Failed")
    assert rejected["status"]["reason"] == f"OutOf{RESOURCE}"
    await plugin.start(["a", "b"])
    await until_amounts(node, "2", "2")
    await node.create("three", **asking(1))
    await node.until_phase("three", "Running")
    assert plugin.calls_of("Allocate")[-1].container_requests[0].devices_ids == ["b"]
    assert (await node.until_phase("one", "Running"))["status"]["phase"] == "Running"
    await plugin.stop()
    await until_amounts(node, "2", "0")
    await node.advance(STOP_GRACE_SECONDS + 1)
    await until_amounts(node, "0", "0")
    await plugin.start(["a"])
    await until_amounts(node, "1", "1")


async def test_another_agent_knows_the_devices_of_the_pods(node: NodeInMemory, plugin: FakePlugin) -> None:
    plugin.response = api.ContainerAllocateResponse(envs={"GIVEN": "once"})
    await plugin.start(["a", "b"])
    await until_amounts(node, "2", "2")
    await node.create("one", **asking(1), restartPolicy="Always")
    container = id_of(await node.until_phase("one", "Running"))
    runtime, images = node.runtime, node.images
    await node.kill_agent()

    async def same() -> Any:
        return runtime, images

    node.open_runtime = same  # type: ignore[method-assign]
    await plugin.stop()
    await node.start_agent()
    await until_listening(node)
    await until_amounts(node, "0", "0")  # Until the plug-in registers again.
    await runtime.stop_container(container, 0)
    pod = await node.until_pod("one", lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] == 1)
    config = (await runtime.container(id_of(pod))).config
    assert dict(config.environment)["GIVEN"] == "once"
    again = FakePlugin(node.plugins, "again.sock")
    await again.start(["a", "b"])
    await until_amounts(node, "2", "2")
    await node.create("two", **asking(1))
    await node.until_phase("two", "Running")
    assert [request.container_requests[0].devices_ids for request in again.calls_of("Allocate")] == [["b"]]
    await again.stop()


@pytest.mark.parametrize(
    ("version", "resource", "endpoint", "message"),
    [
        (
            "v9",
            RESOURCE,
            "",
            'requested API version "v9" is not supported by kubelet. Supported version is ["v1beta1"]',
        ),
        (api.VERSION, "cpu", "", 'the ResourceName "cpu" is invalid'),
        (api.VERSION, "kubernetes.io/x", "", 'the ResourceName "kubernetes.io/x" is invalid'),
        (api.VERSION, RESOURCE, "../plugins_registry/x", "is not the name of a socket beside this one"),
        (api.VERSION, RESOURCE, "/dev/null", "is not the name of a socket beside this one"),
        (api.VERSION, RESOURCE, "kubelet.sock", "is not the name of a socket beside this one"),
        (api.VERSION, RESOURCE, "missing", "connect: no such file or directory"),
    ],
)
async def test_a_registration_that_lies_is_refused(
    node: NodeInMemory, plugin: FakePlugin, version: str, resource: str, endpoint: str, message: str
) -> None:
    plugin.version, plugin.resource = version, resource
    await plugin.start(["a"], registers=False)
    with pytest.raises(GrpcError) as refused:
        await plugin.register(endpoint)
    assert message in refused.value.message
    assert resource not in (await node.client.get("v1/Node", NODE))["status"]["capacity"] or resource == "cpu"


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(
            api.ContainerAllocateResponse(mounts=[api.PluginMount(container_path="/x", host_path="/proc/../etc")]),
            id="a path that climbs",
        ),
        pytest.param(
            api.ContainerAllocateResponse(mounts=[api.PluginMount(container_path="/x", host_path="/missing")]),
            id="a missing file",
        ),
        pytest.param(
            api.ContainerAllocateResponse(devices=[api.DeviceSpec(container_path="x", host_path="/dev/null")]),
            id="a relative path",
        ),
        pytest.param(
            api.ContainerAllocateResponse(
                devices=[api.DeviceSpec(container_path="/x", host_path="/etc/passwd", permissions="rw")]
            ),
            id="a file for a device",
        ),
        pytest.param(
            api.ContainerAllocateResponse(
                devices=[api.DeviceSpec(container_path="/x", host_path="/dev/null", permissions="r")]
            ),
            id="a device that must not be written",
        ),
    ],
)
async def test_an_answer_that_cannot_be_true_keeps_the_container_waiting(
    node: NodeInMemory, plugin: FakePlugin, response: api.ContainerAllocateResponse
) -> None:
    plugin.response = response
    await plugin.start(["a"])
    await until_amounts(node, "1", "1")
    await node.create("one", **asking(1))
    await node.until_event("one", "failed to generate container spec", reason="Failed")
    pod = await node.until_pod("one", lambda pod: "CreateContainerError" in str(pod.get("status")))
    assert pod["status"]["phase"] == "Pending"


async def test_a_plug_in_registers_by_the_registry_and_goes_with_its_socket(
    node: NodeInMemory, plugin: FakePlugin
) -> None:
    path = node.plugins / "plugins_registry" / "device" / "plugin.sock"
    info = PluginInfo(type=DEVICE_PLUGIN, name=RESOURCE, supported_versions=[api.VERSION])
    (node.plugins / "plugins_registry" / ".hidden").write_text("no socket")
    await plugin.start_in_registry(path, ["a"], info)
    (status,) = await plugin.wait_for("NotifyRegistrationStatus")
    assert (status.plugin_registered, status.error) == (True, "")
    await until_amounts(node, "1", "1")
    path.unlink()
    await until_amounts(node, "1", "0")
    again = FakePlugin(node.plugins)
    await again.start_in_registry(path, ["a", "b"], info)
    await until_amounts(node, "2", "2")
    await again.stop()


@pytest.mark.parametrize(
    ("info", "error"),
    [
        (
            PluginInfo(type="Other", name="x"),
            "RegisterPlugin error -- no handler registered for plugin type: Other at socket ",
        ),
        (
            PluginInfo(type=DEVICE_PLUGIN, name=RESOURCE, supported_versions=["v2"]),
            "RegisterPlugin error -- plugin validation failed with err: "
            "manager version, v1beta1, is not among plugin supported versions [v2]",
        ),
        (
            PluginInfo(type=DEVICE_PLUGIN, name="cpu", supported_versions=[api.VERSION]),
            "RegisterPlugin error -- plugin validation failed with err: "
            'invalid name of device plugin socket: the ResourceName "cpu" is invalid',
        ),
        (
            PluginInfo(
                type=DEVICE_PLUGIN, name=RESOURCE, supported_versions=[api.VERSION], endpoint="/missing/plugin.sock"
            ),
            "RegisterPlugin error -- plugin registration failed with err: failed to get device plugin options: "
            "dial unix /missing/plugin.sock: connect: no such file or directory",
        ),
    ],
)
async def test_a_refused_plug_in_gets_the_reason_and_is_tried_again(
    node: NodeInMemory, plugin: FakePlugin, info: PluginInfo, error: str
) -> None:
    await plugin.start_in_registry(node.plugins / "plugins_registry" / "x.sock", ["a"], info)
    (status,) = await plugin.wait_for("NotifyRegistrationStatus")
    assert not status.plugin_registered
    assert status.error.startswith(error)
    await node.clock.advance(120)
    await plugin.wait_for("NotifyRegistrationStatus", 2)


async def test_programs_on_the_node_ask_which_devices_pods_have(node: NodeInMemory, plugin: FakePlugin) -> None:
    await plugin.start(["a", "b"])
    await until_amounts(node, "2", "2")
    await node.create("one", **asking(1))
    await node.until_phase("one", "Running")
    channel = SocketChannel(node.plugins / "pod-resources" / "kubelet.sock")
    listed = await channel.call(pod_resources.LIST, pod_resources.ListPodResourcesRequest(), seconds=SECONDS)
    given = pod_resources.ContainerDevices(resource_name=RESOURCE, device_ids=["a"])
    container = pod_resources.ContainerResources(name="main", devices=[given])
    wanted = pod_resources.PodResources(name="one", namespace="default", containers=[container])
    assert listed.pod_resources == [wanted]
    request = pod_resources.GetPodResourcesRequest(pod_name="one", pod_namespace="default")
    assert (await channel.call(pod_resources.GET, request, seconds=SECONDS)).pod_resources == wanted
    every = await channel.call(
        pod_resources.GET_ALLOCATABLE, pod_resources.AllocatableResourcesRequest(), seconds=SECONDS
    )
    assert [item.device_ids for item in every.devices] == [["a"], ["b"]]
    missing = pod_resources.GetPodResourcesRequest(pod_name="two", pod_namespace="default")
    with pytest.raises(GrpcError, match="pod two in namespace default not found"):
        await channel.call(pod_resources.GET, missing, seconds=SECONDS)
    channel.close()


async def test_pods_see_the_sockets_of_their_node_in_kubelets_directory(node: NodeInMemory, plugin: FakePlugin) -> None:
    sockets = {"name": "sockets", "hostPath": {"path": "/var/lib/kubelet/device-plugins", "type": "Directory"}}
    mount = {"volumeMounts": [{"name": "sockets", "mountPath": "/var/lib/kubelet/device-plugins"}]}
    await node.create("plug-in", volumes=[sockets], container=mount)
    config = await config_of(node, "plug-in")
    paths = {mount.container_path: mount.host_path for mount in config.mounts}
    assert paths["/var/lib/kubelet/device-plugins"] == str(node.plugins / "device-plugins")
    await plugin.start(registers=False)
