"""The embedded runtime: a `Runtime` on this machine's kernel, for root and for ordinary users."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pinnace.model.byte_streams import Duplex
from pinnace.model.clock import Clock
from pinnace.model.node_connections import CommandStreams
from pinnace.network.pods.addresses import AddressesExhausted, PodAddresses
from pinnace.network.pods.egress import EVERYWHERE
from pinnace.network.pods.host_ports import HostPort, HostPorts, PortInUse
from pinnace.node.images.roots import ImageRoots
from pinnace.node.runtime.embedded import messages
from pinnace.node.runtime.embedded.cgroups import Cgroups
from pinnace.node.runtime.embedded.channels import Channel, ChannelClosed
from pinnace.node.runtime.embedded.container_streams import OutputCollector, attach_streams, run_command
from pinnace.node.runtime.embedded.descriptors import wait_until_connected
from pinnace.node.runtime.embedded.disk_usage import measure_files
from pinnace.node.runtime.embedded.event_feed import EventFeed
from pinnace.node.runtime.embedded.fork_server_client import Abilities, open_fork_server
from pinnace.node.runtime.embedded.launches import ContainerGroups, RootPlans, launch_of, stop_signal_of
from pinnace.node.runtime.embedded.node_sockets import NodeSockets
from pinnace.node.runtime.embedded.process_usage import process_stats
from pinnace.node.runtime.embedded.propagation import check_propagation, cloned_sources
from pinnace.node.runtime.embedded.root_file_systems import (
    ImageMount,
    make_mount_points,
    plan_image_mount,
    plan_root,
    remove_tree,
)
from pinnace.node.runtime.embedded.sandbox_channels import SandboxChannels
from pinnace.node.runtime.embedded.state import ContainerRecord, SandboxRecord, State
from pinnace.node.runtime.embedded.status_files import write_json
from pinnace.node.runtime.errors import ConfigRefused, NotThere, RuntimeFailure, SandboxFailed, StartFailed
from pinnace.node.runtime.runtime import (
    ContainerConfig,
    ContainerEvent,
    ContainerState,
    ContainerStats,
    ContainerStatus,
    DiskUsage,
    ExecResult,
    Resources,
    RuntimeStatus,
    SandboxConfig,
    SandboxStatus,
    TemporaryFileSystem,
)

_KILL_SECONDS = 60.0
"""How long the end of a killed process is awaited: one in an uninterruptible wait can take long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSettings:
    directory: Path
    """The state directory of the node. Only one agent may use it."""
    pod_network: str = "10.244.0.0/24"
    ipv6_pod_network: str = ""
    """The IPv6 network of the node's pods; empty for pods with IPv4 addresses alone."""
    routes: Sequence[str] = ()
    """Networks beyond the pod network that pods reach through the node, such as that of the Services."""
    has_egress: bool = False
    """Whether pods have a default route, through the node to the networks outside of this machine."""
    log_max_bytes: int = 10 << 20
    log_max_files: int = 5
    idle_seconds: float = 10.0
    """How long the node's namespaces wait for another agent when no pod is left."""
    ends_with_agent: bool = False
    """Whether the pods end too when no agent comes back within that time: no later agent will know the directory."""


