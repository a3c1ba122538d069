"""A device plug-in as one typed file: it lists devices, and says what a container needs to use them.

Registration with the node, also with the next kubelet, gRPC, health and the DaemonSet come from here.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from pinnace.model.names import qualified_name
from pinnace.model.node_plugins import device_plugin as api
from pinnace.model.objects import Object
from pinnace.process.backoff import Backoff
from pinnace.process.clock import AlarmClock, SystemClock
from pinnace.process.grpc.errors import CallError, GrpcCode, GrpcError
from pinnace.process.grpc.methods import SocketChannel
from pinnace.process.grpc.server import GrpcServer
from pinnace.process.tasks import contain
from pinnace.sdk.extension import NodePlugin
from pinnace.sdk.installation.manifests import DeploymentOptions

_REGISTER_SECONDS = 10.0
_LOOK_SECONDS = 1.0
"""How soon a kubelet that has started anew is noticed: it removes the sockets of all plug-ins."""
_RETRIES = Backoff(first=0.5, longest=10.0)
_SOCKETS = "device-plugins"
_log = logging.getLogger(__name__)
_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")
_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a node."""

    id: str
    """Its name among the devices of the resource. It stays the same when the plug-in starts again."""
    is_healthy: bool = True
    numa_nodes: Sequence[int] = ()
    """The NUMA nodes of the machine that are close to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNode:
    """A device file of the machine that the container opens."""

    path: str
    """The file on the machine, such as /dev/ttyUSB0."""
    container_path: str = ""
    """The path in the container; that of the host if empty."""
    permissions: str = "rw"
    """Any of r (read), w (write) and m (make)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MountedPath:
    """A file or directory of the machine that the container sees."""

    path: str
    container_path: str = ""
    """The path in the container; that of the host if empty."""
    read_only: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Everything that a container gets together with its devices."""

    env: Mapping[str, str] = field(default_factory=dict)
    devices: Sequence[DeviceNode] = ()
    mounts: Sequence[MountedPath] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations for the container runtime."""
    cdi_devices: Sequence[str] = ()
    """Names of the Container Device Interface, such as example.com/gpu=0."""


