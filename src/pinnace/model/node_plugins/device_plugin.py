"""The interface of device plug-ins: `v1beta1`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pinnace.process.grpc.messages import Message, flag, integer, message, messages, pairs, text, texts
from pinnace.process.grpc.methods import Method

VERSION = "v1beta1"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
KUBELET_SOCKET = "kubelet.sock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Empty(Message):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePluginOptions(Message):
    pre_start_required: bool = flag(1)
    get_preferred_allocation_available: bool = flag(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterRequest(Message):
    version: str = text(1)
    endpoint: str = text(2)
    """The name of the plug-in's socket, beside that of the node."""
    resource_name: str = text(3)
    options: DevicePluginOptions | None = message(4, DevicePluginOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaNodeId(Message):
    id: int = integer(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyInfo(Message):
    nodes: Sequence[NumaNodeId] = messages(1, NumaNodeId)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginDevice(Message):
    id: str = text(1)
    health: str = text(2)
    topology: TopologyInfo | None = message(3, TopologyInfo)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListAndWatchResponse(Message):
    devices: Sequence[PluginDevice] = messages(1, PluginDevice)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreStartContainerRequest(Message):
    devices_ids: Sequence[str] = texts(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPreferredAllocationRequest(Message):
    available_ids: Sequence[str] = texts(1)
    must_include_ids: Sequence[str] = texts(2)
    allocation_size: int = integer(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferredAllocationRequest(Message):
    container_requests: Sequence[ContainerPreferredAllocationRequest] = messages(1, ContainerPreferredAllocationRequest)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPreferredAllocationResponse(Message):
    ids: Sequence[str] = texts(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferredAllocationResponse(Message):
    container_responses: Sequence[ContainerPreferredAllocationResponse] = messages(
        1, ContainerPreferredAllocationResponse
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerAllocateRequest(Message):
    devices_ids: Sequence[str] = texts(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateRequest(Message):
    container_requests: Sequence[ContainerAllocateRequest] = messages(1, ContainerAllocateRequest)


@dataclass(frozen=True, slots=True, kw_only=True)
class CdiName(Message):
    name: str = text(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginMount(Message):
    container_path: str = text(1)
    host_path: str = text(2)
    read_only: bool = flag(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec(Message):
    container_path: str = text(1)
    host_path: str = text(2)
    permissions: str = text(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerAllocateResponse(Message):
    envs: Mapping[str, str] = pairs(1)
    mounts: Sequence[PluginMount] = messages(2, PluginMount)
    devices: Sequence[DeviceSpec] = messages(3, DeviceSpec)
    annotations: Mapping[str, str] = pairs(4)
    cdi_devices: Sequence[CdiName] = messages(5, CdiName)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateResponse(Message):
    container_responses: Sequence[ContainerAllocateResponse] = messages(1, ContainerAllocateResponse)


_PLUGIN = "v1beta1.DevicePlugin"
REGISTER = Method("v1beta1.Registration", "Register", RegisterRequest, Empty)
GET_OPTIONS = Method(_PLUGIN, "GetDevicePluginOptions", Empty, DevicePluginOptions)
LIST_AND_WATCH = Method(_PLUGIN, "ListAndWatch", Empty, ListAndWatchResponse, streams=True)
GET_PREFERRED_ALLOCATION = Method(
    _PLUGIN, "GetPreferredAllocation", PreferredAllocationRequest, PreferredAllocationResponse
)
ALLOCATE = Method(_PLUGIN, "Allocate", AllocateRequest, AllocateResponse)
PRE_START_CONTAINER = Method(_PLUGIN, "PreStartContainer", PreStartContainerRequest, Empty)
