"""Stops the containers of a pod with its grace period, hooks first, sidecars last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pinnace.model.objects import Key, key_of
from pinnace.model.typed_objects import Container, Pod
from pinnace.node.agent.containers.container_starts import probe_target
from pinnace.node.agent.pod_fields import all_containers
from pinnace.node.agent.pods.static_pods import is_static
from pinnace.node.agent.probes.probes import Actions
from pinnace.node.runtime.runtime import ContainerState, ContainerStatus, Runtime, SandboxStatus
from pinnace.process.clock import AlarmClock
from pinnace.process.tasks import Tasks
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
        current: Callable[[Key], Pod | None],
    ) -> None:
        self._runtime = runtime
        self._clock = clock
        self._recorder = recorder
        self._current = current
        self._actions = Actions(runtime)

    async def stop_containers(self, pod: Pod, sandbox: SandboxStatus, grace: float) -> None:
        """Stop all containers of a sandbox. A further delete of the pod may shorten the grace period meanwhile."""
        containers = {container["name"]: container for container in all_containers(pod)}
        sidecars = {container["name"] for container in pod["spec"].get("initContainers") or ()}
        running = [
            container
            for container in await self._runtime.containers(sandbox.id)
            if container.state is ContainerState.RUNNING
        ]
        began = self._clock.monotonic()
        await self._stop_all(
            pod,
            sandbox,
            containers,
            [container for container in running if container.config.name not in sidecars],
            grace,
        )
        order = [container["name"] for container in pod["spec"].get("initContainers") or ()]
        later = [container for container in running if container.config.name in sidecars]
        for sidecar in sorted(later, key=lambda sidecar: -order.index(sidecar.config.name)):
            left = max(0.0, grace - (self._clock.monotonic() - began))
            await self._stop_all(pod, sandbox, containers, [sidecar], left)

    async def _stop_all(
        self,
        pod: Pod,
        sandbox: SandboxStatus,
        containers: dict[str, Container],
        chosen: list[ContainerStatus],
        grace: float,
    ) -> None:
        async with asyncio.TaskGroup() as tasks:
            for container in chosen:
                tasks.create_task(
                    self._stop(
                        pod,
                        sandbox,
                        containers.get(container.config.name, {"name": container.config.name}),
                        container,
                        grace,
                    )
                )

    async def _stop(
        self, pod: Pod, sandbox: SandboxStatus, container: Container, status: ContainerStatus, grace: float
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

    def _grace_now(self, pod: Pod, grace: float) -> float:
        """The grace period that the pod has now: a further delete may have shortened it, or removed the pod."""
        if is_static(pod):
            return grace
        current = self._current(key_of(pod))
        if current is None or current["metadata"]["uid"] != pod["metadata"]["uid"]:
            return 0.0
        stated = current["metadata"].get("deletionGracePeriodSeconds")
        return float(stated) if stated is not None else grace
