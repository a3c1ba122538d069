"""Brings one pod to what its spec asks for: admission, volumes, sandbox, containers, status, and its end.

`sync` is level-triggered: it looks at the pod and at the runtime, takes the steps that are due, and writes the status.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from datetime import datetime
from typing import cast

from pinnace.client.client import Client
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors, quantity
from pinnace.model.objects import Key
from pinnace.model.typed_objects import Container, Node, Pod
from pinnace.node.agent.api_objects import ApiObjects
from pinnace.node.agent.containers.container_configs import sandbox_of
from pinnace.node.agent.containers.container_starts import ContainerStarter, probe_target
from pinnace.node.agent.pod_fields import has_extended_resources
from pinnace.node.agent.pod_records import AgentNode, BackOff, PodRecord, Waiting, WorkerContext
from pinnace.node.agent.pods.pod_ends import PodEnds
from pinnace.node.agent.pods.resizing import Resizer
from pinnace.node.agent.pods.static_pods import is_static
from pinnace.node.agent.probes.probes import Actions, Prober
from pinnace.node.agent.restarts import RESTART_ALL, action_after
from pinnace.node.agent.status.pod_status import FINAL, last_of_ephemeral
from pinnace.node.agent.status.status_writes import PodStatusWriter
from pinnace.node.agent.volumes.host_volumes import MountFailed
from pinnace.node.agent.volumes.volumes import (
    PodVolumes,
    VolumeMemory,
    VolumeSources,
    fs_group_of,
    remove_from_memory,
    set_up_volumes,
)
from pinnace.node.errors import ConfigRefused, DevicesFailed, ImageFailure, RuntimeFailure, SandboxFailed, StartFailed
from pinnace.node.images.pulls import Pulls
from pinnace.node.machine.mapped_root import give_trees
from pinnace.node.machine.removals import Removals
from pinnace.node.plugins.devices import DevicesUnavailable
from pinnace.node.resources.admission import (
    PodFailure,
    Rejection,
    check_apparmor,
    check_features,
    check_pod,
    check_predicates,
    check_selinux,
    has_selinux,
    loaded_apparmor_profiles,
)
from pinnace.node.resources.alignment.pinning import Pinning
from pinnace.node.resources.resize import WHOLE_POD, PodAllocation
from pinnace.node.runtime.runtime import ContainerState, ContainerStatus, MemoryDirectory, Runtime, SandboxStatus
from pinnace.process.clock import AlarmClock
from pinnace.process.tasks import Tasks
from pinnace.reconcile.events import EventRecorder

_RETRY_SECONDS = 2.0
_REFRESH_SECONDS = 60.0
"""How often the ConfigMaps, Secrets and tokens in the volumes of a running pod are read again."""
_NEEDING_SUPPORT = {"runtimeClassName", "resourceClaims", "extendedResourceClaimStatus"}
"""The fields of a pod and of its status that need a runtime or devices."""
_HANDLERS = ("runc", "crun")
"""The handlers of runtime classes whose pods run here: those that isolate a pod as this node does."""
_log = logging.getLogger(__name__)


class PodWorkers:
    def __init__(
        self,
        node: AgentNode,
        runtime: Runtime,
        pulls: Pulls,
        client: Client,
        recorder: EventRecorder,
        context: WorkerContext,
    ) -> None:
        self._node = node
        self._runtime = runtime
        self._pulls = pulls
        self._client = client
        self._clock: AlarmClock = client.clock
        self._recorder = recorder
        self._context = context
        self._objects = ApiObjects(client)
        self._certificates = context.certificates
        most_pods = quantity.parse(node.allocatable.get("pods", "0")).value
        self._volume_memory = VolumeMemory(most_pods)
        self._sources = VolumeSources(
            self._objects, context.trust_bundles, context.certificates, self._volume_memory, node.kubelet_directory
        )
        self._actions = Actions(runtime)
        self._starter = ContainerStarter(
            node, runtime, pulls, self._objects, recorder, context.services, devices=context.devices
        )
        self._ends = PodEnds(runtime, client.clock, recorder, context.current)
        self._statuses = PodStatusWriter(node, runtime, client, context)
        self._resizer = Resizer(node, runtime, recorder)
        self.pinning = Pinning(node.resources, runtime, client.clock)
        self._admission = asyncio.Lock()
        self._has_released_others = False
        self._records: dict[str, PodRecord] = {}
        self._ended: dict[Key, str] = {}
        """The uids of deleted pods that have their last status, and that a finalizer may keep."""
        self._removals = Removals(node.pods.with_name("removed"))

    async def sync(self, key: Key, pod: Pod | None) -> float:
        """Take the steps that are due. Return the seconds after which to look again; 0 for not without a change."""
        uid = pod["metadata"]["uid"] if pod is not None else ""
        others = {sandbox.config.uid for sandbox in await self._runtime.sandboxes(*key)}
        others |= {known for known, record in self._records.items() if record.key == key}
        for other in others - {uid}:
            await self._clean(key, other)
        if pod is None:
            self._ended.pop(key, None)
            return 0.0
        record = self._record(key, pod)
        if pod["metadata"].get("deletionTimestamp"):
            await self._end(pod, record)
            return 0.0
        if (pod.get("status") or {}).get("phase") in FINAL:
            for sandbox in await self._statuses.sandboxes(record):
                await self._runtime.stop_sandbox(sandbox.id)
            await self._release(uid)
            await self._remove_data(uid)
            return 0.0
        record.waiting.clear()
        left = self._seconds_to_deadline(pod)
        if left is not None and left <= 0:
            record.failure = PodFailure(
                "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
            )
        if not (record.is_admitted and record.has_resources) and record.failure is None:
            wait = await self._admit(pod, record)
            if wait:
                await self._statuses.write(pod, record)
                return wait
        if record.failure is not None:
            await self._fail(pod, record)
            return 0.0
        wait = await self._advance(pod, record)
        await self._statuses.write(pod, record)
        return min(wait, left) if left is not None else wait

    def fail(self, key: Key, failure: PodFailure) -> None:
        """End a pod with this reason, such as an eviction."""
        for record in self._records.values():
            if record.key == key and record.failure is None:
                record.failure = failure
                self._recorder.record(record.pod, "Warning", failure.reason, failure.message)
                self._context.enqueue(key)

    def active_pods(self) -> list[Pod]:
        """The admitted pods that have not ended, with the resources that they were given."""
        return [
            record.allocation.of_pod(record.pod)
            for record in self._records.values()
            if record.is_admitted
            and record.failure is None
            and (record.pod.get("status") or {}).get("phase") not in FINAL
        ]

    def running_uids(self) -> set[str]:
        """Return the uids of the pods that were admitted and have containers, or may get some."""
        return {uid for uid, record in self._records.items() if record.is_admitted and not record.is_terminated}

    async def close(self) -> None:
        for record in self._records.values():
            await record.close_probers()
        await self._removals.close()

    def _record(self, key: Key, pod: Pod) -> PodRecord:
        uid = pod["metadata"]["uid"]
        record = self._records.get(uid)
        if record is None:
            file = self._node.directory_of(pod) / "allocated.json"
            record = self._records[uid] = PodRecord(key, pod, PodAllocation.load(file))
            record.is_admitted = bool(record.allocation.allocated)
        record.pod = pod
        return record

    # Towards running

    async def _admit(self, pod: Pod, record: PodRecord) -> float:
        """Decide once whether the node takes the pod. Two pods that start together are checked one after the other.

        Return the seconds after which to try again; 0 for a decision.
        """
        node = self._context.node()
        if node is None:
            return 0.0  # The agent registers the node first; until its object is seen, only resources could be checked.
        was_admitted = record.is_admitted
        try:
            async with self._admission:
                rejection = await self._check_and_allocate(pod, record, node)
                record.is_admitted = record.has_resources = rejection is None  # The next pod must see this one.
            if rejection is None and not was_admitted:
                if has_extended_resources(pod):
                    await self._context.devices.allocate(pod)
                await asyncio.to_thread(record.allocation.admit, pod)
        except DevicesUnavailable as error:
            record.is_admitted = record.has_resources = False
            await self._release(pod["metadata"]["uid"])
            text = f"Allocate failed due to {error}, which is unexpected"
            rejection = Rejection("UnexpectedAdmissionError", text)
        except OSError as error:  # A full disk: an end of the pod would only bring the next one here.
            record.is_admitted, record.has_resources = was_admitted, False
            text = f"error making pod data directories: {error}"
            self._recorder.record(pod, "Warning", "FailedToMakePodDataDirectories", text)
            return _RETRY_SECONDS
        if rejection is None:
            await self.pinning.apply()
            return 0.0
        return self._reject(pod, record, rejection)

    def _reject(self, pod: Pod, record: PodRecord, why: Rejection) -> float:
        message = f"Pod was rejected: {why.message}"
        self._recorder.record(pod, "Warning", why.reason, why.message)
        record.failure, record.is_rejected = PodFailure(why.reason, message, grace_seconds=0.0), True
        return 0.0

    async def _check_and_allocate(self, pod: Pod, record: PodRecord, node: Node) -> Rejection | None:
        """Check a pod and give it its resources. One that was admitted before has them, if nothing was lost."""
        resources, uid = self._node.resources, pod["metadata"]["uid"]
        if not self._has_released_others:
            resources.release_others(self._context.uids())
            self._has_released_others = True
        if record.is_admitted:
            return await resources.admit(record.allocation.of_pod(pod))
        others = [other for other in self.active_pods() if other["metadata"]["uid"] != uid]
        allocatable = {**((node.get("status") or {}).get("allocatable") or {}), **self._node.allocatable}
        if has_extended_resources(pod):
            allocatable |= self._context.devices.allocatable_for_admission()
        pressures, unsafe = self._context.pressures(), self._node.unsafe_sysctls
        rejection = (
            check_features(pod, self._context.features())
            or check_pod(pod, pressures=pressures, is_static=is_static(pod), unsafe_sysctls=unsafe)
            or await resources.admit(pod)
            or check_predicates(pod, others, node, allocatable, is_static=is_static(pod))
            or check_apparmor(pod, loaded_apparmor_profiles())
            or check_selinux(pod, is_enabled=has_selinux())
        )
        if rejection is not None:
            resources.release(uid)
        return rejection

    async def _release(self, uid: str) -> None:
        """Free the resources of a pod that runs no more."""
        self._node.resources.release(uid)
        await self.pinning.apply()

    async def _advance(self, pod: Pod, record: PodRecord) -> float:
        try:
            self._resizer.decide(pod, record, self.active_pods())
            given = record.allocation.of_pod(pod)
            sandbox = await self._prepare(given, record)
            if sandbox is None:
                return _REFRESH_SECONDS
            await self._resizer.apply(given, record, sandbox)
            return await self._run_containers(given, record, sandbox)
        except (MountFailed, SandboxFailed, DevicesFailed) as error:
            self._recorder.record(pod, "Warning", error.reason, str(error))
        except OSError as error:
            self._recorder.record(pod, "Warning", "FailedSync", f"error determining status: {error}")
        except RuntimeFailure as error:
            _log.warning("pod %s/%s: %s", record.key.namespace, record.key.name, error)
        return _RETRY_SECONDS

    async def _prepare(self, pod: Pod, record: PodRecord) -> SandboxStatus | None:
        """Make or refresh the volumes, and find or make the sandbox. Return None if the pod runs no further."""
        existing = await self._statuses.sandboxes(record)
        ready = next((candidate for candidate in existing if candidate.is_ready), None)
        if ready is not None:
            if self._is_refresh_due(pod, record):
                await self._set_up_volumes(pod, record, await self._runtime.memory(ready.id))
            return ready
        if existing and await self._is_over(pod, existing):
            return None
        memory = await self._runtime.memory()
        volumes = await self._set_up_volumes(pod, record, memory)
        if existing:
            self._recorder.record(
                pod, "Normal", "SandboxChanged", "Pod sandbox changed, it will be killed and re-created."
            )
            for old in existing:
                await self._remove_sandbox(record, old)
        if _NEEDING_SUPPORT & (pod["spec"].keys() | (pod.get("status") or {}).keys()):
            await self._check_support(pod)
        try:
            config = sandbox_of(
                pod,
                volumes,
                node=self._node.name,
                attempt=len(existing),
                log_directory=str(self._node.directory_of(pod) / "logs"),
                resources=self._node.resources.limits_of_pod(pod),
                has_devices=has_extended_resources(pod) and self._context.devices.has_devices(pod["metadata"]["uid"]),
            )
        except ConfigRefused as error:
            raise SandboxFailed(f"failed to generate sandbox config for pod: {error}") from error
        sandbox = await self._runtime.run_sandbox(config)
        if "resources" in pod["spec"]:
            record.allocation.actual[WHOLE_POD] = pod["spec"]["resources"] or {}
        if await self._runtime.memory() is not memory:  # It has ended with the processes of the node.
            await self._set_up_volumes(pod, record, await self._runtime.memory(sandbox))
        return await self._runtime.sandbox(sandbox)

    async def _is_over(self, pod: Pod, lost: list[SandboxStatus]) -> bool:
        """Whether a pod whose sandbox is lost gets no other: a container that has run for good must not run twice."""
        ended = {
            container.config.name: container
            for sandbox in lost
            for container in await self._runtime.containers(sandbox.id)
        }
        if ended and pod["spec"].get("restartPolicy") == "Never":
            return True
        return all(
            container["name"] in ended and not action_after(pod, container, ended[container["name"]].exit_code)
            for container in pod["spec"]["containers"]
        )

    async def _check_support(self, pod: Pod) -> None:
        """Raise SandboxFailed or DevicesFailed if the pod needs a runtime or devices that this node does not have."""
        if name := pod["spec"].get("runtimeClassName"):
            runtime_class = await self._objects.runtime_class(name)
            if runtime_class is None:
                raise SandboxFailed(f'Failed to create pod sandbox: runtimeclass.node.k8s.io "{name}" not found')
            if runtime_class["handler"] not in _HANDLERS:
                raise SandboxFailed(
                    f'Failed to create pod sandbox: no runtime for "{runtime_class["handler"]}" is configured'
                )
        for name in _claims_of(pod):
            claim = await self._objects.resource_claim(pod["metadata"]["namespace"], name)
            if claim is None:
                raise DevicesFailed(f"Failed to prepare dynamic resources: fetch ResourceClaim {name}: it is not found")
            devices = ((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}
            for result in devices.get("results") or ():
                missing = f"DRA driver {result['driver']} is not registered"
                raise DevicesFailed(f"Failed to prepare dynamic resources: prepare dynamic resources: {missing}")

    def _is_refresh_due(self, pod: Pod, record: PodRecord) -> bool:
        is_old = self._clock.monotonic() - record.refreshed_at >= _REFRESH_SECONDS
        is_old = is_old or self._certificates.has_news(pod["metadata"]["uid"])
        return is_old or record.volumes is None or record.refreshed_for != _fields_in_files(pod)

    async def _set_up_volumes(self, pod: Pod, record: PodRecord, memory: MemoryDirectory) -> PodVolumes:
        began, is_first = self._clock.monotonic(), record.volumes is None
        directory = self._node.directory_of(pod) / "volumes"
        volumes = record.volumes = await set_up_volumes(directory, memory, self._node.fields_of(pod), self._sources)
        record.refreshed_at, record.refreshed_for = began, _fields_in_files(pod)
        group = fs_group_of(pod)
        if is_first and group is not None:
            await asyncio.to_thread(give_trees, volumes.owned, group)
        return volumes

    async def _run_containers(self, pod: Pod, record: PodRecord, sandbox: SandboxStatus) -> float:
        spec = pod["spec"]
        wait = _REFRESH_SECONDS
        is_initialized = bool(spec.get("initContainers")) and await self._is_initialized(pod, sandbox)
        for container in spec.get("initContainers") or ():
            if is_initialized:  # A sidecar that ends now keeps no other container from running, or from its end.
                if container.get("restartPolicy") == "Always":
                    wait = min(wait, (await self._run_container(pod, record, sandbox, container))[1])
                continue
            status, delay = await self._run_container(pod, record, sandbox, container)
            wait = min(wait, delay)
            if container.get("restartPolicy") == "Always":
                prober = record.probers.get(status.id) if status is not None else None
                is_done = prober is not None and prober.results.is_started
            else:
                is_done = status is not None and status.state is ContainerState.EXITED and status.exit_code == 0
            if not is_done:
                for later in (*_after(spec["initContainers"], container), *spec["containers"]):
                    record.waiting.setdefault(later["name"], Waiting("PodInitializing"))
                return wait
        for container in spec["containers"]:
            wait = min(wait, (await self._run_container(pod, record, sandbox, container))[1])
        for ephemeral in spec.get("ephemeralContainers") or ():
            is_lost = last_of_ephemeral(pod, ephemeral["name"]) and not await self._latest(
                sandbox.id, ephemeral["name"]
            )
            if not is_lost:  # Of one that has ended with an earlier sandbox, the last status stays.
                container = cast(Container, ephemeral)
                wait = min(wait, (await self._run_container(pod, record, sandbox, container))[1])
        return wait

    async def _is_initialized(self, pod: Pod, sandbox: SandboxStatus) -> bool:
        """Whether the init containers have been done in this sandbox: a container that comes after them was made."""
        names = {container["name"] for container in pod["spec"]["containers"]}
        return any(container.config.name in names for container in await self._runtime.containers(sandbox.id))

    async def _run_container(
        self, pod: Pod, record: PodRecord, sandbox: SandboxStatus, container: Container
    ) -> tuple[ContainerStatus | None, float]:
        """Start a container if it is due. Return its status and when to look again."""
        name = container["name"]
        latest = await self._latest(sandbox.id, name)
        if latest is not None and latest.state is ContainerState.RUNNING:
            await self._watch_health(pod, record, sandbox, container, latest)
            return await self._runtime.container(latest.id), _REFRESH_SECONDS
        attempt = self._next_attempt(pod, record, name, latest)
        if latest is not None and latest.state is ContainerState.EXITED:
            await record.close_prober(latest.id)
            action = action_after(pod, container, latest.exit_code)
            if not action:
                return latest, _REFRESH_SECONDS
            delay = self._restart_delay(record, name, latest)
            if delay > 0:
                self._note_crash_loop(pod, record, name)
                return latest, delay
            if action == RESTART_ALL:
                return latest, await self._restart_all(pod, record, sandbox)
        try:
            status = await self._starter.start(pod, record, sandbox, container, attempt)
            await self._watch_health(pod, record, sandbox, container, status)
            return status, _REFRESH_SECONDS
        except ImageFailure as error:
            record.waiting[name] = Waiting(error.reason, str(error))
            return latest, max(1.0, error.retry_seconds)
        except StartFailed as error:
            self._recorder.record(pod, "Warning", "Failed", f"Error: {error}")
            return await self._latest(sandbox.id, name), 0.1
        except RuntimeFailure as error:
            record.waiting[name] = Waiting(error.reason, str(error))
            self._recorder.record(pod, "Warning", "Failed", f"Error: {error}")
            return latest, _RETRY_SECONDS

    async def _restart_all(self, pod: Pod, record: PodRecord, sandbox: SandboxStatus) -> float:
        """Stop every container, so that the pod starts again with its init containers, on the same volumes."""
        await record.close_probers()
        for container in await self._runtime.containers(sandbox.id):
            await self._runtime.stop_container(container.id, 0)
        await self._remove_sandbox(record, sandbox)
        self._context.enqueue(record.key)
        return _RETRY_SECONDS

    async def _remove_sandbox(self, record: PodRecord, sandbox: SandboxStatus) -> None:
        """Remove a sandbox whose pod goes on in another, where the attempts of its containers go on, too."""
        await record.close_probers()
        for container in await self._runtime.containers(sandbox.id):
            attempts = record.attempts.get(container.config.name, 0)
            record.attempts[container.config.name] = max(attempts, container.config.attempt + 1)
        await self._runtime.remove_sandbox(sandbox.id)

    # Health

    async def _watch_health(
        self, pod: Pod, record: PodRecord, sandbox: SandboxStatus, container: Container, status: ContainerStatus
    ) -> None:
        """Probe a running container, and kill it if a probe says so."""
        prober = record.probers.get(status.id)
        if prober is None:
            record.probers[status.id] = Prober(
                probe_target(sandbox, container, status.id),
                self._actions,
                self._clock,
                changed=lambda: self._note_probe(record),
                report=lambda reason, message: self._recorder.record(pod, "Warning", reason, message),
                observe=self._context.probe_observer(pod, container["name"]),
            )
        elif prober.results.unhealthy:
            kind = prober.results.unhealthy.removesuffix("Probe")
            text = f"Container {container['name']} failed {kind} probe, will be restarted"
            self._recorder.record(pod, "Normal", "Killing", text)
            stated = container.get(prober.results.unhealthy) or {}
            grace = stated.get("terminationGracePeriodSeconds", pod["spec"].get("terminationGracePeriodSeconds", 30))
            await self._runtime.stop_container(status.id, grace)
            self._context.enqueue(record.key)

    def _note_probe(self, record: PodRecord) -> None:
        record.readiness.set()
        self._context.enqueue(record.key)

    def _restart_delay(self, record: PodRecord, name: str, ended: ContainerStatus) -> float:
        back_off = record.back_offs.setdefault(name, BackOff())
        now = self._clock.monotonic()
        if ended.id not in record.ends_seen:
            record.ends_seen.add(ended.id)
            back_off.note_end(now, (ended.finished_at - (ended.started_at or ended.finished_at)) / 1e9)
        return back_off.remaining(now)

    def _note_crash_loop(self, pod: Pod, record: PodRecord, name: str) -> None:
        text = f"back-off {record.back_offs[name].text} restarting failed container={name} pod={_pod_name(pod)}"
        record.waiting[name] = Waiting("CrashLoopBackOff", text)
        self._recorder.record(
            pod, "Warning", "BackOff", f"Back-off restarting failed container {name} in pod {_pod_name(pod)}"
        )

    def _next_attempt(self, pod: Pod, record: PodRecord, name: str, latest: ContainerStatus | None) -> int:
        if latest is not None:
            return latest.config.attempt + 1
        if name in record.attempts:  # The status of the pod that is known here may be older.
            return record.attempts[name]
        statuses = pod.get("status") or {}
        for status in (*(statuses.get("containerStatuses") or ()), *(statuses.get("initContainerStatuses") or ())):
            if status["name"] == name and status.get("containerID"):
                return int(status.get("restartCount", 0)) + 1
        return 0

    def _seconds_to_deadline(self, pod: Pod) -> float | None:
        """The seconds until the pod has run for its activeDeadlineSeconds; None without such a limit."""
        seconds, began = pod["spec"].get("activeDeadlineSeconds"), (pod.get("status") or {}).get("startTime")
        if seconds is None:
            return None
        if not began:
            return float(seconds)
        ran = (self._clock.now() - datetime.fromisoformat(began)).total_seconds()
        return float(seconds) - ran

    # The end

    async def _fail(self, pod: Pod, record: PodRecord) -> None:
        """Stop the containers of a pod that the node ends, and write why."""
        assert record.failure is not None
        grace = record.failure.grace_seconds
        if grace is None:
            grace = float(pod["spec"].get("terminationGracePeriodSeconds", 30))
        await self._stop(pod, record, grace)
        await self._release(pod["metadata"]["uid"])
        await self._statuses.write(pod, record)

    async def _end(self, pod: Pod, record: PodRecord) -> None:
        """Stop the containers with the grace period, write the last status, clean up, and delete the pod."""
        uid = pod["metadata"]["uid"]
        if self._ended.get(record.key) != uid:  # Otherwise a finalizer keeps the pod, which has its last status.
            await self._stop(pod, record, float(pod["metadata"].get("deletionGracePeriodSeconds") or 0))
            record.is_terminated = True
            await self._statuses.write(self._newest(pod, record), record)
            self._ended[record.key] = uid
        await self._clean(record.key, uid)
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._client.delete(Pod, record.key.name, namespace=record.key.namespace, grace_seconds=0, uid=uid)

    async def _stop(self, pod: Pod, record: PodRecord, grace: float) -> None:
        """Stop the containers. Their readiness is probed until they have ended."""
        await record.close_health_probes()
        async with Tasks(expected=(errors.ApiError, ConnectionLost, RuntimeFailure)) as tasks:
            tasks.start(self._report_readiness(pod, record))
            for sandbox in await self._statuses.sandboxes(record):
                await self._ends.stop_containers(pod, sandbox, grace)
        await record.close_probers()
        for sandbox in await self._statuses.sandboxes(record):
            await self._runtime.stop_sandbox(sandbox.id)

    async def _report_readiness(self, pod: Pod, record: PodRecord) -> None:
        record.readiness.clear()
        while True:
            await record.readiness.wait()
            record.readiness.clear()
            await self._statuses.write(self._newest(pod, record), record)

    def _newest(self, pod: Pod, record: PodRecord) -> Pod:
        """The pod as it is now, if it is still the same."""
        current = self._context.current(record.key)
        return current if current is not None and current["metadata"]["uid"] == pod["metadata"]["uid"] else pod

    async def _clean(self, key: Key, uid: str) -> None:
        """Remove everything of a pod from this node."""
        record = self._records.pop(uid, None)
        if record is not None:
            await record.close_probers()
        for sandbox in await self._runtime.sandboxes(*key):
            if sandbox.config.uid == uid:
                if record is not None and is_static(record.pod):
                    grace = float(record.pod["spec"].get("terminationGracePeriodSeconds", 30))
                    await self._ends.stop_containers(record.pod, sandbox, grace)
                # The files first: an agent that is killed now finds the sandbox, and no files without one.
                await self._runtime.stop_sandbox(sandbox.id)
                await self._remove_files(uid)
                await self._runtime.remove_sandbox(sandbox.id)
        self._objects.forget(uid)
        self._certificates.forget(uid)
        self._pulls.forget(uid)
        await self._release(uid)
        await self._remove_files(uid)

    async def _remove_files(self, uid: str) -> None:
        await self._remove_data(uid)
        self._removals.add(self._node.pods / uid)

    async def _remove_data(self, uid: str) -> None:
        """Remove the Secrets, tokens and other data of the API that the pod's volumes show."""
        await asyncio.to_thread(remove_from_memory, await self._runtime.memory(), uid)
        self._volume_memory.forget(uid)

    async def _latest(self, sandbox: str, name: str) -> ContainerStatus | None:
        instances = [instance for instance in await self._runtime.containers(sandbox) if instance.config.name == name]
        return max(instances, key=lambda instance: instance.config.attempt, default=None)


def _fields_in_files(pod: Pod) -> tuple[object, object]:
    return pod["metadata"].get("labels"), pod["metadata"].get("annotations")


def _after(containers: list[Container], container: Container) -> list[Container]:
    return containers[containers.index(container) + 1 :]


def _pod_name(pod: Pod) -> str:
    metadata = pod["metadata"]
    return f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})"


def _claims_of(pod: Pod) -> Iterator[str]:
    """Yield the names of the pod's ResourceClaims."""
    status = pod.get("status") or {}
    generated = {claim["name"]: claim.get("resourceClaimName") for claim in status.get("resourceClaimStatuses") or ()}
    for claim in pod["spec"].get("resourceClaims") or ():
        if name := claim.get("resourceClaimName") or generated.get(claim["name"]):
            yield name
    if extended := status.get("extendedResourceClaimStatus"):
        yield extended["resourceClaimName"]