class EmbeddedRuntime(NodeSockets):
    """Create it with `open`, and `close` it; the pods go on running."""

    def __init__(
        self, settings: EmbeddedSettings, images: ImageRoots, clock: Clock, *, addresses: PodAddresses, state: State
    ) -> None:
        self._settings = settings
        self._images = images
        self._clock = clock
        self._addresses = addresses
        self._state = state
        self._feed = EventFeed()
        self._ports = HostPorts(self, addresses.bridge.partition("/")[0])
        self._channels = SandboxChannels(state, self._feed.publish)
        self._cgroups = Cgroups(settings.directory)
        self._node: Channel | None = None
        self._abilities: Abilities | None = None
        self._sandboxes = {record.id: record for record in state.sandboxes()}
        self._containers = {record.id: record for sandbox in self._sandboxes for record in state.containers(sandbox)}

    @classmethod
    async def open(cls, settings: EmbeddedSettings, images: ImageRoots, clock: Clock) -> EmbeddedRuntime:
        """Start the fork server, or find it, and attach to the pods that run already."""
        settings.directory.mkdir(parents=True, exist_ok=True, mode=0o711)
        addresses = PodAddresses(settings.pod_network, settings.ipv6_pod_network)
        runtime = cls(settings, images, clock, addresses=addresses, state=State(settings.directory))
        await runtime._connect_node()
        for record in runtime._sandboxes.values():
            if record.address and not record.is_stopped:
                addresses.take(record.address)
                with contextlib.suppress(ChannelClosed, PortInUse):
                    runtime._channels.find(record.id)
                    await runtime._open_ports(record)
        return runtime

    async def close(self) -> None:
        """Disconnect from the pods, which go on running; their host ports are open again with the next agent."""
        await self._ports.close_all()
        self._channels.close_all()
        if self._node is not None:
            self._node.close()
        if not self._sandboxes:
            self._cgroups.close()

    async def end(self) -> None:
        """Remove every pod, end the namespaces of the node, and close."""
        await asyncio.gather(*(self.remove_sandbox(sandbox) for sandbox in list(self._sandboxes)))
        if self._node is not None:
            with contextlib.suppress(ChannelClosed, TimeoutError):  # It has ended, or has a pod that does not end.
                await self._node.request({"op": "end"})
                async with asyncio.timeout(_KILL_SECONDS):
                    await self._node.closed.wait()
        await self.close()

    async def status(self) -> RuntimeStatus:
        _, abilities = await self._connect_node()
        missing = list(self._cgroups.missing)
        if abilities.id_count == 1:
            missing.append(
                "supplemental groups are ignored and files have one owner: this user has one user id only; "
                "install newuidmap (Debian: uidmap) and add the user to /etc/subuid and /etc/subgid for more"
            )
        if not abilities.has_overlay:
            missing.append("images are copied for each container: this user cannot mount overlays")
        if not abilities.has_seccomp:
            missing.append("the default seccomp profile is not applied: this machine has no libseccomp")
        return RuntimeStatus("pinnace", "1", missing=missing)

    # Sandboxes

    async def run_sandbox(self, config: SandboxConfig) -> str:
        node, _ = await self._connect_node()
        sandbox = secrets.token_hex(32)
        record = SandboxRecord(
            id=sandbox, config=config, created_at=self._now(), address="" if config.host_network else self._allocate()
        )
        self._sandboxes[sandbox] = record
        ours, theirs = messages.pair()
        try:
            with theirs:
                self._state.directory(sandbox).mkdir(mode=0o711)
                self._state.save_sandbox(record)
                self._cgroups.create(sandbox, resources=config.resources)
                await node.request(self._run_request(record), [theirs.fileno()])
            await self._channels.await_first(sandbox, ours)
            await self._open_ports(record)
        except (RuntimeFailure, OSError, PortInUse) as error:
            await self.remove_sandbox(sandbox)
            ours.close()  # If no channel has it yet; one has closed it before.
            raise SandboxFailed(
                f"failed to create the sandbox of pod {config.namespace}/{config.name}: {error}"
            ) from error
        return sandbox

    async def stop_sandbox(self, sandbox: str) -> None:
        record = self._sandboxes.get(sandbox)
        if record is None or record.is_stopped:
            return
        self._ports.close(sandbox)
        try:
            channel = self._channels.find(sandbox)
            await channel.request({"op": "stop"})
            async with asyncio.timeout(_KILL_SECONDS):
                await channel.closed.wait()
        except ChannelClosed:
            pass  # It has ended, and the kernel has killed its containers.
        self._channels.close(sandbox)
        for container in self._of(sandbox):
            self._state.status(container, "")
        if record.address:
            self._addresses.release(record.address)
        self._sandboxes[sandbox] = stopped = replace(record, is_stopped=True)
        with contextlib.suppress(OSError):  # A full disk must not keep a pod from ending.
            self._state.save_sandbox(stopped)

    async def remove_sandbox(self, sandbox: str) -> None:
        if sandbox not in self._sandboxes:
            return
        await self.stop_sandbox(sandbox)
        for container in self._of(sandbox):
            self._containers.pop(container.id, None)
            self._channels.forget_container(container.id)
        await asyncio.to_thread(self._cgroups.remove, sandbox)
        await asyncio.to_thread(remove_tree, self._state.directory(sandbox))
        self._sandboxes.pop(sandbox, None)

    async def sandboxes(self, namespace: str = "", name: str = "") -> Sequence[SandboxStatus]:
        chosen = [
            record
            for record in self._sandboxes.values()
            if not name or (record.config.name, record.config.namespace) == (name, namespace)
        ]
        return [self._sandbox_status(record) for record in chosen]

    async def sandbox(self, sandbox: str) -> SandboxStatus:
        return self._sandbox_status(self._sandbox(sandbox))

    # Containers

    async def create_container(self, sandbox: str, config: ContainerConfig) -> str:
        pod = self._sandbox(sandbox)
        image = await self._images.root_of(config.image)
        _, abilities = await self._connect_node()
        record = ContainerRecord(
            id=secrets.token_hex(32),
            sandbox=sandbox,
            config=config,
            created_at=self._now(),
            stop_signal=stop_signal_of(config, image.config),
        )
        directory = self._state.container_directory(record)
        directory.mkdir(parents=True, mode=0o711)
        try:
            plan = await asyncio.to_thread(plan_root, directory, image, has_overlay=abilities.has_overlay)
            volumes = await self._plan_image_mounts(directory, config, has_overlay=abilities.has_overlay)
            check_propagation(config.mounts)
            if image.is_host:
                make_mount_points(directory, plan, config.mounts)
            self._cgroups.create(sandbox, record.id, config.resources)
            launch = launch_of(
                config,
                image,
                RootPlans(plan, volumes),
                groups=ContainerGroups(
                    process_files=self._cgroups.process_files(sandbox, record.id),
                    directories=self._cgroups.directories(sandbox, record.id),
                ),
                shm=str(self._shm(sandbox)),
                hostname=pod.config.hostname or pod.config.name,
            )
            write_json(str(directory / "launch.json"), launch)
            self._state.save_container(record)
        except (OSError, ConfigRefused) as error:
            await asyncio.to_thread(self._cgroups.remove, sandbox, record.id)
            await asyncio.to_thread(remove_tree, directory)
            raise ConfigRefused(str(error)) from error
        self._containers[record.id] = record
        return record.id

    async def _plan_image_mounts(
        self, directory: Path, config: ContainerConfig, *, has_overlay: bool
    ) -> dict[int, ImageMount]:
        plans = {}
        for number, mount in enumerate(config.mounts):
            if mount.image:
                image = await self._images.root_of(mount.image)
                if image.is_host:
                    raise ConfigRefused("this machine itself cannot be an image volume; load an image for it")
                place = directory / "images" / str(number)
                plans[number] = await asyncio.to_thread(plan_image_mount, place, image, has_overlay=has_overlay)
        return plans

    async def start_container(self, container: str) -> None:
        record = self._container(container)
        config = record.config
        channel = self._channels.find(record.sandbox)
        request = {
            "op": "start",
            "id": container,
            "log": self._log_file(record),
            "log_max_bytes": self._settings.log_max_bytes,
            "log_max_files": self._settings.log_max_files,
            "tty": config.tty,
            "stdin": config.stdin,
            "stdin_once": config.stdin_once,
            "processes": str(config.pid_mode),
            "target": config.target,
            "oom_file": self._cgroups.oom_file(record.sandbox, container),
        }
        memory = self._sandbox(record.sandbox).config.temporary_file_systems
        with cloned_sources(config.mounts, memory) as trees:
            reply, _ = await channel.request({**request, "trees": list(trees)}, list(trees.values()))
        if reply.get("error"):
            await self._channels.ended(container).wait()
            raise StartFailed(reply["error"])
        self._feed.publish(ContainerEvent(record.sandbox, container))

    async def stop_container(self, container: str, grace_seconds: float) -> None:
        record = self._container(container)
        if (await self.container(container)).state is not ContainerState.RUNNING:
            return
        with contextlib.suppress(ChannelClosed):
            channel = self._channels.find(record.sandbox)
            ended = self._channels.ended(container)
            if grace_seconds > 0:
                await channel.request({"op": "signal", "id": container, "signal": record.stop_signal})
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(grace_seconds):
                        await ended.wait()
                    return
            await channel.request({"op": "signal", "id": container, "signal": int(signal.SIGKILL)})
            async with asyncio.timeout(_KILL_SECONDS):
                await ended.wait()

    async def remove_container(self, container: str) -> None:
        record = self._containers.get(container)
        if record is None:
            return
        await self.stop_container(container, 0)
        with contextlib.suppress(ChannelClosed):
            await self._channels.find(record.sandbox).request({"op": "forget", "id": container})
        self._containers.pop(container, None)
        self._channels.forget_container(container)
        await asyncio.to_thread(self._cgroups.remove, record.sandbox, container)
        await asyncio.to_thread(remove_tree, self._state.container_directory(record))

    async def containers(self, sandbox: str = "") -> Sequence[ContainerStatus]:
        chosen = [record for record in self._containers.values() if sandbox in ("", record.sandbox)]
        return [self._state.status(record, self._log_file(record)) for record in chosen]

    async def container(self, container: str) -> ContainerStatus:
        record = self._container(container)
        return self._state.status(record, self._log_file(record))

    async def update_resources(self, container: str, resources: Resources) -> None:
        record = self._container(container)
        try:
            self._cgroups.update(record.sandbox, container, resources)
        except OSError as error:
            raise RuntimeFailure(f"the limits of container {record.config.name} cannot be changed: {error}") from error
        changed = replace(record, config=replace(record.config, resources=resources))
        self._containers[container] = changed
        self._state.save_container(changed)

    async def update_sandbox(self, sandbox: str, resources: Resources) -> None:
        try:
            self._cgroups.update(self._sandbox(sandbox).id, "", resources)
        except OSError as error:
            raise RuntimeFailure(f"the limits of the pod cannot be changed: {error}") from error

    async def stats(self, container: str) -> ContainerStats:
        record = self._container(container)
        if self._cgroups.accounts:
            return self._cgroups.stats(record.sandbox, container, now=self._now())
        return await asyncio.to_thread(process_stats, self._state.pid_of(record), now=self._now())

    async def disk_usage(self, directory: str, containers: Sequence[str]) -> DiskUsage:
        layers = {one: str(self._state.container_directory(self._container(one))) for one in containers}
        return await measure_files((await self._connect_node())[0], directory, layers)

    def events(self) -> AsyncIterator[ContainerEvent]:
        return self._feed.subscribe()

    # Streams

    async def exec(self, container: str, command: Sequence[str], streams: CommandStreams) -> int:
        return await run_command(self._channel_of(container), container, command, streams)

    async def exec_sync(
        self, container: str, command: Sequence[str], *, timeout: float, limit_bytes: int = 1 << 20
    ) -> ExecResult:
        collector = OutputCollector(limit_bytes)
        async with asyncio.timeout(timeout):
            code = await self.exec(container, command, CommandStreams(stdout=collector, stderr=collector))
        return ExecResult(code, collector.data)

    async def attach(self, container: str, streams: CommandStreams) -> int:
        record = self._container(container)
        ended = self._channels.ended(container)
        await attach_streams(self._channel_of(container), container, streams, tty=record.config.tty, ended=ended)
        return (await self.container(container)).exit_code

    async def connect(self, sandbox: str, port: int, *, address: str = "") -> Duplex:
        self._sandbox(sandbox)
        request = {"op": "connect", "port": port, "address": address or "127.0.0.1"}
        _, fds = await self._channels.find(sandbox).request(request)
        opened = socket.socket(fileno=fds[0])
        try:
            await wait_until_connected(opened)
            reader, writer = await asyncio.open_connection(sock=opened)
        except BaseException:
            opened.close()
            raise
        return Duplex(reader, writer)

    async def node_pid(self) -> int:
        """A process in the namespaces of the node."""
        return (await self._connect_node())[1].pid

    # Inside

    async def _connect_node(self) -> tuple[Channel, Abilities]:
        if self._node is None or self._node.is_closed or self._abilities is None:
            options = {
                "bridge_addresses": self._addresses.all_of(self._addresses.bridge),
                "idle_seconds": self._settings.idle_seconds,
                "ends_with_agent": self._settings.ends_with_agent,
            }
            self._node, self._abilities = await open_fork_server(
                self._settings.directory, options, on_close=lambda: None
            )
        return self._node, self._abilities

    async def _open_ports(self, record: SandboxRecord) -> None:
        if record.config.host_network:
            return
        ports = [
            HostPort(one.host_ip, one.host_port, one.container_port, one.protocol)
            for one in record.config.ports
            if one.protocol in ("TCP", "UDP")
        ]
        if ports:
            await self._ports.open(
                record.id,
                ports,
                lambda port: self.connect(record.id, port),
                lambda port: self._connect_datagrams(record.id, port),
            )

    async def _connect_datagrams(self, sandbox: str, port: int) -> socket.socket:
        request = {"op": "connect", "port": port, "address": "127.0.0.1", "datagrams": True}
        _, fds = await self._channels.find(sandbox).request(request)
        return socket.socket(fileno=fds[0])

    def _run_request(self, record: SandboxRecord) -> messages.Message:
        config = record.config
        shared = [TemporaryFileSystem(str(self._shm(record.id)), 64 << 20), *config.temporary_file_systems]
        return {
            "op": "run",
            "directory": str(self._state.directory(record.id)),
            "hostname": (config.hostname or config.name)[:63],
            "addresses": self._addresses.all_of(record.address),
            "gateways": [one.partition("/")[0] for one in self._addresses.all_of(self._addresses.bridge)],
            "routes": [*self._settings.routes, *([str(EVERYWHERE)] if self._settings.has_egress else [])],
            "has_egress": self._settings.has_egress,
            "veth": f"veth{record.id[:11]}",
            "host_network": config.host_network,
            "host_ipc": config.host_ipc,
            "shares_processes": config.shares_processes,
            "sysctls": dict(config.sysctls),
            "temporary_file_systems": [[one.path, one.size_bytes] for one in shared],
        }

    def _allocate(self) -> str:
        try:
            return self._addresses.allocate()
        except AddressesExhausted as error:
            raise SandboxFailed(str(error)) from error

    def _sandbox(self, sandbox: str) -> SandboxRecord:
        try:
            return self._sandboxes[sandbox]
        except KeyError:
            raise NotThere(f"there is no sandbox {sandbox}") from None

    def _container(self, container: str) -> ContainerRecord:
        try:
            return self._containers[container]
        except KeyError:
            raise NotThere(f"there is no container {container}") from None

    def _of(self, sandbox: str) -> list[ContainerRecord]:
        return [record for record in self._containers.values() if record.sandbox == sandbox]

    def _channel_of(self, container: str) -> Channel:
        return self._channels.find(self._container(container).sandbox)

    def _sandbox_status(self, record: SandboxRecord) -> SandboxStatus:
        return SandboxStatus(
            id=record.id,
            config=record.config,
            created_at=record.created_at,
            is_ready=not record.is_stopped and self._state.has_supervisor(record.id),
            addresses=[one.partition("/")[0] for one in self._addresses.all_of(record.address)],
        )

    def _shm(self, sandbox: str) -> Path:
        return self._state.directory(sandbox) / "shm"

    def _log_file(self, record: ContainerRecord) -> str:
        pod = self._sandbox(record.sandbox).config
        directory = pod.log_directory or str(self._state.directory(record.sandbox) / "logs")
        return os.path.join(directory, record.config.log_path or f"{record.config.name}/{record.config.attempt}.log")

    def _now(self) -> int:
        return int(self._clock.now().timestamp() * 1_000_000) * 1000
