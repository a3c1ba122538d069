"""Stops the containers of a pod with its grace period, hooks first, sidecars last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pinnace.model.clock import AlarmClock
from pinnace.model.objects import Key, Object, key_of
from pinnace.model.tasks import Tasks
from pinnace.node.agent.container_starts import probe_target
from pinnace.node.agent.probes import Actions
from pinnace.node.agent.static_pods import is_static
from pinnace.node.agent.variables import all_containers
from pinnace.node.runtime.runtime import ContainerState, ContainerStatus, Runtime, SandboxStatus
from pinnace.reconcile.events import EventRecorder

_GRACE_CHECK_SECONDS = 0.25
_LEAST_SECONDS = 2.0
"""The time that a container has after its hook has used up the grace period."""


class PodEnds:
    def __init__(
        self,
        runtime: Runtime,
        clock: AlarmClock,
        recorder: EventRecorder,
        current: Callable[[Key], Object | None],
    ) -> None:
        self._runtime = runtime
        self._clock = clock
        self._recorder = recorder
        self._current = current
        self._actions = Actions(runtime)

    async def stop_containers(self, pod: Object, sandbox: SandboxStatus, grace: float) -> None:
        """Stop all containers of a sandbox. A further delete of the pod may shorten the grace period meanwhile."""
        containers = {one["name"]: one for one in all_containers(pod)}
        sidecars = {one["name"] for one in pod["spec"].get("initContainers") or ()}
        running = [one for one in await self._runtime.containers(sandbox.id) if one.state is ContainerState.RUNNING]
        began = self._clock.monotonic()
        await self._stop_all(
            pod, sandbox, containers, [one for one in running if one.config.name not in sidecars], grace
        )
        order = [one["name"] for one in pod["spec"].get("initContainers") or ()]
        later = [one for one in running if one.config.name in sidecars]
        for one in sorted(later, key=lambda one: -order.index(one.config.name)):
            left = max(0.0, grace - (self._clock.monotonic() - began))
            await self._stop_all(pod, sandbox, containers, [one], left)

    async def _stop_all(
        self,
        pod: Object,
        sandbox: SandboxStatus,
        containers: dict[str, Object],
        chosen: list[ContainerStatus],
        grace: float,
    ) -> None:
        async with asyncio.TaskGroup() as tasks:
            for one in chosen:
                tasks.create_task(self._stop(pod, sandbox, containers.get(one.config.name, {}), one, grace))

    async def _stop(
        self, pod: Object, sandbox: SandboxStatus, container: Object, status: ContainerStatus, grace: float
    ) -> None:
        self._recorder.record(pod, "Normal", "Killing", f"Stopping container {status.config.name}")
        began = self._clock.monotonic()
        hook = (container.get("lifecycle") or {}).get("preStop")
        if hook and grace:
            outcome = await self._actions.run(hook, probe_target(sandbox, container, status.id), grace)
            if not outcome.is_success:
                self._recorder.record(pod, "Warning", "FailedPreStopHook", f"PreStopHook failed: {outcome.message}")
        left = max(_LEAST_SECONDS, grace - (self._clock.monotonic() - began)) if grace else 0.0
        async with Tasks(expected=()) as tasks:
            stopping = tasks.start(self._runtime.stop_container(status.id, left))
            while not stopping.done():
                await asyncio.wait([stopping], timeout=_GRACE_CHECK_SECONDS)
                shorter = self._grace_now(pod, grace)
                if shorter < grace and not stopping.done():
                    stopping.cancel()
                    grace = shorter
                    left = max(0.0, grace - (self._clock.monotonic() - began))
                    stopping = tasks.start(self._runtime.stop_container(status.id, left))
            await stopping

    def _grace_now(self, pod: Object, grace: float) -> float:
        """The grace period that the pod has now: a further delete may have shortened it, or removed the pod."""
        if is_static(pod):
            return grace
        current = self._current(key_of(pod))
        if current is None or current["metadata"]["uid"] != pod["metadata"]["uid"]:
            return 0.0
        stated = current["metadata"].get("deletionGracePeriodSeconds")
        return float(stated) if stated is not None else grace
