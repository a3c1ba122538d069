"""The devices of a node: their health, the pods that have them, and the answers of plug-ins for their containers.

A device belongs to one container of one pod from its admission on. The assignments are kept in a file, so that another
agent, also after a restart of the machine, gives no device to a second pod.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from pinnace.kinds.pods.resource_amounts import is_extended
from pinnace.model import quantity
from pinnace.model.node_plugins.device_plugin import (
    HEALTHY,
    ContainerAllocateResponse,
    DevicePluginOptions,
    PluginDevice,
)
from pinnace.model.typed_objects import Container, Pod
from pinnace.process.clock import AlarmClock
from pinnace.process.grpc.errors import CallError, GrpcError
from pinnace.process.grpc.messages import MalformedMessage
from pinnace.process.private_files import write_private

STOP_GRACE_SECONDS = 300.0
"""How long the Node keeps the resource of a plug-in that is gone, without a device; then its capacity is 0."""
CHECKPOINT = "device_assignments.json"
_log = logging.getLogger(__name__)


class DevicesUnavailable(Exception):
    """A container cannot have the devices that it asks for. The messages are kubelet's."""


class DeviceEndpoint(Protocol):
    """A device plug-in that has registered. Its calls raise CallError."""

    @property
    def options(self) -> DevicePluginOptions: ...

    async def preferred(self, available: Sequence[str], must_include: Sequence[str], size: int) -> Sequence[str]:
        """Return the devices that the plug-in would rather give."""

    async def allocate(self, devices: Sequence[str]) -> ContainerAllocateResponse:
        """Return what a container needs to use the devices."""

    async def pre_start(self, devices: Sequence[str]) -> None:
        """Prepare the devices for another start of their container."""


@dataclass(slots=True)
class _Resource:
    """One extended resource, with the plug-ins that offer it, the last of which is used."""

    devices: dict[str, PluginDevice] = field(default_factory=dict)
    healthy: set[str] = field(default_factory=set)
    endpoints: list[DeviceEndpoint] = field(default_factory=list)
    options: DevicePluginOptions = field(default_factory=DevicePluginOptions)
    stopped_at: float | None = None
    """When the last plug-in was lost; None while there is one."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The devices of one resource that a container has."""

    devices: Sequence[str]
    response: ContainerAllocateResponse | None
    """None while the plug-in is asked."""