class DevicePlugin(NodePlugin):
    """Offers devices as a resource such as `example.com/led`, which containers name in their limits."""

    def __init__(self, resource: str, *, host_paths: Sequence[str] = (), clock: AlarmClock | None = None) -> None:
        """`host_paths` are directories of the machine that the functions read, for the DaemonSet: /dev, /sys."""
        domain, slash, _ = resource.partition("/")
        if qualified_name(resource) or not slash or domain.endswith("kubernetes.io"):
            raise ValueError(f"{resource!r} is no resource of devices: write it as example.com/led")
        self.resource = resource
        self._host_paths = host_paths
        self._clock = clock or SystemClock()
        self._every = 10.0
        self._list: Callable[[], Any] | None = None
        self._allocate: Callable[[Sequence[str]], Any] | None = None
        self._prefer: Callable[[Sequence[str], Sequence[str], int], Any] | None = None
        self._before_start: Callable[[Sequence[str]], Any] | None = None
        self._devices: Sequence[Device] = ()
        self._changed = asyncio.Event()
        self._is_due = asyncio.Event()

    @property
    def name(self) -> str:
        return re.sub(r"[^a-z0-9-]", "-", self.resource.lower())

    # The functions of the author.

    def devices(self, *, every: float = 10.0) -> Callable[[_Function], _Function]:
        """Decorate the function that lists the devices. It is called again after so many seconds, and by `refresh`.

        Devices that it no longer lists, or lists as not healthy, are given to no further container. If it fails, the
        last list holds.
        """

        def decorate(function: _Function) -> _Function:
            self._list, self._every = function, every
            return function

        return decorate

    def allocate(self, function: _Function) -> _Function:
        """Decorate the function that takes the ids of devices, and returns the Allocation of their container.

        It is called when a pod is admitted. An exception rejects the pod, with its text.
        """
        self._allocate = function
        return function

    def prefer(self, function: _Function) -> _Function:
        """Decorate the function that chooses devices: of those available, with those that must be among them, so many.

        Without it the node chooses.
        """
        self._prefer = function
        return function

    def before_start(self, function: _Function) -> _Function:
        """Decorate the function that takes the ids of devices before each start of their container: a reset."""
        self._before_start = function
        return function

    def refresh(self) -> None:
        """List the devices again now, because one of them has changed."""
        self._is_due.set()

    # Running.

    async def run(self, directory: Path) -> None:
        """Offer the devices to the node with this kubelet directory until cancelled. It waits for a kubelet."""
        if self._list is None:
            raise ValueError(f"{self.name} lists no devices: write @plugin.devices() above a function")
        self._devices = await self._list_devices()
        async with asyncio.TaskGroup() as group:
            group.create_task(contain(self._keep_listing))
            group.create_task(contain(self._keep_registered, directory / _SOCKETS))

    async def _keep_listing(self) -> None:
        while True:
            alarm = self._clock.call_later(self._every, self._is_due.set)
            await self._is_due.wait()
            self._is_due.clear()
            alarm.cancel()
            try:
                devices = await self._list_devices()
            except Exception:  # The author's code may raise anything.
                _log.exception("the devices of %s are not known; the last list holds", self.resource)
                continue
            if devices != self._devices:
                self._devices = devices
                changed, self._changed = self._changed, asyncio.Event()
                changed.set()

    async def _keep_registered(self, directory: Path) -> None:
        """Serve and register, and do so again when the kubelet has started anew. It removes all sockets then."""
        failures = 0
        while True:
            known = _identity(directory / api.KUBELET_SOCKET)
            if known is None:
                await self._clock.sleep(_LOOK_SECONDS)
                continue
            server = GrpcServer(
                {
                    api.GET_OPTIONS: self._answer_options,
                    api.LIST_AND_WATCH: self._answer_devices,
                    api.GET_PREFERRED_ALLOCATION: self._answer_preference,
                    api.ALLOCATE: self._answer_allocation,
                    api.PRE_START_CONTAINER: self._answer_start,
                }
            )
            own = directory / f"{self.name}.sock"
            try:
                await server.open(own)
                await self._register(directory, own.name)
                _log.info("%s is registered with the node: %d devices", self.resource, len(self._devices))
                failures = 0
                while _identity(directory / api.KUBELET_SOCKET) == known and own.exists():
                    await self._clock.sleep(_LOOK_SECONDS)
            except (CallError, OSError) as error:
                failures += 1
                _log.warning("%s is not registered with the node: %s", self.resource, error)
                await self._clock.sleep(_RETRIES.delay(failures))
            finally:
                await server.close()

    async def _register(self, directory: Path, endpoint: str) -> None:
        channel = SocketChannel(directory / api.KUBELET_SOCKET)
        request = api.RegisterRequest(
            version=api.VERSION, endpoint=endpoint, resource_name=self.resource, options=self._options()
        )
        try:
            await channel.call(api.REGISTER, request, seconds=_REGISTER_SECONDS)
        finally:
            channel.close()

    def _options(self) -> api.DevicePluginOptions:
        return api.DevicePluginOptions(
            pre_start_required=self._before_start is not None,
            get_preferred_allocation_available=self._prefer is not None,
        )

    async def _list_devices(self) -> Sequence[Device]:
        assert self._list is not None
        devices = list(await _call(self._list))
        ids = [device.id for device in devices]
        if len(set(ids)) != len(ids) or not all(ids):
            raise ValueError(f"the devices of {self.resource} need an id each, and no id twice: {ids}")
        return devices

    # The answers to the node.

    async def _answer_options(self, _: api.Empty) -> api.DevicePluginOptions:
        return self._options()

    async def _answer_devices(self, _: api.Empty) -> AsyncGenerator[api.ListAndWatchResponse, None]:
        while True:
            changed = self._changed
            yield api.ListAndWatchResponse(devices=[_to_wire(device) for device in self._devices])
            await changed.wait()

    async def _answer_preference(self, request: api.PreferredAllocationRequest) -> api.PreferredAllocationResponse:
        if self._prefer is None:
            raise GrpcError(GrpcCode.UNIMPLEMENTED, "the plug-in prefers no devices")
        responses = []
        for wanted in request.container_requests:
            chosen = await _call(self._prefer, wanted.available_ids, wanted.must_include_ids, wanted.allocation_size)
            responses.append(api.ContainerPreferredAllocationResponse(ids=list(chosen)))
        return api.PreferredAllocationResponse(container_responses=responses)

    async def _answer_allocation(self, request: api.AllocateRequest) -> api.AllocateResponse:
        known = {device.id for device in self._devices}
        responses = []
        for wanted in request.container_requests:
            if unknown := [name for name in wanted.devices_ids if name not in known]:
                raise GrpcError(GrpcCode.NOT_FOUND, f"there is no device {', '.join(unknown)}")
            made = Allocation() if self._allocate is None else await _call(self._allocate, list(wanted.devices_ids))
            responses.append(_allocation_to_wire(made))
        return api.AllocateResponse(container_responses=responses)

    async def _answer_start(self, request: api.PreStartContainerRequest) -> api.Empty:
        if self._before_start is not None:
            await _call(self._before_start, list(request.devices_ids))
        return api.Empty()

    # Installation.

    def manifests(self, place: DeploymentOptions) -> dict[str, list[Object]]:
        """Return a DaemonSet, and a ServiceAccount without any permission: a device plug-in needs no API."""
        labels = {"app.kubernetes.io/name": self.name}
        metadata = {"name": self.name, "namespace": place.namespace, "labels": labels}
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
        paths = [f"/var/lib/kubelet/{_SOCKETS}", *self._host_paths]
        volumes = [{"name": f"path-{number}", "hostPath": {"path": path}} for number, path in enumerate(paths)]
        mounts: list[Object] = [
            {"name": f"path-{number}", "mountPath": path, **({"readOnly": True} if number else {})}
            for number, path in enumerate(paths)
        ]
        container: Object = {
            "name": "plugin",
            "image": place.image,
            "command": place.program.run(place.file),
            "resources": dict(place.resources) or {"requests": {"cpu": "10m", "memory": "64Mi"}},
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
                "runAsUser": 0,  # The sockets of kubelet belong to root.
            },
            "volumeMounts": mounts,
        }
        if place.env:
            container["env"] = [{"name": name, "value": value} for name, value in place.env.items()]
        spec: Object = {
            "serviceAccountName": self.name,
            "automountServiceAccountToken": False,
            "hostUsers": True,
            "priorityClassName": "system-node-critical",
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
            "volumes": volumes,
        }
        template = {"metadata": {"labels": labels}, "spec": spec}
        daemons = {"selector": {"matchLabels": labels}, "template": template}
        workload = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": daemons}
        return {"rbac.yaml": [account], "daemonset.yaml": [workload]}


