"""The node agent: registers the node, watches its pods, and drives them through a runtime."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pinnace.client.transport import ConnectionLost
from pinnace.model import errors, quantity
from pinnace.model.objects import Key, Object
from pinnace.node.agent.pod_records import AgentNode, WorkerContext
from pinnace.node.agent.pod_workers import PodWorkers
from pinnace.node.agent.registration import RENEW_SECONDS, Registration, capacity_of_machine
from pinnace.node.images.pulls import Pulls
from pinnace.node.runtime.errors import NotThere
from pinnace.node.runtime.runtime import ImageService, Runtime
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.manager import Manager

_WORKERS = 32
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    name: str
    directory: Path
    """The state directory of the node."""
    address: str = "127.0.0.1"
    """The address of the node that pods and users see."""
    version: str = "v1.37.0"
    capacity: Mapping[str, str] = field(default_factory=capacity_of_machine)


class NodeAgent:
    """Add its `controllers` to the manager, and run it beside the manager."""

    def __init__(self, settings: AgentSettings, manager: Manager, runtime: Runtime, images: ImageService) -> None:
        self._runtime = runtime
        client = manager.client
        self._clock = client.clock
        self._registration = Registration(
            client,
            settings.name,
            address=settings.address,
            capacity=settings.capacity,
            version=settings.version,
        )
        selection = f"spec.nodeName={settings.name}"
        self._pods = manager.cache("v1/Pod", fields=selection)
        services = manager.cache("v1/Service")
        nodes = manager.cache("v1/Node", fields=f"metadata.name={settings.name}")
        own = Key("", settings.name)

        def all_services() -> list[Object]:
            return list(services.list())

        self.controller = Controller("node-agent", self._sync, workers=_WORKERS)
        self.controller.for_("v1/Pod", fields=selection)
        self._workers = PodWorkers(
            AgentNode(
                name=settings.name,
                host_ip=settings.address,
                directory=settings.directory / "agent",
                allocatable=settings.capacity,
                memory_bytes=quantity.parse(settings.capacity.get("memory", "0")).value,
            ),
            runtime,
            Pulls(images, client.clock),
            client,
            manager.recorder,
            WorkerContext(
                enqueue=lambda key: self.controller.enqueue(key, "runtime"),
                services=all_services,
                current=self._pods.get,
                node=lambda: nodes.get(own),
                pressures=lambda: (),
            ),
        )

    async def run(self) -> None:
        """Register the node, then renew its lease and listen to the runtime, until cancelled."""
        await self._registration.register()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._renew())
                group.create_task(self._listen())
        finally:
            await self._workers.close()

    async def _sync(self, key: Key) -> Result | None:
        wait = await self._workers.sync(key, self._pods.get(key))
        return Result(requeue_after=wait) if wait else None

    async def _renew(self) -> None:
        while True:
            try:
                await self._registration.renew()
            except (errors.ApiError, ConnectionLost) as error:
                _log.warning("the lease of the node was not renewed: %s", error)
            await self._clock.sleep(RENEW_SECONDS)

    async def _listen(self) -> None:
        events = self._runtime.events()
        for sandbox in await self._runtime.sandboxes():  # Pods that were deleted while no agent ran.
            self.controller.enqueue(Key(sandbox.config.namespace, sandbox.config.name), "found on the node")
        async for event in events:
            with contextlib.suppress(NotThere):
                config = (await self._runtime.sandbox(event.sandbox)).config
                self.controller.enqueue(Key(config.namespace, config.name), "runtime")
