"""The sockets of device plug-ins: `kubelet.sock`, at which they register, and the connection to each of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from pinnace.kinds.pods.resource_amounts import is_extended
from pinnace.model.node_plugins import device_plugin as api
from pinnace.model.node_plugins.registration import PluginInfo
from pinnace.node.plugins.devices import DeviceManager
from pinnace.node.plugins.registration import PluginRefused
from pinnace.process.grpc.errors import CallError, GrpcCode, GrpcError
from pinnace.process.grpc.methods import SocketChannel
from pinnace.process.grpc.server import GrpcServer
from pinnace.process.tasks import Tasks
from pinnace.schema.golang.text import quote

DIRECTORY = "device-plugins"
"""The directory of the sockets, below kubelet's."""
_CONNECT_SECONDS = 10.0
PREFER_SECONDS = ALLOCATE_SECONDS = 60.0
"""Kubelet waits without a limit, and admits no other pod meanwhile."""
PRE_START_SECONDS = 30.0
_log = logging.getLogger(__name__)


class _Plugin:
    """A `DeviceEndpoint` behind a socket."""

    def __init__(self, resource: str, channel: SocketChannel, options: api.DevicePluginOptions) -> None:
        self.resource = resource
        self.channel = channel
        self.options = options

    async def preferred(self, available: Sequence[str], must_include: Sequence[str], size: int) -> Sequence[str]:
        wanted = api.ContainerPreferredAllocationRequest(
            available_ids=available, must_include_ids=must_include, allocation_size=size
        )
        request = api.PreferredAllocationRequest(container_requests=[wanted])
        answer = await self.channel.call(api.GET_PREFERRED_ALLOCATION, request, seconds=PREFER_SECONDS)
        return answer.container_responses[0].ids if answer.container_responses else ()

    async def allocate(self, devices: Sequence[str]) -> api.ContainerAllocateResponse:
        request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=devices)])
        answer = await self.channel.call(api.ALLOCATE, request, seconds=ALLOCATE_SECONDS)
        if not answer.container_responses:
            raise GrpcError(GrpcCode.INTERNAL, "no containers return in allocation response")
        return answer.container_responses[0]

    async def pre_start(self, devices: Sequence[str]) -> None:
        request = api.PreStartContainerRequest(devices_ids=devices)
        await self.channel.call(api.PRE_START_CONTAINER, request, seconds=PRE_START_SECONDS)


class DevicePlugins:
    """Takes registrations, also by the registry of plug-ins, and follows each plug-in until it ends."""

    def __init__(self, directory: Path, devices: DeviceManager) -> None:
        self._directory = directory
        self._devices = devices
        self._tasks = Tasks(expected=(CallError, OSError))
        self._plugins: dict[str, tuple[_Plugin, asyncio.Task[None]]] = {}
        """The plug-ins by the paths of their sockets."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve within a block. Raise OSError."""
        await asyncio.to_thread(self._clear)
        server = GrpcServer({api.REGISTER: self._register})
        await server.open(self._directory / api.KUBELET_SOCKET)
        try:
            yield
        finally:
            await server.close()
            await self._tasks.close()

    def _clear(self) -> None:
        """Remove the sockets that earlier plug-ins have left: those that run see it, and register again."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o750)
        for entry in os.scandir(self._directory):
            if stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry.path)

    async def _register(self, request: api.RegisterRequest) -> api.Empty:
        name, resource = request.endpoint, request.resource_name
        try:
            if request.version != api.VERSION:
                text = f"requested API version {quote(request.version)} is not supported by kubelet."
                raise PluginRefused(f'{text} Supported version is ["{api.VERSION}"]')
            if name in ("", ".", "..", api.KUBELET_SOCKET) or os.path.basename(name) != name:
                raise PluginRefused(f"the endpoint {quote(name)} is not the name of a socket beside this one")
            _check_resource(resource)
            await self._connect(resource, self._directory / name)
        except PluginRefused as error:
            _log.warning("the device plug-in of %s was refused: %s", quote(resource), error)
            raise GrpcError(GrpcCode.UNKNOWN, str(error)) from None
        return api.Empty()

    # By the registry of plug-ins.

    def validate(self, info: PluginInfo) -> None:
        if api.VERSION not in info.supported_versions:
            versions = " ".join(info.supported_versions)
            raise PluginRefused(f"manager version, {api.VERSION}, is not among plugin supported versions [{versions}]")
        try:
            _check_resource(info.name)
        except PluginRefused as error:
            raise PluginRefused(f"invalid name of device plugin socket: {error}") from None

    async def register(self, info: PluginInfo, endpoint: Path) -> None:
        await self._connect(info.name, endpoint)

    async def deregister(self, info: PluginInfo, endpoint: Path) -> None:
        await self._drop(str(endpoint))

    # The connections.

    async def _connect(self, resource: str, path: Path) -> None:
        channel = SocketChannel(path)
        try:
            options = await channel.call(api.GET_OPTIONS, api.Empty(), seconds=_CONNECT_SECONDS)
        except CallError as error:
            channel.close()
            reason = error.in_go if isinstance(error, GrpcError) else str(error)
            raise PluginRefused(f"failed to get device plugin options: {reason}") from error
        await self._drop(str(path))  # It has ended, and its successor is here first.
        plugin = _Plugin(resource, channel, options)
        self._devices.connect(resource, plugin)
        self._plugins[str(path)] = (plugin, self._tasks.start(self._follow(plugin)))
        _log.info("the device plug-in of %s registered at %s", resource, path)

    async def _follow(self, plugin: _Plugin) -> None:
        try:
            async with aclosing(plugin.channel.stream(api.LIST_AND_WATCH, api.Empty())) as answers:
                async for answer in answers:
                    await self._devices.report(plugin.resource, answer.devices)
            _log.warning("the device plug-in of %s ended its list of devices", plugin.resource)
        except CallError as error:
            _log.warning("the device plug-in of %s is lost: %s", plugin.resource, error)
        finally:
            plugin.channel.close()
            self._devices.disconnect(plugin.resource, plugin)
            if self._plugins.get(plugin.channel.path, (None,))[0] is plugin:
                del self._plugins[plugin.channel.path]

    async def _drop(self, path: str) -> None:
        _, task = self._plugins.get(path, (None, None))
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))


def _check_resource(name: str) -> None:
    if not is_extended(name):
        raise PluginRefused(f"the ResourceName {quote(name)} is invalid")