async def _call(function: Callable[_Given, Any], *arguments: _Given.args, **named: _Given.kwargs) -> Any:
    """Call a function of the author: a coroutine function here, any other one in a thread."""
    if inspect.iscoroutinefunction(function):
        return await contain(cast(Callable[..., Awaitable[Any]], function), *arguments)
    return await asyncio.to_thread(function, *arguments, **named)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what changes when a socket is made anew; None for no socket."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _to_wire(device: Device) -> api.PluginDevice:
    nodes = [api.NumaNodeId(id=number) for number in device.numa_nodes]
    return api.PluginDevice(
        id=device.id,
        health=api.HEALTHY if device.is_healthy else api.UNHEALTHY,
        topology=api.TopologyInfo(nodes=nodes) if nodes else None,
    )


def _allocation_to_wire(made: object) -> api.ContainerAllocateResponse:
    if not isinstance(made, Allocation):
        raise TypeError(f"the function of @plugin.allocate returned {made!r}; it must return an Allocation")
    return api.ContainerAllocateResponse(
        envs=made.env,
        devices=[
            api.DeviceSpec(
                host_path=node.path, container_path=node.container_path or node.path, permissions=node.permissions
            )
            for node in made.devices
        ],
        mounts=[
            api.PluginMount(
                host_path=mount.path, container_path=mount.container_path or mount.path, read_only=mount.read_only
            )
            for mount in made.mounts
        ],
        annotations=made.annotations,
        cdi_devices=[api.CdiName(name=name) for name in made.cdi_devices],
    )
