"""Starts one container of a pod: image, environment, mounts, process, and its hook after the start."""

from __future__ import annotations

from collections.abc import Callable

from pinnace.model.objects import Object
from pinnace.node.agent.api_objects import ApiObjects
from pinnace.node.agent.container_configs import ContainerInputs, container_of, mounts_of
from pinnace.node.agent.etc_files import add_etc_files
from pinnace.node.agent.pod_records import AgentNode, PodRecord
from pinnace.node.agent.probes import Actions, ProbeTarget
from pinnace.node.agent.pull_events import PullEvents
from pinnace.node.agent.termination_messages import message_mount
from pinnace.node.agent.variables import environment_of
from pinnace.node.images.pulls import Pulls, default_policy
from pinnace.node.resources.amounts import container_resources
from pinnace.node.runtime.errors import ImageFailure, InvalidImageName
from pinnace.node.runtime.runtime import ContainerState, ContainerStatus, Image, Runtime, SandboxStatus
from pinnace.reconcile.events import EventRecorder

_HOOK_SECONDS = 30.0


class ContainerStarter:
    def __init__(
        self,
        node: AgentNode,
        runtime: Runtime,
        pulls: Pulls,
        objects: ApiObjects,
        recorder: EventRecorder,
        services: Callable[[], list[Object]],
    ) -> None:
        self._node = node
        self._runtime = runtime
        self._pulls = pulls
        self._objects = objects
        self._recorder = recorder
        self._services = services
        self._actions = Actions(runtime)

    async def start(
        self, pod: Object, record: PodRecord, sandbox: SandboxStatus, container: Object, attempt: int
    ) -> ContainerStatus:
        """Return the status of the new container. Raise RuntimeFailure."""
        name = container["name"]
        image = await self.image(pod, record, container)
        facts = self._node.fields_of(pod, sandbox.addresses or self._node.host_ips)
        environment = await environment_of(container, facts, self._objects, self._services())
        assert record.volumes is not None
        directory = self._node.directory_of(pod)
        images = await self._volume_images(pod, record, container)
        mounts = mounts_of(container, record.volumes, dict(environment), images)
        mounts = add_etc_files(directory / "etc", pod, facts, mounts, dns_address=self._node.dns_address)
        mounts.append(message_mount(directory, container, attempt))
        inputs = ContainerInputs(
            attempt=attempt,
            environment=environment,
            mounts=mounts,
            target=await self._target(sandbox, container),
            resources=container_resources(pod, container, self._node.memory_bytes),
        )
        config = container_of(pod, container, image, inputs)
        for old in await self._runtime.containers(sandbox.id):
            if old.config.name == name and old.config.attempt < attempt - 1:
                await self._runtime.remove_container(old.id)
        made = await self._runtime.create_container(sandbox.id, config)
        record.allocation.actual[name] = container.get("resources") or {}
        self._recorder.record(pod, "Normal", "Created", f"Container created: {name}")
        await self._runtime.start_container(made)
        self._recorder.record(pod, "Normal", "Started", f"Container started: {name}")
        status = await self._runtime.container(made)
        await self._run_post_start(pod, sandbox, container, made)
        return status

    async def image(self, pod: Object, record: PodRecord, container: Object) -> Image:
        """Return the image of a container, pulled if its policy says so. Raise ImageFailure."""
        image = await self._pull(pod, container["image"], container.get("imagePullPolicy"))
        record.images[container["name"]] = next(iter(image.digests), image.id)
        return image

    async def _volume_images(self, pod: Object, record: PodRecord, container: Object) -> dict[str, str]:
        """Pull the images of the image volumes that a container mounts, and return their ids by volume."""
        assert record.volumes is not None
        found = {}
        for mount in container.get("volumeMounts") or ():
            stated = record.volumes.images.get(mount["name"])
            if stated is not None and stated.get("reference"):
                found[mount["name"]] = (await self._pull(pod, stated["reference"], stated.get("pullPolicy"))).id
        return found

    async def _pull(self, pod: Object, name: str, policy: str | None) -> Image:
        """Return an image, with Events about its way. Raise ImageFailure."""
        events = PullEvents(self._recorder, self._objects.clock, pod, name)
        try:
            credentials = await self._objects.pull_credentials(pod, name)
            image, was_pulled = await self._pulls.get(
                name, policy or default_policy(name), credentials, events, pod=pod["metadata"]["uid"]
            )
        except ImageFailure as error:
            if isinstance(error, InvalidImageName):
                error.args = (f'Failed to apply default image tag "{name}": {error}',)
            events.fail(error)
            raise
        if was_pulled:
            events.end(image)
        else:
            events.already_present()
        return image

    async def _target(self, sandbox: SandboxStatus, container: Object) -> str:
        """The id of the running container whose processes an ephemeral container sees; empty for none."""
        wanted = container.get("targetContainerName")
        if not wanted:
            return ""
        found = [one for one in await self._runtime.containers(sandbox.id) if one.config.name == wanted]
        latest = max(found, key=lambda one: one.config.attempt, default=None)
        return latest.id if latest is not None and latest.state is ContainerState.RUNNING else ""

    async def _run_post_start(self, pod: Object, sandbox: SandboxStatus, container: Object, made: str) -> None:
        hook = (container.get("lifecycle") or {}).get("postStart")
        if hook:
            outcome = await self._actions.run(hook, probe_target(sandbox, container, made), _HOOK_SECONDS)
            if not outcome.is_success:
                self._recorder.record(pod, "Warning", "FailedPostStartHook", f"PostStartHook failed: {outcome.message}")
                await self._runtime.stop_container(made, 0)


def probe_target(sandbox: SandboxStatus, container: Object, made: str) -> ProbeTarget:
    address = sandbox.addresses[0] if sandbox.addresses else "127.0.0.1"
    return ProbeTarget(sandbox.id, made, container, address)
