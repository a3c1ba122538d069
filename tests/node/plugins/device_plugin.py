"""A device plug-in that does what a test states: it works, fails, hangs, lies and dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

from pinnace.model.node_plugins import device_plugin as api
from pinnace.model.node_plugins import registration
from pinnace.process.grpc.errors import GrpcCode, GrpcError
from pinnace.process.grpc.methods import Method, SocketChannel
from pinnace.process.grpc.server import Answers, GrpcServer

RESOURCE = "example.com/device"
SECONDS = 30.0


class FakePlugin:
    def __init__(self, kubelet: Path, name: str = "fake.sock", resource: str = RESOURCE) -> None:
        self.socket = kubelet / "device-plugins" / name
        self.kubelet = kubelet
        self.resource = resource
        self.version = api.VERSION
        self.options = api.DevicePluginOptions()
        self.devices: list[api.PluginDevice] = []
        self.preferred: Sequence[str] = ()
        self.response = api.ContainerAllocateResponse()
        self.failing: set[str] = set()
        """The methods that answer with an error."""
        self.hanging: set[str] = set()
        self.calls: list[tuple[str, Any]] = []
        self._news = asyncio.Event()
        self._changed = asyncio.Event()
        self._server: GrpcServer | None = None

    async def start(self, devices: Sequence[str] = (), *, registers: bool = True) -> None:
        """Serve, and register with the node."""
        self.devices = [api.PluginDevice(id=name, health=api.HEALTHY) for name in devices]
        await self._serve(self.socket, {})
        if registers:
            await self.register()

    async def register(self, endpoint: str = "") -> None:
        channel = SocketChannel(self.kubelet / "device-plugins" / api.KUBELET_SOCKET)
        request = api.RegisterRequest(
            version=self.version, endpoint=endpoint or self.socket.name, resource_name=self.resource
        )
        try:
            await channel.call(api.REGISTER, request, seconds=SECONDS)
        finally:
            channel.close()

    async def start_in_registry(self, path: Path, devices: Sequence[str], info: registration.PluginInfo) -> None:
        """Serve below `plugins_registry`, where the node finds it."""
        self.devices = [api.PluginDevice(id=name, health=api.HEALTHY) for name in devices]

        async def get_info(_: registration.InfoRequest) -> registration.PluginInfo:
            return info

        async def notify(status: registration.RegistrationStatus) -> registration.RegistrationStatusResponse:
            self._note("NotifyRegistrationStatus", status)
            return registration.RegistrationStatusResponse()

        path.parent.mkdir(parents=True, exist_ok=True)
        methods: dict[Method[Any, Any], Answers] = {
            registration.GET_INFO: get_info,
            registration.NOTIFY_REGISTRATION_STATUS: notify,
        }
        await self._serve(path, methods)

    async def stop(self) -> None:
        assert self._server is not None
        await self._server.close()

    async def set_health(self, name: str, health: str) -> None:
        self.devices = [
            api.PluginDevice(id=device.id, health=health if device.id == name else device.health)
            for device in self.devices
        ]
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def calls_of(self, method: str) -> list[Any]:
        return [request for name, request in self.calls if name == method]

    async def wait_for(self, method: str, count: int = 1) -> list[Any]:
        async with asyncio.timeout(SECONDS):
            while len(self.calls_of(method)) < count:
                self._news.clear()
                await self._news.wait()
        return self.calls_of(method)

    async def _serve(self, path: Path, further: dict[Method[Any, Any], Answers]) -> None:
        methods: dict[Method[Any, Any], Answers] = {
            api.GET_OPTIONS: self._get_options,
            api.LIST_AND_WATCH: self._list_and_watch,
            api.GET_PREFERRED_ALLOCATION: self._prefer,
            api.ALLOCATE: self._allocate,
            api.PRE_START_CONTAINER: self._pre_start,
        }
        self._server = GrpcServer({**methods, **further})
        await self._server.open(path)

    def _note(self, method: str, request: Any) -> None:
        self.calls.append((method, request))
        self._news.set()

    async def _enter(self, method: str, request: Any) -> None:
        self._note(method, request)
        if method in self.hanging:
            await asyncio.get_running_loop().create_future()
        if method in self.failing:
            raise GrpcError(GrpcCode.INTERNAL, f"{method} does not work")

    async def _get_options(self, request: api.Empty) -> api.DevicePluginOptions:
        await self._enter("GetDevicePluginOptions", request)
        return self.options

    async def _list_and_watch(self, request: api.Empty) -> AsyncGenerator[api.ListAndWatchResponse, None]:
        await self._enter("ListAndWatch", request)
        while True:
            changed = self._changed
            yield api.ListAndWatchResponse(devices=self.devices)
            await changed.wait()

    async def _prefer(self, request: api.PreferredAllocationRequest) -> api.PreferredAllocationResponse:
        await self._enter("GetPreferredAllocation", request)
        return api.PreferredAllocationResponse(
            container_responses=[api.ContainerPreferredAllocationResponse(ids=self.preferred)]
        )

    async def _allocate(self, request: api.AllocateRequest) -> api.AllocateResponse:
        await self._enter("Allocate", request)
        return api.AllocateResponse(container_responses=[self.response])

    async def _pre_start(self, request: api.PreStartContainerRequest) -> api.Empty:
        await self._enter("PreStartContainer", request)
        return api.Empty()