class DeviceManager:
    def __init__(
        self,
        checkpoint: Path,
        clock: AlarmClock,
        *,
        holders: Callable[[], Collection[str] | None],
        changed: Callable[[Collection[str]], None],
    ) -> None:
        """`holders` returns the uids of the pods that may have devices, or None while they are not known yet.

        `changed` is called when the capacity has changed, with the uids of the pods whose devices have another health.
        """
        self._checkpoint = checkpoint
        self._clock = clock
        self._holders = holders
        self._changed = changed
        self._resources: dict[str, _Resource] = {}
        self._gone: set[str] = set()
        """The resources whose plug-in has been gone for long."""
        self._pods: dict[str, dict[str, dict[str, Assignment]]] = {}
        """The assignments by pod, container and resource."""
        self._writing = asyncio.Lock()
        self._load()

    # Plug-ins

    def connect(self, resource: str, endpoint: DeviceEndpoint) -> None:
        """Use this plug-in for a resource. Earlier ones remain for the case that it ends."""
        entry = self._resources.setdefault(resource, _Resource())
        entry.endpoints.append(endpoint)
        entry.options, entry.stopped_at = endpoint.options, None
        self._gone.discard(resource)

    def disconnect(self, resource: str, endpoint: DeviceEndpoint) -> None:
        """Forget a plug-in. Without another one, all devices of the resource are unhealthy."""
        entry = self._resources.get(resource)
        if entry is None or endpoint not in entry.endpoints:
            return
        entry.endpoints.remove(endpoint)
        if not entry.endpoints:
            entry.stopped_at = self._clock.monotonic()
            self._set_healthy(resource, entry, set())
            self._clock.call_later(STOP_GRACE_SECONDS, lambda: self._changed(()))

    async def report(self, resource: str, devices: Iterable[PluginDevice]) -> None:
        """Take the devices that a plug-in has reported. They replace all that it has reported before."""
        entry = self._resources[resource]
        entry.devices = {device.id: device for device in devices if device.id}
        healthy = {name for name, device in entry.devices.items() if device.health == HEALTHY}
        self._set_healthy(resource, entry, healthy)
        await self._save()

    def _set_healthy(self, resource: str, entry: _Resource, healthy: set[str]) -> None:
        before, entry.healthy = entry.healthy, healthy
        others = before ^ healthy
        pods = {
            uid
            for uid, containers in self._pods.items()
            for assignments in containers.values()
            if resource in assignments and not others.isdisjoint(assignments[resource].devices)
        }
        self._changed(pods)

    # The Node

    def capacity(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return capacity and allocatable of the resources that plug-ins offer, or have offered."""
        now = self._clock.monotonic()
        for name, entry in list(self._resources.items()):
            if entry.stopped_at is not None and now - entry.stopped_at >= STOP_GRACE_SECONDS:
                del self._resources[name]
                self._gone.add(name)
        gone = dict.fromkeys(self._gone, "0")
        capacity = {name: str(len(entry.devices)) for name, entry in self._resources.items()}
        allocatable = {name: str(len(entry.healthy)) for name, entry in self._resources.items()}
        return gone | capacity, gone | allocatable

    def allocatable_for_admission(self) -> dict[str, str]:
        """As the allocatable of `capacity`, but never below what pods have: they stay when a plug-in fails."""
        allocatable = self.capacity()[1]
        return {name: str(max(int(amount), len(self._assigned(name)))) for name, amount in allocatable.items()}

    # Pods

    async def allocate(self, pod: Pod) -> None:
        """Give the containers of a pod the devices that they ask for. Raise DevicesUnavailable; it has none then."""
        self._release()
        uid, spec = pod["metadata"]["uid"], pod["spec"]
        inits = spec.get("initContainers") or ()
        reusable: dict[str, set[str]] = {}
        try:
            for container in (*inits, *spec["containers"]):
                await self._allocate(pod, container, reusable)
                is_reusable = container in inits and container.get("restartPolicy") != "Always"
                for resource, assignment in self._pods.get(uid, {}).get(container["name"], {}).items():
                    known = reusable.setdefault(resource, set())
                    (known.update if is_reusable else known.difference_update)(assignment.devices)
        except BaseException:
            self._pods.pop(uid, None)
            raise
        if uid in self._pods:
            await self._save()

    async def before_start(self, pod: Pod, container: Container) -> list[ContainerAllocateResponse]:
        """Return what a container needs to use its devices. Raise DevicesUnavailable.

        A plug-in that asks for it is called before each start.
        """
        uid, name = pod["metadata"]["uid"], container["name"]
        for resource, _ in self._find_requests(pod, container):
            assignment = self._pods.get(uid, {}).get(name, {}).get(resource)
            entry = self._resources.get(resource)
            if assignment is None:  # The pod was admitted before the plug-in had registered.
                await self._allocate(pod, container, {})
                await self._save()
            elif entry is not None and entry.options.pre_start_required:
                try:
                    await self._endpoint(resource).pre_start(assignment.devices)
                except CallError as error:
                    text = f"device plugin PreStartContainer rpc failed with err: {_in_go(error)}"
                    raise DevicesUnavailable(text) from error
        assignments = self._pods.get(uid, {}).get(name, {})
        return [assignment.response for assignment in assignments.values() if assignment.response is not None]

    def devices_of(self, uid: str, container: str) -> Iterator[tuple[str, list[tuple[PluginDevice, bool]]]]:
        """Yield the resources of a container, each with its devices and whether these are healthy."""
        for resource, assignment in sorted(self._pods.get(uid, {}).get(container, {}).items()):
            entry = self._resources.get(resource, _Resource())
            yield (
                resource,
                [
                    (entry.devices.get(name) or PluginDevice(id=name), name in entry.healthy)
                    for name in assignment.devices
                ],
            )

    def has_devices(self, uid: str) -> bool:
        return uid in self._pods

    def healthy_devices(self) -> Iterator[tuple[str, list[PluginDevice]]]:
        for resource, entry in sorted(self._resources.items()):
            yield resource, [entry.devices[name] for name in sorted(entry.healthy)]

    def _find_requests(self, pod: Pod, container: Container) -> Iterator[tuple[str, int]]:
        """Yield the resources of plug-ins that a container asks for. Those of DRA drivers are not among them."""
        status = (pod.get("status") or {}).get("extendedResourceClaimStatus")
        claimed = {
            mapping["resourceName"]
            for mapping in (status["requestMappings"] if status else ())
            if mapping["containerName"] == container["name"]
        }
        limits = (container.get("resources") or {}).get("limits") or {}
        for name, amount in sorted(limits.items()):
            is_known = name in self._resources or bool(self._assigned(name))
            if is_known and name not in claimed and is_extended(name) and (needed := quantity.parse(amount).value):
                yield name, needed

    async def _allocate(self, pod: Pod, container: Container, reusable: Mapping[str, set[str]]) -> None:
        uid, name = pod["metadata"]["uid"], container["name"]
        for resource, needed in self._find_requests(pod, container):
            own = self._pods.get(uid, {}).get(name, {}).get(resource)
            self._check(pod, container, resource, needed, own)
            if own is not None:
                continue
            chosen = await self._choose(resource, needed, reusable.get(resource, set()))
            # Reserved before the plug-in is asked: another pod that is admitted meanwhile must not have them.
            assignments = self._pods.setdefault(uid, {}).setdefault(name, {})
            assignments[resource] = Assignment(chosen, None)
            try:
                response = await self._endpoint(resource).allocate(chosen)
                assignments[resource] = Assignment(chosen, response)
            except CallError as error:
                raise DevicesUnavailable(_in_go(error)) from error
            finally:
                if assignments[resource].response is None:
                    del assignments[resource]

    def _check(self, pod: Pod, container: Container, resource: str, needed: int, own: Assignment | None) -> None:
        entry = self._resources.get(resource)
        has = own.devices if own is not None else ()
        if own is not None and len(has) != needed:
            uid, name = pod["metadata"]["uid"], container["name"]
            text = f'pod "{uid}" container "{name}" changed request for resource "{resource}"'
            raise DevicesUnavailable(f"{text} from {len(has)} to {needed}")
        if entry is None:
            raise DevicesUnavailable(f"cannot allocate unregistered device {resource}")
        if not entry.healthy:
            raise DevicesUnavailable(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        if not entry.healthy.issuperset(has):
            text = "previously allocated devices are no longer healthy; cannot allocate unhealthy devices"
            raise DevicesUnavailable(f"{text} {resource}")

    async def _choose(self, resource: str, needed: int, reusable: set[str]) -> list[str]:
        """Choose devices: first those of earlier init containers, then those that the plug-in prefers."""
        chosen = sorted(reusable)[:needed]
        if len(chosen) == needed:
            return chosen
        available = self._available(resource, needed - len(chosen), chosen)
        preferred: Sequence[str] = ()
        if self._resources[resource].options.get_preferred_allocation_available:
            try:
                preferred = await self._endpoint(resource).preferred(sorted({*available, *chosen}), chosen, needed)
            except CallError as error:
                text = f"device plugin GetPreferredAllocation rpc failed with err: {_in_go(error)}"
                raise DevicesUnavailable(text) from error
            available = self._available(resource, needed - len(chosen), chosen)  # Others may have taken some.
        ranked = dict.fromkeys(name for name in preferred if name in available)
        ranked |= dict.fromkeys(sorted(available))
        return [*chosen, *list(ranked)[: needed - len(chosen)]]

    def _available(self, resource: str, needed: int, chosen: Collection[str]) -> set[str]:
        entry = self._resources.get(resource, _Resource())
        available = entry.healthy - self._assigned(resource) - set(chosen)
        if len(available) < needed:
            text = f"requested number of devices unavailable for {resource}."
            raise DevicesUnavailable(f"{text} Requested: {needed}, Available: {len(available)}")
        return available

    def _assigned(self, resource: str) -> set[str]:
        return {
            device
            for containers in self._pods.values()
            for assignments in containers.values()
            if resource in assignments
            for device in assignments[resource].devices
        }

    def _endpoint(self, resource: str) -> DeviceEndpoint:
        entry = self._resources.get(resource)
        if entry is None:
            raise DevicesUnavailable(f"endpoint not found in cache for a registered resource: {resource}")
        if not entry.endpoints:
            raise DevicesUnavailable(f"endpoint {resource} has been stopped")
        return entry.endpoints[-1]

    def _release(self) -> None:
        """Free the devices of pods that have ended."""
        holders = self._holders()
        if holders is not None:
            for uid in self._pods.keys() - set(holders):
                del self._pods[uid]

    # The file

    def _load(self) -> None:
        try:
            known = msgspec.json.decode(self._checkpoint.read_bytes(), type=_Checkpoint)
            pods: dict[str, dict[str, dict[str, Assignment]]] = {}
            for entry in known.assignments:
                response = ContainerAllocateResponse.decode(base64.b64decode(entry.response))
                of_pod = pods.setdefault(entry.pod, {}).setdefault(entry.container, {})
                of_pod[entry.resource] = Assignment(entry.devices, response)
        except FileNotFoundError:
            return
        except (OSError, ValueError, msgspec.MsgspecError, MalformedMessage) as error:
            _log.error("the devices of the pods on this node are not known: %s: %s", self._checkpoint, error)
            return
        self._pods = pods
        for resource in known.resources:  # Without a device until the plug-in registers again.
            self._resources[resource] = _Resource(stopped_at=self._clock.monotonic())
        self._clock.call_later(STOP_GRACE_SECONDS, lambda: self._changed(()))

    async def _save(self) -> None:
        async with self._writing:
            entries = [
                _Entry(uid, container, resource, assignment.devices, base64.b64encode(response.encode()).decode())
                for uid, containers in self._pods.items()
                for container, assignments in containers.items()
                for resource, assignment in assignments.items()
                if (response := assignment.response) is not None
            ]
            content = msgspec.json.encode(_Checkpoint(sorted(self._resources), entries))
            try:
                await asyncio.to_thread(self._write, content)
            except OSError as error:
                _log.error("the devices of the pods on this node are not kept: %s", error)

    def _write(self, content: bytes) -> None:
        self._checkpoint.parent.mkdir(parents=True, exist_ok=True)
        try:
            if self._checkpoint.read_bytes() == content:
                return
        except OSError:
            pass
        write_private(self._checkpoint, content, durable=True)


class _Entry(msgspec.Struct, array_like=True):
    pod: str
    container: str
    resource: str
    devices: Sequence[str]
    response: str
    """The answer of the plug-in, in base64."""


class _Checkpoint(msgspec.Struct):
    resources: list[str]
    assignments: list[_Entry]


def _in_go(error: CallError) -> str:
    return error.in_go if isinstance(error, GrpcError) else f"rpc error: code = Unavailable desc = {error}"
