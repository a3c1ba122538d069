"""A runtime and its images without processes: the agent under test, and under the eye of a tool, starts pods in it.

A container runs until the test ends it, or until the agent stops it. Output, commands, ports and usage are what the
test states, and every operation can fail or hang. Logs and the directory in memory are files below `directory`: the
agent reads and writes them itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from pinnace.model.node_connections import CommandStreams
from pinnace.node.errors import ImageFailure, InvalidImageName, NotThere, RuntimeFailure, StartFailed
from pinnace.node.image_service import Image, PullObserver, RegistryCredentials
from pinnace.node.machine.regular_files import open_regular_below
from pinnace.node.runtime.event_feed import EventFeed
from pinnace.node.runtime.runtime import (
    ContainerConfig,
    ContainerEvent,
    ContainerState,
    ContainerStats,
    ContainerStatus,
    DiskUsage,
    ExecResult,
    MemoryDirectory,
    Resources,
    Runtime,
    RuntimeStatus,
    SandboxConfig,
    SandboxStatus,
)
from pinnace.process.byte_streams import ByteWriter, Duplex
from pinnace.process.clock import AlarmClock
from pinnace.process.tasks import Tasks

TERMINATED, KILLED = 143, 137
"""The exit codes of a process that SIGTERM or SIGKILL has ended."""


@dataclass(slots=True)
class Interference:
    """Changes an operation within a block of `failing` or `hanging`."""

    operation: str
    pod: str
    error: Exception | None
    """None lets the calls wait until the block ends."""
    hits: int = 0
    """The calls that it has met."""
    is_over: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class _Container:
    status: ContainerStatus
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    attached: list[ByteWriter] = field(default_factory=list)


class InMemoryRuntime:
    """A `Runtime`. The fields that are no methods belong to the test."""

    def __init__(self, directory: Path, clock: AlarmClock) -> None:
        self._clock = clock
        self._directory = directory
        self._sandboxes: dict[str, SandboxStatus] = {}
        self._containers: dict[str, _Container] = {}
        self._feed = EventFeed()
        self._interferences: list[Interference] = []
        self._tasks = Tasks()
        self._memory: MemoryDirectory | None = None
        self._started_sandboxes = 0
        self.calls: list[str] = []
        """The operations that were called, in order."""
        self.exit_codes: dict[str, list[int]] = {}
        """The exit codes of the next starts of containers, by name. A container without one runs on."""
        self.stubborn: set[str] = set()
        """The names of the containers that ignore their stop signal."""
        self.run_command: Callable[[ContainerStatus, Sequence[str]], ExecResult] = _succeed
        """Returns the outcome of a command in a running container."""
        self.servers: dict[int, Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]] = {}
        """Serve the connections to a port of a pod. Nothing listens on other ports."""
        self.usage: dict[str, ContainerStats] = {}
        """By the name of the container."""
        self.disk = DiskUsage(files={}, layers={}, cpu_seconds=0.0)
        """The disk space of each pod, with its layers by the names of the containers."""
        self.is_network_ready = True

    # For tests

    @contextlib.contextmanager
    def failing(self, operation: str, error: Exception, *, pod: str = "") -> Iterator[Interference]:
        """Raise an error in place of an operation within a block: for every pod, or for that with this name."""
        with self._meeting(Interference(_checked(operation), pod, error)) as interference:
            yield interference

    @contextlib.contextmanager
    def hanging(self, operation: str, *, pod: str = "") -> Iterator[Interference]:
        """Let the calls of an operation wait within a block. They go on when it ends."""
        with self._meeting(Interference(_checked(operation), pod, None)) as interference:
            yield interference

    @contextlib.contextmanager
    def _meeting(self, interference: Interference) -> Iterator[Interference]:
        self._interferences.append(interference)
        try:
            yield interference
        finally:
            self._interferences.remove(interference)
            interference.is_over.set()

    def find(self, pod: str, container: str) -> ContainerStatus:
        """Return the latest container with this name of a pod. Raise NotThere."""
        statuses = [known.status for known in self._containers.values()]
        matching = [
            status
            for status in statuses
            if status.config.name == container and self._sandboxes[status.sandbox].config.name == pod
        ]
        if not matching:
            raise NotThere(f"pod {pod} has no container {container}")
        return max(matching, key=lambda status: status.config.attempt)

    def end_container(self, container: str, exit_code: int, *, reason: str = "", message: str = "") -> None:
        """End the process of a running container by itself."""
        known = self._known(container)
        if known.status.state is not ContainerState.RUNNING:
            raise RuntimeFailure(f"container {known.status.config.name} does not run: it is {known.status.state}")
        self._finish(known, exit_code, reason, message)

    def lose_sandbox(self, sandbox: str) -> None:
        """End a sandbox by itself, as when its processes are killed on the machine."""
        self._end_sandbox(sandbox, KILLED)
        self._feed.publish(ContainerEvent(sandbox))

    def print(self, container: str, text: str) -> None:
        """Write lines to the standard output of a container: to its log, and to the streams attached to it."""
        known = self._known(container)
        moment = self._clock.now().strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
        with open(known.status.log_file, "a", encoding="utf-8") as log:
            log.writelines(f"{moment} stdout F {line}\n" for line in text.splitlines())
        for writer in known.attached:
            writer.write(text.encode())

    async def close(self) -> None:
        """End the connections to pods."""
        await self._tasks.close()

    # The contract

    async def status(self) -> RuntimeStatus:
        await self._enter("status")
        return RuntimeStatus(
            "memory",
            "1",
            is_network_ready=self.is_network_ready,
            has_user_namespaces=True,
            has_supplemental_groups=True,
        )

    async def run_sandbox(self, config: SandboxConfig) -> str:
        await self._enter("run_sandbox", config.name)
        self._started_sandboxes += 1
        address = f"10.244.{self._started_sandboxes >> 8 & 255}.{self._started_sandboxes & 255}"
        made = SandboxStatus(
            id=secrets.token_hex(32),
            config=config,
            created_at=self._now(),
            is_ready=True,
            addresses=() if config.host_network else (address,),
        )
        self._sandboxes[made.id] = made
        return made.id

    async def stop_sandbox(self, sandbox: str) -> None:
        await self._enter("stop_sandbox", self._pod_of(sandbox))
        if sandbox in self._sandboxes:
            self._end_sandbox(sandbox, KILLED)

    async def remove_sandbox(self, sandbox: str) -> None:
        await self._enter("remove_sandbox", self._pod_of(sandbox))
        if sandbox in self._sandboxes:
            self._end_sandbox(sandbox, KILLED)
            for container in self._of(sandbox):
                del self._containers[container.status.id]
            del self._sandboxes[sandbox]

    async def sandboxes(self, namespace: str = "", name: str = "") -> Sequence[SandboxStatus]:
        await self._enter("sandboxes", name)
        return [
            sandbox
            for sandbox in self._sandboxes.values()
            if not name or (sandbox.config.namespace, sandbox.config.name) == (namespace, name)
        ]

    async def sandbox(self, sandbox: str) -> SandboxStatus:
        await self._enter("sandbox", self._pod_of(sandbox))
        return self._sandbox(sandbox)

    async def create_container(self, sandbox: str, config: ContainerConfig) -> str:
        await self._enter("create_container", self._pod_of(sandbox))
        log_file = Path(self._sandbox(sandbox).config.log_directory, config.log_path)
        status = ContainerStatus(
            id=secrets.token_hex(32),
            sandbox=sandbox,
            config=config,
            state=ContainerState.CREATED,
            created_at=self._now(),
            log_file=str(log_file),
        )
        self._containers[status.id] = _Container(status)
        return status.id

    async def start_container(self, container: str) -> None:
        known = self._known(container)
        try:
            await self._enter("start_container", self._pod_of(known.status.sandbox))
        except StartFailed as error:
            self._finish(known, error.exit_code, error.reason, str(error))
            raise
        if not self._sandbox(known.status.sandbox).is_ready:
            raise RuntimeFailure(f"the sandbox of container {known.status.config.name} has ended")
        log_file = Path(known.status.log_file)
        log_file.parent.mkdir(parents=True, exist_ok=True)
        log_file.touch()
        known.status = replace(known.status, state=ContainerState.RUNNING, started_at=self._now())
        self._publish(known)
        if exit_codes := self.exit_codes.get(known.status.config.name):
            self._finish(known, exit_codes.pop(0))

    async def stop_container(self, container: str, grace_seconds: float) -> None:
        known = self._known(container)
        await self._enter("stop_container", self._pod_of(known.status.sandbox))
        if known.status.state is not ContainerState.RUNNING:
            return
        if grace_seconds > 0 and known.status.config.name in self.stubborn:
            await self._clock.sleep(grace_seconds)
        is_killed = grace_seconds <= 0 or known.status.config.name in self.stubborn
        if known.status.state is ContainerState.RUNNING:
            self._finish(known, KILLED if is_killed else TERMINATED)

    async def remove_container(self, container: str) -> None:
        await self._enter("remove_container")
        known = self._containers.get(container)
        if known is not None:
            if known.status.state is ContainerState.RUNNING:
                self._finish(known, KILLED)
            del self._containers[container]

    async def containers(self, sandbox: str = "") -> Sequence[ContainerStatus]:
        await self._enter("containers", self._pod_of(sandbox))
        return [known.status for known in self._containers.values() if sandbox in ("", known.status.sandbox)]

    async def container(self, container: str) -> ContainerStatus:
        await self._enter("container")
        return self._known(container).status

    async def update_resources(self, container: str, resources: Resources) -> None:
        known = self._known(container)
        await self._enter("update_resources", self._pod_of(known.status.sandbox))
        known.status = replace(known.status, config=replace(known.status.config, resources=resources))

    async def update_sandbox(self, sandbox: str, resources: Resources) -> None:
        await self._enter("update_sandbox", self._pod_of(sandbox))
        made = self._sandbox(sandbox)
        self._sandboxes[sandbox] = replace(made, config=replace(made.config, resources=resources))

    async def stats(self, container: str) -> ContainerStats:
        known = self._known(container)
        await self._enter("stats", self._pod_of(known.status.sandbox))
        return self.usage.get(known.status.config.name, ContainerStats(timestamp=self._now()))

    async def disk_usage(self, directory: str, containers: Sequence[str]) -> DiskUsage:
        await self._enter("disk_usage")
        names = {container: self._known(container).status.config.name for container in containers}
        return replace(self.disk, layers={id: self.disk.layers.get(name, 0) for id, name in names.items()})

    async def open_file(self, sandbox: str, directory: str, path: str) -> BinaryIO:
        await self._enter("open_file", self._pod_of(sandbox))
        return open_regular_below(directory, path)

    async def memory(self, sandbox: str = "") -> MemoryDirectory:
        await self._enter("memory", self._pod_of(sandbox))
        if self._memory is None:
            path = self._directory / "memory"
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._memory = MemoryDirectory(str(path), os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        return self._memory

    def events(self) -> AsyncIterator[ContainerEvent]:
        return self._feed.subscribe()

    async def exec(self, container: str, command: Sequence[str], streams: CommandStreams) -> int:
        result = await self._run("exec", container, command)
        if streams.stdout is not None:
            streams.stdout.write(result.output)
            await streams.stdout.drain()
        return result.exit_code

    async def exec_sync(
        self, container: str, command: Sequence[str], *, timeout: float, limit_bytes: int = 1 << 20
    ) -> ExecResult:
        result = await self._run("exec_sync", container, command)
        return replace(result, output=result.output[:limit_bytes])

    async def attach(self, container: str, streams: CommandStreams) -> int:
        known = self._known(container)
        await self._enter("attach", self._pod_of(known.status.sandbox))
        if streams.stdout is not None:
            known.attached.append(streams.stdout)
        await known.ended.wait()
        return known.status.exit_code

    async def connect(self, sandbox: str, port: int, *, address: str = "") -> Duplex:
        await self._enter("connect", self._pod_of(sandbox))
        if not self._sandbox(sandbox).is_ready or port not in self.servers:
            raise ConnectionRefusedError(f"nothing listens on port {port}")
        ours, theirs = socket.socketpair()
        self._tasks.start(self._serve(port, theirs))
        return Duplex(*await asyncio.open_connection(sock=ours))

    # Inside

    async def _serve(self, port: int, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection)
        try:
            await self.servers[port](reader, writer)
        finally:
            writer.close()

    async def _run(self, operation: str, container: str, command: Sequence[str]) -> ExecResult:
        known = self._known(container)
        await self._enter(operation, self._pod_of(known.status.sandbox))
        if known.status.state is not ContainerState.RUNNING:
            raise NotThere(f"container {known.status.config.name} does not run")
        return self.run_command(known.status, command)

    async def _enter(self, operation: str, pod: str = "") -> None:
        self.calls.append(operation)
        for interference in list(self._interferences):
            if interference.operation == operation and interference.pod in ("", pod):
                interference.hits += 1
                if interference.error is not None:
                    raise interference.error
                await interference.is_over.wait()

    def _finish(self, known: _Container, exit_code: int, reason: str = "", message: str = "") -> None:
        known.status = replace(
            known.status,
            state=ContainerState.EXITED,
            finished_at=self._now(),
            exit_code=exit_code,
            reason=reason or ("Error" if exit_code else "Completed"),
            message=message,
        )
        known.ended.set()
        self._publish(known)

    def _end_sandbox(self, sandbox: str, exit_code: int) -> None:
        self._sandboxes[sandbox] = replace(self._sandboxes[sandbox], is_ready=False)
        for known in self._of(sandbox):
            if known.status.state is ContainerState.RUNNING:
                self._finish(known, exit_code)

    def _publish(self, known: _Container) -> None:
        self._feed.publish(ContainerEvent(known.status.sandbox, known.status.id))

    def _sandbox(self, sandbox: str) -> SandboxStatus:
        if sandbox not in self._sandboxes:
            raise NotThere(f"there is no sandbox {sandbox}")
        return self._sandboxes[sandbox]

    def _known(self, container: str) -> _Container:
        if container not in self._containers:
            raise NotThere(f"there is no container {container}")
        return self._containers[container]

    def _of(self, sandbox: str) -> list[_Container]:
        return [known for known in self._containers.values() if known.status.sandbox == sandbox]

    def _pod_of(self, sandbox: str) -> str:
        known = self._sandboxes.get(sandbox)
        return known.config.name if known is not None else ""

    def _now(self) -> int:
        return int(self._clock.now().timestamp() * 1e9)


class InMemoryImages:
    """An `ImageService`: every image can be pulled, unless `failures` says otherwise."""

    def __init__(self, *names: str) -> None:
        """`names` are present from the start."""
        self.present: dict[str, Image] = {name: _image(name) for name in names}
        self.failures: dict[str, ImageFailure] = {}
        """The errors of images, by name."""
        self.pulled: list[str] = []
        """The names that were asked for, in order."""

    async def images(self) -> Sequence[Image]:
        return list(self.present.values())

    async def find(self, name: str) -> Image | None:
        failure = self.failures.get(name)
        if isinstance(failure, InvalidImageName):
            raise failure
        return next((image for image in self.present.values() if name in (image.id, *image.tags)), None)

    def hint(self, name: str) -> str:
        return ""

    async def pull(
        self, name: str, credentials: Sequence[RegistryCredentials] = (), observer: PullObserver | None = None
    ) -> Image:
        self.pulled.append(name)
        if name in self.failures:
            raise self.failures[name]
        return self.present.setdefault(name, _image(name))

    async def remove(self, name: str) -> None:
        for known in [known for known, image in self.present.items() if name in (known, image.id)]:
            del self.present[known]

    async def collect(self, in_use: Collection[str], *, high_percent: int = 85, low_percent: int = 80) -> Sequence[str]:
        """Remove all unused images if the limit is 0; the disk is empty otherwise."""
        unused = [image.id for image in self.present.values() if image.id not in in_use]
        if high_percent:
            return []
        for image in unused:
            await self.remove(image)
        return unused


def _image(name: str) -> Image:
    return Image(id=f"memory:{name}", tags=(name,), size_bytes=1 << 20)


def _succeed(container: ContainerStatus, command: Sequence[str]) -> ExecResult:
    return ExecResult(0, b"")


def _checked(operation: str) -> str:
    if not hasattr(Runtime, operation):
        raise ValueError(f"{operation} is no operation of a runtime: expected a method of Runtime, such as run_sandbox")
    return operation
