"""The interface by which programs on a node ask which devices its pods have: `podresources` v1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pinnace.model.node_plugins.device_plugin import CdiName, TopologyInfo
from pinnace.process.grpc.messages import Message, integer, integers, maybe_text, message, messages, text, texts
from pinnace.process.grpc.methods import Method

_SERVICE = "v1.PodResourcesLister"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerMemory(Message):
    memory_type: str = text(1)
    size: int = integer(2)
    topology: TopologyInfo | None = message(3, TopologyInfo)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerDevices(Message):
    resource_name: str = text(1)
    device_ids: Sequence[str] = texts(2)
    topology: TopologyInfo | None = message(3, TopologyInfo)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimResource(Message):
    cdi_devices: Sequence[CdiName] = messages(1, CdiName)
    driver_name: str = text(2)
    pool_name: str = text(3)
    device_name: str = text(4)
    share_id: str | None = maybe_text(5)


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicResource(Message):
    claim_name: str = text(2)
    claim_namespace: str = text(3)
    claim_resources: Sequence[ClaimResource] = messages(4, ClaimResource)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerResources(Message):
    name: str = text(1)
    devices: Sequence[ContainerDevices] = messages(2, ContainerDevices)
    cpu_ids: Sequence[int] = integers(3)
    memory: Sequence[ContainerMemory] = messages(4, ContainerMemory)
    dynamic_resources: Sequence[DynamicResource] = messages(5, DynamicResource)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodResources(Message):
    name: str = text(1)
    namespace: str = text(2)
    containers: Sequence[ContainerResources] = messages(3, ContainerResources)
    cpu_ids: Sequence[int] = integers(4)
    memory: Sequence[ContainerMemory] = messages(5, ContainerMemory)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPodResourcesRequest(Message):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPodResourcesResponse(Message):
    pod_resources: Sequence[PodResources] = messages(1, PodResources)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatableResourcesRequest(Message):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatableResourcesResponse(Message):
    devices: Sequence[ContainerDevices] = messages(1, ContainerDevices)
    cpu_ids: Sequence[int] = integers(2)
    memory: Sequence[ContainerMemory] = messages(3, ContainerMemory)


@dataclass(frozen=True, slots=True, kw_only=True)
class GetPodResourcesRequest(Message):
    pod_name: str = text(1)
    pod_namespace: str = text(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class GetPodResourcesResponse(Message):
    pod_resources: PodResources | None = message(1, PodResources)


LIST = Method(_SERVICE, "List", ListPodResourcesRequest, ListPodResourcesResponse)
GET_ALLOCATABLE = Method(_SERVICE, "GetAllocatableResources", AllocatableResourcesRequest, AllocatableResourcesResponse)
GET = Method(_SERVICE, "Get", GetPodResourcesRequest, GetPodResourcesResponse)
