"""The sockets of a node for its plug-ins, and for programs that ask which devices its pods have: `podresources` v1.

They lie in kubelet's directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pinnace.model.node_plugins import pod_resources as api
from pinnace.model.node_plugins.device_plugin import NumaNodeId, PluginDevice, TopologyInfo
from pinnace.model.node_plugins.registration import DEVICE_PLUGIN
from pinnace.model.typed_objects import Pod
from pinnace.node.plugins import device_plugins, registration
from pinnace.node.plugins.device_plugins import DevicePlugins
from pinnace.node.plugins.devices import DeviceManager
from pinnace.node.plugins.registration import PluginSockets
from pinnace.node.resources.alignment.memory_manager import Block
from pinnace.node.resources.alignment.node_resources import NodeResources
from pinnace.process.clock import AlarmClock
from pinnace.process.grpc.errors import GrpcCode, GrpcError
from pinnace.process.grpc.methods import Method
from pinnace.process.grpc.server import Answers, GrpcServer

SOCKET = Path("pod-resources", "kubelet.sock")
"""The path of the socket, below kubelet's directory."""


class NodePlugins:
    def __init__(
        self,
        directory: Path,
        devices: DeviceManager,
        pods: Callable[[], Sequence[Pod]],
        clock: AlarmClock,
        resources: NodeResources,
    ) -> None:
        """`directory` is kubelet's: /var/lib/kubelet, unless several nodes share a machine."""
        self._directory = directory
        self._lister = PodResourcesLister(pods, devices, resources)
        self._devices = DevicePlugins(directory / device_plugins.DIRECTORY, devices)
        handlers = {DEVICE_PLUGIN: self._devices}
        self._registry = PluginSockets(directory / registration.DIRECTORY, handlers, clock)

    async def run(self) -> None:
        """Serve until cancelled. Raise OSError."""
        socket = self._directory / SOCKET
        socket.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        server = GrpcServer(self._lister.methods())
        await server.open(socket)
        try:
            async with self._devices.serving():
                await self._registry.run()
        finally:
            await server.close()


class PodResourcesLister:
    def __init__(self, pods: Callable[[], Sequence[Pod]], devices: DeviceManager, resources: NodeResources) -> None:
        """`pods` returns the pods of the node that have not ended."""
        self._pods = pods
        self._devices = devices
        self._resources = resources

    def methods(self) -> Mapping[Method[Any, Any], Answers]:
        return {api.LIST: self._list, api.GET_ALLOCATABLE: self._get_allocatable, api.GET: self._get}

    async def _list(self, _: api.ListPodResourcesRequest) -> api.ListPodResourcesResponse:
        return api.ListPodResourcesResponse(pod_resources=[self._of_pod(pod) for pod in self._pods()])

    async def _get(self, request: api.GetPodResourcesRequest) -> api.GetPodResourcesResponse:
        name, namespace = request.pod_name, request.pod_namespace
        for pod in self._pods():
            if (pod["metadata"]["name"], pod["metadata"]["namespace"]) == (name, namespace):
                return api.GetPodResourcesResponse(pod_resources=self._of_pod(pod))
        raise GrpcError(GrpcCode.UNKNOWN, f"pod {name} in namespace {namespace} not found")

    async def _get_allocatable(self, _: api.AllocatableResourcesRequest) -> api.AllocatableResourcesResponse:
        devices = [item for name, healthy in self._devices.healthy_devices() for item in _listed(name, healthy)]
        return api.AllocatableResourcesResponse(
            devices=devices,
            cpu_ids=sorted(self._resources.allocatable_cpus),
            memory=[_memory(block) for block in self._resources.allocatable_memory],
        )

    def _of_pod(self, pod: Pod) -> api.PodResources:
        uid, spec = pod["metadata"]["uid"], pod["spec"]
        sidecars = [init for init in spec.get("initContainers") or () if init.get("restartPolicy") == "Always"]
        containers = [
            api.ContainerResources(
                name=container["name"],
                cpu_ids=sorted(self._resources.cpus_of(uid, container["name"])),
                memory=[_memory(block) for block in self._resources.memory_of(uid, container["name"])],
                devices=[
                    item
                    for resource, devices in self._devices.devices_of(uid, container["name"])
                    for item in _listed(resource, [device for device, _ in devices])
                ],
            )
            for container in (*sidecars, *spec["containers"])
        ]
        metadata = pod["metadata"]
        return api.PodResources(name=metadata["name"], namespace=metadata["namespace"], containers=containers)


def _memory(block: Block) -> api.ContainerMemory:
    topology = TopologyInfo(nodes=[NumaNodeId(id=node) for node in block.nodes])
    return api.ContainerMemory(memory_type=block.type, size=block.size, topology=topology)


def _listed(resource: str, devices: Sequence[PluginDevice]) -> Iterator[api.ContainerDevices]:
    """Yield each device for itself, once for each of its NUMA nodes, as kubelet lists them."""
    for device in devices:
        nodes = device.topology.nodes if device.topology is not None else ()
        for node in nodes:
            topology = TopologyInfo(nodes=[node])
            yield api.ContainerDevices(resource_name=resource, device_ids=[device.id], topology=topology)
        if not nodes:
            yield api.ContainerDevices(resource_name=resource, device_ids=[device.id])
