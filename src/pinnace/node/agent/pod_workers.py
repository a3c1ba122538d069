"""Brings one pod to what its spec asks for: admission, volumes, sandbox, containers, status, and its end.

`sync` is level-triggered: it looks at the pod and at the runtime, takes the steps that are due, and writes the status.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import datetime

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.clock import AlarmClock
from pinnace.model.objects import Key, Object
from pinnace.node.agent.api_objects import ApiObjects
from pinnace.node.agent.back_off import BackOff
from pinnace.node.agent.container_configs import sandbox_of
from pinnace.node.agent.container_starts import ContainerStarter, probe_target
from pinnace.node.agent.host_volumes import MountFailed
from pinnace.node.agent.pod_ends import PodEnds
from pinnace.node.agent.pod_records import AgentNode, PodRecord, WorkerContext
from pinnace.node.agent.pod_status import Waiting
from pinnace.node.agent.probes import Actions, Prober
from pinnace.node.agent.resizing import Resizer
from pinnace.node.agent.restarts import RESTART_ALL, action_after
from pinnace.node.agent.static_pods import is_static
from pinnace.node.agent.status_writes import PodStatusWriter
from pinnace.node.agent.volumes import fs_group_of, give_volumes, set_up_volumes
from pinnace.node.images.pulls import Pulls
from pinnace.node.resources.admission import check_pod, unexpected
from pinnace.node.resources.amounts import pod_resources
from pinnace.node.resources.failures import PodFailure
from pinnace.node.resources.resize import PodAllocation
from pinnace.node.runtime.embedded.root_file_systems import remove_tree
from pinnace.node.runtime.errors import ImageFailure, RuntimeFailure, SandboxFailed, StartFailed
from pinnace.node.runtime.runtime import ContainerState, ContainerStatus, Runtime, SandboxStatus
from pinnace.reconcile.events import EventRecorder

_RETRY_SECONDS = 2.0
_REFRESH_SECONDS = 60.0
"""How often the ConfigMaps, Secrets and tokens in the volumes of a running pod are read again."""
_FINAL = ("Succeeded", "Failed")
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
        self._actions = Actions(runtime)
        self._starter = ContainerStarter(node, runtime, pulls, self._objects, recorder, context.services)
        self._ends = PodEnds(runtime, client.clock, recorder, context.current)
        self._statuses = PodStatusWriter(node, runtime, client, context.api_uid)
        self._resizer = Resizer(node, runtime, recorder)
        self._records: dict[str, PodRecord] = {}

    async def sync(self, key: Key, pod: Object | None) -> float:
        """Take the steps that are due. Return the seconds after which to look again; 0 for not without a change."""
        uid = pod["metadata"]["uid"] if pod is not None else ""
        others = {one.config.uid for one in await self._runtime.sandboxes(*key)}
        others |= {known for known, record in self._records.items() if record.key == key}
        for other in others - {uid}:
            await self._clean(key, other)
        if pod is None:
            return 0.0
        record = self._record(key, pod)
        if pod["metadata"].get("deletionTimestamp"):
            await self._end(pod, record)
            return 0.0
        if (pod.get("status") or {}).get("phase") in _FINAL:
            for one in await self._statuses.sandboxes(record):
                await self._runtime.stop_sandbox(one.id)
            return 0.0
        record.waiting.clear()
        left = self._seconds_to_deadline(pod)
        if left is not None and left <= 0:
            record.failure = PodFailure(
                "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
            )
        if not record.is_admitted and record.failure is None:
            await self._admit(pod, record)
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

    def active_pods(self) -> list[Object]:
        """The admitted pods that have not ended, with the resources that they were given."""
        return [
            record.allocation.of_pod(record.pod)
            for record in self._records.values()
            if record.is_admitted
            and record.failure is None
            and (record.pod.get("status") or {}).get("phase") not in _FINAL
        ]

    async def close(self) -> None:
        for record in self._records.values():
            await record.close_probers()

    def _record(self, key: Key, pod: Object) -> PodRecord:
        uid = pod["metadata"]["uid"]
        record = self._records.get(uid)
        if record is None:
            file = self._node.directory_of(pod) / "allocated.json"
            record = self._records[uid] = PodRecord(key, pod, PodAllocation.load(file))
            record.is_admitted = bool(record.allocation.allocated)
        record.pod = pod
        return record

    # Towards running

    async def _admit(self, pod: Object, record: PodRecord) -> None:
        """Decide once whether the node takes the pod. Two pods that start together are checked one after the other."""
        node = self._context.node()
        if node is None:
            return  # The agent registers the node first; until its object is seen, only resources could be checked.
        others = [one for one in self.active_pods() if one["metadata"]["uid"] != pod["metadata"]["uid"]]
        found = check_pod(
            pod,
            others,
            node,
            self._node.allocatable,
            pressures=self._context.pressures(),
            is_static=is_static(pod),
            unsafe_sysctls=self._node.unsafe_sysctls,
        )
        if found is None:
            record.is_admitted = True  # Before the file is written: the next pod must see this one.
            try:
                await asyncio.to_thread(record.allocation.admit, pod)
            except OSError as error:
                found = unexpected(error)
        if found is None:
            return
        message = f"Pod was rejected: {found.message}"
        self._recorder.record(pod, "Warning", found.reason, found.message)
        record.failure = PodFailure(found.reason, message, grace_seconds=0.0)

    async def _advance(self, pod: Object, record: PodRecord) -> float:
        try:
            self._resizer.decide(pod, record, self.active_pods())
            given = record.allocation.of_pod(pod)
            sandbox = await self._prepare(given, record)
            await self._resizer.apply(given, record, sandbox)
            return await self._run_containers(given, record, sandbox)
        except (MountFailed, SandboxFailed) as error:
            self._recorder.record(pod, "Warning", error.reason, str(error))
        except RuntimeFailure as error:
            _log.warning("pod %s/%s: %s", record.key.namespace, record.key.name, error)
        return _RETRY_SECONDS

    async def _prepare(self, pod: Object, record: PodRecord) -> SandboxStatus:
        """Make or refresh the volumes, and find or make the sandbox."""
        now = self._clock.monotonic()
        directory = self._node.directory_of(pod)
        shown = (pod["metadata"].get("labels"), pod["metadata"].get("annotations"))
        is_due = now - record.refreshed_at >= _REFRESH_SECONDS or record.refreshed_for != shown
        if record.volumes is None or is_due:
            fresh = record.volumes is None
            record.volumes = await set_up_volumes(directory / "volumes", self._node.fields_of(pod), self._objects)
            record.refreshed_at, record.refreshed_for = now, shown
            group = fs_group_of(pod)
            if fresh and group is not None:
                await asyncio.to_thread(give_volumes, record.volumes.owned, group)
        existing = await self._statuses.sandboxes(record)
        ready = next((one for one in existing if one.is_ready), None)
        if ready is not None:
            return ready
        if existing:
            self._recorder.record(
                pod, "Normal", "SandboxChanged", "Pod sandbox changed, it will be killed and re-created."
            )
            for one in existing:
                await record.close_probers()
                await self._runtime.remove_sandbox(one.id)
        config = sandbox_of(
            pod,
            record.volumes,
            attempt=len(existing),
            log_directory=str(directory / "logs"),
            resources=pod_resources(pod),
        )
        return await self._runtime.sandbox(await self._runtime.run_sandbox(config))

    async def _run_containers(self, pod: Object, record: PodRecord, sandbox: SandboxStatus) -> float:
        spec = pod["spec"]
        wait = _REFRESH_SECONDS
        for container in spec.get("initContainers") or ():
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
        for container in (*spec["containers"], *(spec.get("ephemeralContainers") or ())):
            wait = min(wait, (await self._run_container(pod, record, sandbox, container))[1])
        return wait

    async def _run_container(
        self, pod: Object, record: PodRecord, sandbox: SandboxStatus, container: Object
    ) -> tuple[ContainerStatus | None, float]:
        """Start a container if it is due. Return its status and when to look again."""
        name = container["name"]
        latest = await self._latest(sandbox.id, name)
        if latest is not None and latest.state is ContainerState.RUNNING:
            await self._watch_health(pod, record, sandbox, container, latest)
            return await self._runtime.container(latest.id), _REFRESH_SECONDS
        attempt = self._next_attempt(pod, name, latest)
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

    async def _restart_all(self, pod: Object, record: PodRecord, sandbox: SandboxStatus) -> float:
        """Stop every container, so that the pod starts again with its init containers, on the same volumes."""
        await record.close_probers()
        for one in await self._runtime.containers(sandbox.id):
            await self._runtime.stop_container(one.id, 0)
        await self._runtime.remove_sandbox(sandbox.id)
        self._context.enqueue(record.key)
        return _RETRY_SECONDS

    # Health

    async def _watch_health(
        self, pod: Object, record: PodRecord, sandbox: SandboxStatus, container: Object, status: ContainerStatus
    ) -> None:
        """Probe a running container, and kill it if a probe says so."""
        prober = record.probers.get(status.id)
        if prober is None:
            record.probers[status.id] = Prober(
                probe_target(sandbox, container, status.id),
                self._actions,
                self._clock,
                changed=lambda: self._context.enqueue(record.key),
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

    def _restart_delay(self, record: PodRecord, name: str, ended: ContainerStatus) -> float:
        back_off = record.back_offs.setdefault(name, BackOff())
        now = self._clock.monotonic()
        if ended.id not in record.ends_seen:
            record.ends_seen.add(ended.id)
            back_off.note_end(now, (ended.finished_at - (ended.started_at or ended.finished_at)) / 1e9)
        return back_off.remaining(now)

    def _note_crash_loop(self, pod: Object, record: PodRecord, name: str) -> None:
        text = f"back-off {record.back_offs[name].text} restarting failed container={name} pod={_pod_name(pod)}"
        record.waiting[name] = Waiting("CrashLoopBackOff", text)
        self._recorder.record(
            pod, "Warning", "BackOff", f"Back-off restarting failed container {name} in pod {_pod_name(pod)}"
        )

    def _next_attempt(self, pod: Object, name: str, latest: ContainerStatus | None) -> int:
        if latest is not None:
            return latest.config.attempt + 1
        statuses = pod.get("status") or {}
        for one in (*(statuses.get("containerStatuses") or ()), *(statuses.get("initContainerStatuses") or ())):
            if one["name"] == name and one.get("containerID"):
                return int(one.get("restartCount", 0)) + 1
        return 0

    def _seconds_to_deadline(self, pod: Object) -> float | None:
        """The seconds until the pod has run for its activeDeadlineSeconds; None without such a limit."""
        seconds, began = pod["spec"].get("activeDeadlineSeconds"), (pod.get("status") or {}).get("startTime")
        if seconds is None:
            return None
        if not began:
            return float(seconds)
        ran = (self._clock.now() - datetime.fromisoformat(began)).total_seconds()
        return float(seconds) - ran

    # The end

    async def _fail(self, pod: Object, record: PodRecord) -> None:
        """Stop the containers of a pod that the node ends, and write why."""
        assert record.failure is not None
        grace = record.failure.grace_seconds
        if grace is None:
            grace = float(pod["spec"].get("terminationGracePeriodSeconds", 30))
        await self._stop(pod, record, grace)
        await self._statuses.write(pod, record)

    async def _end(self, pod: Object, record: PodRecord) -> None:
        """Stop the containers with the grace period, write the last status, clean up, and delete the pod."""
        uid = pod["metadata"]["uid"]
        await self._stop(pod, record, float(pod["metadata"].get("deletionGracePeriodSeconds") or 0))
        await self._statuses.write(pod, record)
        await self._clean(record.key, uid)
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._client.delete(
                "v1/Pod", record.key.name, namespace=record.key.namespace, grace_seconds=0, uid=uid
            )

    async def _stop(self, pod: Object, record: PodRecord, grace: float) -> None:
        await record.close_probers()
        for sandbox in await self._statuses.sandboxes(record):
            await self._ends.stop_containers(pod, sandbox, grace)
            await self._runtime.stop_sandbox(sandbox.id)

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
                await self._runtime.remove_sandbox(sandbox.id)
        self._objects.forget(uid)
        self._pulls.forget(uid)
        await asyncio.to_thread(remove_tree, self._node.pods / uid)

    async def _latest(self, sandbox: str, name: str) -> ContainerStatus | None:
        found = [one for one in await self._runtime.containers(sandbox) if one.config.name == name]
        return max(found, key=lambda one: one.config.attempt, default=None)


def _after(containers: list[Object], one: Object) -> list[Object]:
    return containers[containers.index(one) + 1 :]


def _pod_name(pod: Object) -> str:
    metadata = pod["metadata"]
    return f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})"
