"""Keeps the running containers on their CPUs and NUMA nodes while those that all containers share change."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from pinnace.node.errors import NotThere, RuntimeFailure
from pinnace.node.resources.alignment.node_resources import CpuPlacement, NodeResources
from pinnace.node.runtime.runtime import ContainerState, Runtime
from pinnace.process.clock import AlarmClock

_log = logging.getLogger(__name__)


class Pinning:
    def __init__(self, resources: NodeResources, runtime: Runtime, clock: AlarmClock) -> None:
        self._resources = resources
        self._runtime = runtime
        self._clock = clock
        self._lock = asyncio.Lock()

    async def run(self) -> None:
        """Repeat what could not be done, until cancelled."""
        while True:
            await self._clock.sleep(self._resources.policies.reconcile_seconds)
            await self.apply()

    async def apply(self) -> None:
        """Move the running containers to where they should run now."""
        if not self._resources.policies.pins_containers:
            return
        async with self._lock:  # An older placement must not be written after a newer one.
            uids = {sandbox.id: sandbox.config.uid for sandbox in await self._runtime.sandboxes()}
            for container in await self._runtime.containers():
                uid, config = uids.get(container.sandbox), container.config
                if uid is None or container.state is not ContainerState.RUNNING:
                    continue
                wanted = self._resources.placement(uid, config.name)
                if wanted == CpuPlacement(config.resources.cpus, config.resources.memory_nodes):
                    continue
                changed = replace(config.resources, cpus=wanted.cpus, memory_nodes=wanted.memory_nodes)
                try:
                    await self._runtime.update_resources(container.id, changed)
                except NotThere:
                    continue
                except RuntimeFailure as error:
                    _log.warning("the CPUs of container %s of pod %s were not changed: %s", config.name, uid, error)
