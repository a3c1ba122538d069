"""Starts one container of a pod: image, environment, mounts, process, and its hook after the start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import BinaryIO, Literal, cast

from pinnace.model.typed_objects import (
    Container,
    EphemeralContainer,
    Pod,
    Service,
)
from pinnace.node.agent.api_objects import ApiObjects
from pinnace.node.agent.containers.container_configs import ContainerInputs, container_of, mounts_of
from pinnace.node.agent.containers.env_files import EnvFiles
from pinnace.node.agent.containers.etc_files import add_etc_files
from pinnace.node.agent.containers.termination_messages import message_mount
from pinnace.node.agent.containers.variables import environment_of
from pinnace.node.agent.pod_fields import has_extended_resources
from pinnace.node.agent.pod_records import AgentNode, PodRecord
from pinnace.node.agent.probes.probes import Actions, ProbeTarget
from pinnace.node.errors import (
    ConfigRefused,
    ImageFailure,
    ImageInspectFailed,
    ImageNeverPull,
    ImagePullBackOff,
    InvalidImageName,
)
from pinnace.node.image_service import Image, PullProgress
from pinnace.node.images.pulls import Pulls, default_policy
from pinnace.node.images.references import parse_reference
from pinnace.node.plugins.container_devices import NO_EDITS, DeviceEdits, devices_for
from pinnace.node.plugins.devices import DeviceManager, DevicesUnavailable
from pinnace.node.runtime.runtime import ContainerState, ContainerStatus, Runtime, SandboxStatus
from pinnace.process.clock import AlarmClock
from pinnace.reconcile.events import EventRecorder

_HOOK_SECONDS = 30.0
_PROGRESS_SECONDS = 10.0
"""How often an Event says how far a pull has come."""


class ContainerStarter:
    def __init__(
        self,
        node: AgentNode,
        runtime: Runtime,
        pulls: Pulls,
        objects: ApiObjects,
        recorder: EventRecorder,
        services: Callable[[], list[Service]],
        *,
        devices: DeviceManager,
    ) -> None:
        self._node = node
        self._runtime = runtime
        self._pulls = pulls
        self._objects = objects
        self._recorder = recorder
        self._services = services
        self._devices = devices
        self._actions = Actions(runtime)

    async def start(
        self, pod: Pod, record: PodRecord, sandbox: SandboxStatus, container: Container, attempt: int
    ) -> ContainerStatus:
        """Return the status of the new container. Raise RuntimeFailure."""
        name = container["name"]
        image = await self.image(pod, record, container)
        facts = self._node.fields_of(pod, sandbox.addresses or self._node.host_ips)
        volumes = record.volumes
        assert volumes is not None

        async def open_file(volume: str, path: str) -> BinaryIO:
            if volume not in volumes.paths:
                raise ConfigRefused(f'cannot find the volume "{volume}" referenced by FileKeyRef')
            return await self._runtime.open_file(sandbox.id, volumes.paths[volume], path)

        environment = await environment_of(container, facts, self._objects, self._services(), EnvFiles(open_file))
        directory = self._node.directory_of(pod)
        images = await self._volume_images(pod, record, container)
        mounts = mounts_of(container, volumes, dict(environment), images)
        is_read_only = bool((container.get("securityContext") or {}).get("readOnlyRootFilesystem"))
        try:
            mounts = add_etc_files(
                directory / "etc", pod, facts, mounts, dns_address=self._node.dns_address, is_read_only=is_read_only
            )
            mounts.append(message_mount(directory, container, attempt))
        except OSError as error:
            raise ConfigRefused(f"the files of container {name} cannot be written: {error}") from error
        devices = await self._prepare_devices(pod, container)
        inputs = ContainerInputs(
            attempt=attempt,
            environment=[*(pair for pair in devices.environment if pair[0] not in dict(environment)), *environment],
            mounts=[*mounts, *devices.mounts],
            annotations=devices.annotations,
            cdi_devices=devices.cdi_devices,
            target=await self._target(sandbox, container),
            resources=self._node.resources.limits_of(pod, container),
            seccomp_profiles=str(self._node.seccomp_profiles),
        )
        config = container_of(pod, container, image, inputs)
        for old in await self._runtime.containers(sandbox.id):
            if old.config.name == name and old.config.attempt < attempt - 1:
                await self._runtime.remove_container(old.id)
        self._node.resources.note_start(pod, container)
        made = await self._runtime.create_container(sandbox.id, config)
        record.allocation.actual[name] = container.get("resources") or {}
        self._recorder.record(pod, "Normal", "Created", f"Container created: {name}")
        await self._runtime.start_container(made)
        self._recorder.record(pod, "Normal", "Started", f"Container started: {name}")
        status = await self._runtime.container(made)
        await self._run_post_start(pod, sandbox, container, made)
        return status

    async def _prepare_devices(self, pod: Pod, container: Container) -> DeviceEdits:
        """Raise ConfigRefused."""
        if not has_extended_resources(pod):
            return NO_EDITS
        try:
            responses = await self._devices.before_start(pod, container)
        except DevicesUnavailable as error:
            raise ConfigRefused(str(error)) from error
        return await asyncio.to_thread(devices_for, responses) if responses else NO_EDITS

    async def image(self, pod: Pod, record: PodRecord, container: Container) -> Image:
        """Return the image of a container, pulled if its policy says so. Raise ImageFailure."""
        image = await self._pull(pod, container["image"], container.get("imagePullPolicy"))
        record.images[container["name"]] = next(iter(image.digests), image.id)
        return image

    async def _volume_images(self, pod: Pod, record: PodRecord, container: Container) -> dict[str, str]:
        """Pull the images of the image volumes that a container mounts, and return their ids by volume."""
        assert record.volumes is not None
        images = {}
        for mount in container.get("volumeMounts") or ():
            stated = record.volumes.images.get(mount["name"])
            if stated is not None and stated.get("reference"):
                images[mount["name"]] = (await self._pull(pod, stated["reference"], stated.get("pullPolicy"))).id
        return images

    async def _pull(self, pod: Pod, name: str, policy: str | None) -> Image:
        """Return an image, with Events about its way. Raise ImageFailure."""
        events = PullEvents(self._recorder, self._objects.clock, pod, name)
        try:
            credentials = [*await self._objects.pull_credentials(pod, name)]
            if self._node.find_credentials is not None:
                credentials += await self._node.find_credentials(parse_reference(name).name)
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

    async def _target(self, sandbox: SandboxStatus, container: Container) -> str:
        """The id of the running container whose processes an ephemeral container sees; empty for none."""
        wanted = cast(EphemeralContainer, container).get("targetContainerName")
        if not wanted:
            return ""
        instances = [
            candidate for candidate in await self._runtime.containers(sandbox.id) if candidate.config.name == wanted
        ]
        latest = max(instances, key=lambda candidate: candidate.config.attempt, default=None)
        return latest.id if latest is not None and latest.state is ContainerState.RUNNING else ""

    async def _run_post_start(self, pod: Pod, sandbox: SandboxStatus, container: Container, made: str) -> None:
        hook = (container.get("lifecycle") or {}).get("postStart")
        if hook:
            outcome = await self._actions.run(hook, probe_target(sandbox, container, made), _HOOK_SECONDS)
            if not outcome.is_success:
                self._recorder.record(pod, "Warning", "FailedPostStartHook", f"PostStartHook failed: {outcome.message}")
                await self._runtime.stop_container(made, 0)


def probe_target(sandbox: SandboxStatus, container: Container, made: str) -> ProbeTarget:
    address = sandbox.addresses[0] if sandbox.addresses else "127.0.0.1"
    return ProbeTarget(sandbox.id, made, container, address)


class PullEvents:
    """A `PullListener` that records Events about one image of a pod."""

    def __init__(self, recorder: EventRecorder, clock: AlarmClock, pod: Pod, image: str) -> None:
        self._recorder = recorder
        self._clock = clock
        self._pod = pod
        self._image = image
        self._began = clock.monotonic()
        self._reported = self._began
        self._layers: dict[str, PullProgress] = {}

    def begin(self) -> None:
        self._record("Pulling", f'Pulling image "{self._image}"')

    def __call__(self, progress: PullProgress, /) -> None:
        self._layers[progress.layer] = progress
        now = self._clock.monotonic()
        if now - self._reported < _PROGRESS_SECONDS:
            return
        self._reported = now
        done = sum(layer.done_bytes for layer in self._layers.values()) / 1e6
        total = sum(layer.total_bytes for layer in self._layers.values()) / 1e6
        self._record("Pulling", f'Pulling image "{self._image}": {done:.1f} of {total:.1f} MB of its layers so far')

    def end(self, image: Image) -> None:
        passed = int((self._clock.monotonic() - self._began) * 1000)
        took = f"{passed / 1000:g}s" if passed >= 1000 else f"{passed}ms"
        self._record(
            "Pulled",
            f'Successfully pulled image "{self._image}" in {took} ({took} including waiting). '
            f"Image size: {image.size_bytes} bytes.",
        )

    def already_present(self) -> None:
        self._record("Pulled", f'Container image "{self._image}" already present on machine')

    def fail(self, error: ImageFailure) -> None:
        """Report a failure as kubelet does: what happened to the image, then the reason of the container."""
        match error:
            case ImagePullBackOff():
                self._record("BackOff", f'Back-off pulling image "{self._image}"')
            case ImageNeverPull():
                self._record(error.reason, str(error), "Warning")
            case InvalidImageName():
                self._record("InspectFailed", str(error), "Warning")
            case ImageInspectFailed():
                self._record("InspectFailed", f'Failed to inspect image "{self._image}": {error}', "Warning")
            case _:
                self._record("Failed", f'Failed to pull image "{self._image}": {error}', "Warning")
        self._record("Failed", f"Error: {error.reason}", "Warning")

    def _record(self, reason: str, message: str, kind: Literal["Normal", "Warning"] = "Normal") -> None:
        self._recorder.record(self._pod, kind, reason, message)
