"""Brings one pod to what its spec asks for: volumes, sandbox, init containers, containers, status, and its end.

`sync` is level-triggered: it looks at the pod and at the runtime, takes the steps that are due, and writes the status.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.clock import AlarmClock, to_rfc3339
from pinnace.model.objects import Key, Object, key_of
from pinnace.model.tasks import Tasks
from pinnace.node.agent.api_objects import ApiObjects
from pinnace.node.agent.back_off import BackOff
from pinnace.node.agent.container_configs import container_of, mounts_of, sandbox_of
from pinnace.node.agent.etc_files import add_etc_files
from pinnace.node.agent.pod_status import Observed, Waiting, status_of
from pinnace.node.agent.probes import Actions, Prober, ProbeTarget
from pinnace.node.agent.variables import PodFields, all_containers, environment_of
from pinnace.node.agent.volumes import MountFailed, PodVolumes, fs_group_of, give_to_group, set_up_volumes
from pinnace.node.images.pulls import Pulls, default_policy
from pinnace.node.runtime.embedded.root_file_systems import remove_tree
from pinnace.node.runtime.errors import ImageFailure, RuntimeFailure, SandboxFailed, StartFailed
from pinnace.node.runtime.runtime import ContainerState, ContainerStatus, Image, Runtime, SandboxStatus
from pinnace.reconcile.events import EventRecorder

_RETRY_SECONDS = 2.0
_REFRESH_SECONDS = 60.0
"""How often the ConfigMaps, Secrets and tokens in the volumes of a running pod are read again."""
_HOOK_SECONDS = 30.0
_GRACE_CHECK_SECONDS = 0.25
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentNode:
    """The node as its pods see it."""

    name: str
    host_ip: str
    directory: Path
    allocatable: Mapping[str, str]


@dataclass(slots=True)
class PodRecord:
    """The memory of the agent between two calls of `sync` for a pod. All of it may be lost with the agent."""

    key: Key
    volumes: PodVolumes | None = None
    refreshed_at: float = 0.0
    waiting: dict[str, Waiting] = field(default_factory=dict)
    back_offs: dict[str, BackOff] = field(default_factory=dict)
    ends_seen: set[str] = field(default_factory=set)
    probers: dict[str, Prober] = field(default_factory=dict)
    images: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """The agent, as its pod workers need it."""

    enqueue: Callable[[Key], None]
    """Have `sync` called for a pod."""
    services: Callable[[], list[Object]]
    current: Callable[[Key], Object | None]
    """Returns a pod as it is now, while a call of `sync` for an older version goes on."""


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
        self._enqueue = context.enqueue
        self._services = context.services
        self._current = context.current
        self._objects = ApiObjects(client)
        self._actions = Actions(runtime)
        self._records: dict[str, PodRecord] = {}

    async def sync(self, key: Key, pod: Object | None) -> float:
        """Take the steps that are due. Return the seconds after which to look again; 0 for not without a change."""
        uid = pod["metadata"]["uid"] if pod is not None else ""
        for sandbox in await self._runtime.sandboxes(*key):
            if sandbox.config.uid != uid:
                await self._clean(key, sandbox.config.uid)
        if pod is None:
            return 0.0
        record = self._records.setdefault(uid, PodRecord(key))
        if pod["metadata"].get("deletionTimestamp"):
            await self._end(pod, record)
            return 0.0
        if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            for one in await self._sandboxes(key, uid):
                await self._runtime.stop_sandbox(one.id)
            return 0.0
        record.waiting.clear()
        wait = await self._advance(pod, record)
        await self._write_status(pod, record)
        return wait

    async def close(self) -> None:
        for record in self._records.values():
            for prober in record.probers.values():
                await prober.close()

    def known_keys(self) -> set[Key]:
        return {record.key for record in self._records.values()}

    # Towards running

    async def _advance(self, pod: Object, record: PodRecord) -> float:
        try:
            sandbox = await self._prepare(pod, record)
            return await self._run_containers(pod, record, sandbox)
        except (MountFailed, SandboxFailed) as error:
            self._recorder.record(pod, "Warning", error.reason, str(error))
        except RuntimeFailure as error:
            _log.warning("pod %s/%s: %s", record.key.namespace, record.key.name, error)
        return _RETRY_SECONDS

    async def _prepare(self, pod: Object, record: PodRecord) -> SandboxStatus:
        """Make or refresh the volumes, and find or make the sandbox."""
        now = self._clock.monotonic()
        if record.volumes is None or now - record.refreshed_at >= _REFRESH_SECONDS:
            fresh = record.volumes is None
            record.volumes = await set_up_volumes(self._directory(pod) / "volumes", self._facts(pod), self._objects)
            record.refreshed_at = now
            group = fs_group_of(pod)
            if fresh and group is not None:
                own = [path for path in record.volumes.paths.values() if path.startswith(str(self._node.directory))]
                with contextlib.suppress(PermissionError):
                    await asyncio.to_thread(give_to_group, own, group)
        existing = await self._sandboxes(record.key, pod["metadata"]["uid"])
        ready = next((one for one in existing if one.is_ready), None)
        if ready is not None:
            return ready
        if existing:
            self._recorder.record(
                pod, "Normal", "SandboxChanged", "Pod sandbox changed, it will be killed and re-created."
            )
            for one in existing:
                await self._close_probers(record)
                await self._runtime.remove_sandbox(one.id)
        config = sandbox_of(
            pod, record.volumes, attempt=len(existing), log_directory=str(self._directory(pod) / "logs")
        )
        return await self._runtime.sandbox(await self._runtime.run_sandbox(config))

    async def _run_containers(self, pod: Object, record: PodRecord, sandbox: SandboxStatus) -> float:
        spec = pod["spec"]
        wait = _REFRESH_SECONDS
        for container in spec.get("initContainers") or ():
            is_sidecar = container.get("restartPolicy") == "Always"
            policy = "Always" if is_sidecar else _init_policy(spec)
            status, delay = await self._run_container(pod, record, sandbox, container, policy)
            wait = min(wait, delay)
            if is_sidecar:
                prober = record.probers.get(status.id) if status is not None else None
                is_done = prober is not None and prober.results.is_started
            else:
                is_done = status is not None and status.state is ContainerState.EXITED and status.exit_code == 0
            if not is_done:
                for later in (*_after(spec["initContainers"], container), *spec["containers"]):
                    record.waiting.setdefault(later["name"], Waiting("PodInitializing"))
                return wait
        policy = spec.get("restartPolicy", "Always")
        for container in spec["containers"]:
            wait = min(wait, (await self._run_container(pod, record, sandbox, container, policy))[1])
        for container in spec.get("ephemeralContainers") or ():
            wait = min(wait, (await self._run_container(pod, record, sandbox, container, "Never"))[1])
        return wait

    async def _run_container(
        self, pod: Object, record: PodRecord, sandbox: SandboxStatus, container: Object, policy: str
    ) -> tuple[ContainerStatus | None, float]:
        """Start a container if it is due. Return its status and when to look again."""
        name = container["name"]
        latest = await self._latest(sandbox.id, name)
        if latest is not None and latest.state is ContainerState.RUNNING:
            await self._watch_health(pod, record, sandbox, container, latest)
            return await self._runtime.container(latest.id), _REFRESH_SECONDS
        attempt = self._next_attempt(pod, name, latest)
        if latest is not None and latest.state is ContainerState.EXITED:
            await self._close_prober(record, latest.id)
            restarts = policy == "Always" or (policy == "OnFailure" and latest.exit_code != 0)
            if not restarts or (policy == "Init" and latest.exit_code == 0):
                return latest, _REFRESH_SECONDS
            delay = self._restart_delay(record, name, latest)
            if delay > 0:
                self._note_crash_loop(pod, record, name)
                return latest, delay
        try:
            return await self._start(pod, record, sandbox, container, attempt), _REFRESH_SECONDS
        except ImageFailure as error:
            record.waiting[name] = Waiting(error.reason, str(error))
            self._recorder.record(
                pod, "Warning" if error.reason != "ImagePullBackOff" else "Normal", _event(error), str(error)
            )
            return latest, max(1.0, self._pulls.retry_in(container["image"]))
        except StartFailed as error:
            self._recorder.record(pod, "Warning", "Failed", f"Error: {error}")
            return await self._latest(sandbox.id, name), 0.1
        except RuntimeFailure as error:
            record.waiting[name] = Waiting(error.reason, str(error))
            self._recorder.record(pod, "Warning", "Failed", f"Error: {error}")
            return latest, _RETRY_SECONDS

    async def _start(
        self, pod: Object, record: PodRecord, sandbox: SandboxStatus, container: Object, attempt: int
    ) -> ContainerStatus:
        name = container["name"]
        image = await self._image(pod, record, container)
        facts = self._facts(pod, sandbox.addresses[0] if sandbox.addresses else self._node.host_ip)
        environment = await environment_of(container, facts, self._objects, self._services())
        assert record.volumes is not None
        mounts = mounts_of(container, record.volumes, dict(environment))
        mounts = add_etc_files(self._directory(pod) / "etc", pod, facts, mounts)
        target = await self._target(sandbox, container)
        config = container_of(
            pod, container, image, attempt=attempt, environment=environment, mounts=mounts, target=target
        )
        for old in await self._runtime.containers(sandbox.id):
            if old.config.name == name and old.config.attempt < attempt - 1:
                await self._runtime.remove_container(old.id)
        made = await self._runtime.create_container(sandbox.id, config)
        self._recorder.record(pod, "Normal", "Created", f"Container created: {name}")
        await self._runtime.start_container(made)
        self._recorder.record(pod, "Normal", "Started", f"Container started: {name}")
        status = await self._runtime.container(made)
        await self._run_post_start(pod, sandbox, container, made)
        await self._watch_health(pod, record, sandbox, container, status)
        return status

    async def _image(self, pod: Object, record: PodRecord, container: Object) -> Image:
        name = container["image"]
        policy = container.get("imagePullPolicy") or default_policy(name)
        credentials = await self._objects.pull_credentials(pod, name)
        image, was_pulled = await self._pulls.get(name, policy, credentials)
        record.images[container["name"]] = next(iter(image.digests), image.id)
        text = (
            f'Successfully pulled image "{name}"'
            if was_pulled
            else f'Container image "{name}" already present on machine'
        )
        self._recorder.record(pod, "Normal", "Pulled", text)
        return image

    async def _target(self, sandbox: SandboxStatus, container: Object) -> str:
        wanted = container.get("targetContainerName")
        found = await self._latest(sandbox.id, wanted) if wanted else None
        return found.id if found is not None and found.state is ContainerState.RUNNING else ""

    async def _run_post_start(self, pod: Object, sandbox: SandboxStatus, container: Object, made: str) -> None:
        hook = (container.get("lifecycle") or {}).get("postStart")
        if hook:
            outcome = await self._actions.run(hook, self._probe_target(sandbox, container, made), _HOOK_SECONDS)
            if not outcome.is_success:
                self._recorder.record(pod, "Warning", "FailedPostStartHook", f"PostStartHook failed: {outcome.message}")
                await self._runtime.stop_container(made, 0)

    # Health

    async def _watch_health(
        self, pod: Object, record: PodRecord, sandbox: SandboxStatus, container: Object, status: ContainerStatus
    ) -> None:
        """Probe a running container, and kill it if a probe says so."""
        prober = record.probers.get(status.id)
        if prober is None:
            record.probers[status.id] = Prober(
                self._probe_target(sandbox, container, status.id),
                self._actions,
                self._clock,
                changed=lambda: self._enqueue(record.key),
                report=lambda reason, message: self._recorder.record(pod, "Warning", reason, message),
            )
        elif prober.results.unhealthy:
            kind = prober.results.unhealthy.removesuffix("Probe")
            text = f"Container {container['name']} failed {kind} probe, will be restarted"
            self._recorder.record(pod, "Normal", "Killing", text)
            stated = container.get(prober.results.unhealthy) or {}
            grace = stated.get("terminationGracePeriodSeconds", pod["spec"].get("terminationGracePeriodSeconds", 30))
            await self._runtime.stop_container(status.id, grace)
            self._enqueue(record.key)

    def _probe_target(self, sandbox: SandboxStatus, container: Object, made: str) -> ProbeTarget:
        address = sandbox.addresses[0] if sandbox.addresses else "127.0.0.1"
        return ProbeTarget(sandbox.id, made, container, address)

    async def _close_prober(self, record: PodRecord, container: str) -> None:
        prober = record.probers.pop(container, None)
        if prober is not None:
            await prober.close()

    async def _close_probers(self, record: PodRecord) -> None:
        for container in list(record.probers):
            await self._close_prober(record, container)

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

    # The end

    async def _end(self, pod: Object, record: PodRecord) -> None:
        """Stop the containers with the grace period, write the last status, clean up, and delete the pod."""
        uid = pod["metadata"]["uid"]
        grace = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        await self._close_probers(record)
        for sandbox in await self._sandboxes(record.key, uid):
            await self._stop_containers(pod, sandbox, grace)
            await self._runtime.stop_sandbox(sandbox.id)
        await self._write_status(pod, record)
        await self._clean(record.key, uid)
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._client.delete(
                "v1/Pod", record.key.name, namespace=record.key.namespace, grace_seconds=0, uid=uid
            )

    async def _stop_containers(self, pod: Object, sandbox: SandboxStatus, grace: float) -> None:
        containers = {one["name"]: one for one in all_containers(pod)}
        sidecars = {one["name"] for one in pod["spec"].get("initContainers") or ()}
        running = [one for one in await self._runtime.containers(sandbox.id) if one.state is ContainerState.RUNNING]
        for group in (
            [one for one in running if one.config.name not in sidecars],
            [one for one in running if one.config.name in sidecars],
        ):
            async with asyncio.TaskGroup() as tasks:
                for one in group:
                    tasks.create_task(self._stop(pod, sandbox, containers.get(one.config.name, {}), one, grace))

    async def _stop(
        self, pod: Object, sandbox: SandboxStatus, container: Object, status: ContainerStatus, grace: float
    ) -> None:
        self._recorder.record(pod, "Normal", "Killing", f"Stopping container {status.config.name}")
        began = self._clock.monotonic()
        hook = (container.get("lifecycle") or {}).get("preStop")
        if hook and grace:
            outcome = await self._actions.run(hook, self._probe_target(sandbox, container, status.id), grace)
            if not outcome.is_success:
                self._recorder.record(pod, "Warning", "FailedPreStopHook", f"PreStopHook failed: {outcome.message}")
        left = max(2.0, grace - (self._clock.monotonic() - began)) if grace else 0.0
        async with Tasks(expected=()) as tasks:
            stopping = tasks.start(self._runtime.stop_container(status.id, left))
            while not stopping.done():
                await asyncio.wait([stopping], timeout=_GRACE_CHECK_SECONDS)
                shorter = self._grace_now(pod)
                if shorter < grace and not stopping.done():
                    stopping.cancel()
                    grace = shorter
                    left = max(0.0, grace - (self._clock.monotonic() - began))
                    stopping = tasks.start(self._runtime.stop_container(status.id, left))
            await stopping

    def _grace_now(self, pod: Object) -> float:
        """The grace period that the pod has now: a further delete may have shortened it, or removed the pod."""
        current = self._current(key_of(pod))
        if current is None or current["metadata"]["uid"] != pod["metadata"]["uid"]:
            return 0.0
        return float(current["metadata"].get("deletionGracePeriodSeconds") or 0)

    async def _clean(self, key: Key, uid: str) -> None:
        """Remove everything of a pod from this node."""
        record = self._records.pop(uid, None)
        if record is not None:
            await self._close_probers(record)
        for sandbox in await self._sandboxes(key, uid):
            await self._runtime.remove_sandbox(sandbox.id)
        self._objects.forget(uid)
        await asyncio.to_thread(remove_tree, self._node.directory / "pods" / uid)

    # Status

    async def _write_status(self, pod: Object, record: PodRecord) -> None:
        seen = await self._observe(pod, record)
        now = to_rfc3339(self._clock.now())
        status = status_of(pod, seen, now=now, host_ip=self._node.host_ip)
        old = pod.get("status") or {}
        if all(old.get(name) == value for name, value in status.items()):
            return
        key = key_of(pod)
        patch: Object = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._client.patch("v1/Pod", key.name, patch, namespace=key.namespace, subresource="status")

    async def _observe(self, pod: Object, record: PodRecord) -> Observed:
        sandboxes = await self._sandboxes(record.key, pod["metadata"]["uid"])
        latest: dict[str, ContainerStatus] = {}
        previous: dict[str, ContainerStatus] = {}
        for sandbox in sandboxes:
            for one in sorted(await self._runtime.containers(sandbox.id), key=lambda one: one.config.attempt):
                name = one.config.name
                if name in latest:
                    previous[name] = latest[name]
                latest[name] = one
        results = {name: record.probers[one.id].results for name, one in latest.items() if one.id in record.probers}
        return Observed(
            latest=latest,
            previous=previous,
            waiting=record.waiting,
            ready={name: one.is_ready for name, one in results.items()},
            started={name: one.is_started for name, one in results.items()},
            images={name: one.config.image for name, one in latest.items()} | record.images,
            has_sandbox=any(one.is_ready for one in sandboxes),
            address=next((one.addresses[0] for one in sandboxes if one.addresses), ""),
        )

    async def _sandboxes(self, key: Key, uid: str) -> list[SandboxStatus]:
        return [one for one in await self._runtime.sandboxes(*key) if one.config.uid == uid]

    async def _latest(self, sandbox: str, name: str) -> ContainerStatus | None:
        found = [one for one in await self._runtime.containers(sandbox) if one.config.name == name]
        return max(found, key=lambda one: one.config.attempt, default=None)

    def _directory(self, pod: Object) -> Path:
        return self._node.directory / "pods" / str(pod["metadata"]["uid"])

    def _facts(self, pod: Object, address: str = "") -> PodFields:
        return PodFields(
            pod,
            node=self._node.name,
            host_ip=self._node.host_ip,
            pod_ip=address or (pod.get("status") or {}).get("podIP", ""),
            allocatable=self._node.allocatable,
        )


def _init_policy(spec: Object) -> str:
    """Init containers that end well are never restarted."""
    return "Never" if spec.get("restartPolicy") == "Never" else "OnFailure"


def _after(containers: list[Object], one: Object) -> list[Object]:
    return containers[containers.index(one) + 1 :]


def _event(error: ImageFailure) -> str:
    return {"ImagePullBackOff": "BackOff", "InvalidImageName": "InspectFailed"}.get(error.reason, "Failed")


def _pod_name(pod: Object) -> str:
    metadata = pod["metadata"]
    return f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})"
