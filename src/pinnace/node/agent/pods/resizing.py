"""Gives running pods the resources that their changed spec asks for, with or without a restart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pinnace.model.typed_objects import Container, Pod
from pinnace.node.agent.pod_records import AgentNode, PodRecord
from pinnace.node.errors import RuntimeFailure
from pinnace.node.resources.resize import INFEASIBLE, WHOLE_POD, check_resize, is_same, needs_restart
from pinnace.node.runtime.runtime import ContainerState, ContainerStatus, Resources, Runtime, SandboxStatus
from pinnace.reconcile.events import EventRecorder


class Resizer:
    def __init__(self, node: AgentNode, runtime: Runtime, recorder: EventRecorder) -> None:
        self._node = node
        self._runtime = runtime
        self._recorder = recorder

    def decide(self, pod: Pod, record: PodRecord, active: Sequence[Pod]) -> None:
        """Allocate what the spec asks for, or note why the node cannot."""
        allocation = record.allocation
        if not allocation.allocated or not allocation.wants_more(pod):
            allocation.pending = None
            return
        uid = pod["metadata"]["uid"]
        others = [other for other in active if other["metadata"]["uid"] != uid]
        resources = self._node.resources
        rejection = resources.check_resize(pod, allocation.of_allocated(pod)) or check_resize(
            pod, others, self._node.allocatable
        )
        if rejection is None:
            allocation.admit(pod)
            self._recorder.record(pod, "Normal", "ResizeStarted", "Pod resize started")
        elif allocation.pending != rejection:
            allocation.pending = rejection
            reason = "ResizeInfeasible" if rejection.reason == INFEASIBLE else "ResizeDeferred"
            self._recorder.record(pod, "Warning", reason, f"Pod resize {rejection.reason}: {rejection.message}")

    async def apply(self, pod: Pod, record: PodRecord, sandbox: SandboxStatus) -> None:
        """Bring the kernel's limits of the running containers to the allocation. `pod` has the allocated resources."""
        allocation = record.allocation
        if not allocation.is_in_progress:
            return
        allocation.error = ""
        after = self._node.resources.limits_of_pod(pod)
        try:
            # The pod's own limits grow before those of its containers, and shrink after them.
            await self._runtime.update_sandbox(sandbox.id, _without_limits(after))
            for container in (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]):
                await self._apply_container(pod, record, sandbox, container)
            await self._runtime.update_sandbox(sandbox.id, after)
            if WHOLE_POD in allocation.actual:
                allocation.actual[WHOLE_POD] = pod["spec"].get("resources") or {}
        except RuntimeFailure as error:
            allocation.error = str(error)
            self._recorder.record(pod, "Warning", "ResizeError", f"Pod resize error: {error}")
            return
        if not allocation.is_in_progress:
            self._recorder.record(pod, "Normal", "ResizeCompleted", "Pod resize completed")

    async def _apply_container(self, pod: Pod, record: PodRecord, sandbox: SandboxStatus, container: Container) -> None:
        allocation, name = record.allocation, container["name"]
        actual, wanted = allocation.actual.get(name), container.get("resources") or {}
        if actual is None:
            return
        running = await self._running(sandbox, name)
        # A container without a limit of its own has that of the whole pod.
        is_kept = is_same(actual, wanted) and is_same(allocation.actual.get(WHOLE_POD), pod["spec"].get("resources"))
        if is_kept or running is None:
            allocation.actual[name] = wanted
            return
        if needs_restart(container, actual, wanted):
            text = f"Container {name} resize requires restart"
            self._recorder.record(pod, "Normal", "Killing", text)
            await record.close_prober(running.id)
            grace = float(pod["spec"].get("terminationGracePeriodSeconds", 30))
            await self._runtime.stop_container(running.id, grace)
        else:
            limits = self._node.resources.limits_of(pod, container)
            await self._check_memory(running, limits)
            await self._runtime.update_resources(running.id, limits)
        allocation.actual[name] = wanted

    async def _check_memory(self, running: ContainerStatus, limits: Resources) -> None:
        used = (await self._runtime.stats(running.id)).memory_bytes or 0
        if limits.memory_bytes and limits.memory_bytes < used:
            raise RuntimeFailure(
                f"attempting to set container {running.config.name} memory limit ({limits.memory_bytes}) "
                f"below current usage ({used})"
            )

    async def _running(self, sandbox: SandboxStatus, name: str) -> ContainerStatus | None:
        for container in await self._runtime.containers(sandbox.id):
            if container.config.name == name and container.state is ContainerState.RUNNING:
                return container
        return None


def _without_limits(resources: Resources) -> Resources:
    return replace(resources, cpu_quota=0, memory_bytes=0)
