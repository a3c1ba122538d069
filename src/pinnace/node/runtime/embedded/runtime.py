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
from typing import BinaryIO

from pinnace.model.node_connections import CommandStreams
from pinnace.model.objects import Key
from pinnace.network.pods.addresses import AddressesExhausted, AddressFollower, NoFollower, PodAddresses
from pinnace.network.pods.host_ports import HostPort, HostPorts, PortInUse
from pinnace.node.errors import ConfigRefused, NotThere, RuntimeFailure, SandboxFailed, StartFailed
from pinnace.node.image_service import ImageRoots
from pinnace.node.machine import messages
from pinnace.node.machine.channels import Channel, ChannelClosed
from pinnace.node.machine.mapped_root import remove_tree
from pinnace.node.machine.open_files import wait_until_connected
from pinnace.node.machine.removals import Removals
from pinnace.node.runtime.cdi import add_devices
from pinnace.node.runtime.embedded.connections.container_streams import OutputCollector, attach_streams, run_command
from pinnace.node.runtime.embedded.connections.fork_server_client import ForkServerClient
from pinnace.node.runtime.embedded.connections.packet_guard import PacketGuard
from pinnace.node.runtime.embedded.connections.sandbox_channels import SandboxChannels
from pinnace.node.runtime.embedded.groups.cgroups import Cgroups
from pinnace.node.runtime.embedded.groups.process_usage import process_stats
from pinnace.node.runtime.embedded.launches.launches import (
    ContainerGroups,
    PendingLaunches,
    RootPlans,
    check_text,
    check_user,
    launch_of,
    run_request_of,
    stop_signal_of,
)
from pinnace.node.runtime.embedded.launches.propagation import check_propagation, cloned_sources
from pinnace.node.runtime.embedded.launches.root_plans import make_mount_points, plan_image_mounts, plan_root
from pinnace.node.runtime.embedded.state import ContainerRecord, SandboxRecord, State, without_secrets
from pinnace.node.runtime.embedded.supervision.fork_server import SOCKET
from pinnace.node.runtime.embedded.supervision.measuring import CREATED
from pinnace.node.runtime.embedded.user_ranges import UserRanges
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
    RuntimeStatus,
    SandboxConfig,
    SandboxStatus,
)
from pinnace.process.byte_streams import Duplex
from pinnace.process.clock import Clock

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
    uses_nftables: bool = True
    """Whether packets are checked by rules of the kernel where it allows them."""
    log_max_bytes: int = 10 << 20
    log_max_files: int = 5
    idle_seconds: float = 10.0
    """How long the node's namespaces wait for another agent when no pod is left."""
    pins_containers: bool = False
    """Whether containers run on certain CPUs, or with memory of certain NUMA nodes."""
    ends_with_agent: bool = False
    """Whether the pods end too when no agent comes back within that time: no later agent will know the directory."""


_NO_CPUSET = (
    "system validation failed - Following Cgroup subsystem not mounted: [cpuset]; the static CPU and memory manager "
    "policies need one that this user can write"
)


class EmbeddedRuntime:
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
        self._ports = HostPorts(self, addresses.without_length(addresses.node), uses_nftables=settings.uses_nftables)
        self._channels = SandboxChannels(state, self._feed.publish)
        self._cgroups = Cgroups(settings.directory, pins_containers=settings.pins_containers)
        self._launches = PendingLaunches()
        self._external: list[str] = []
        """The external addresses of Services to which pods have routes."""
        self._follower: AddressFollower = NoFollower()
        self._removals = Removals(settings.directory / "removed")
        self._guard = PacketGuard(addresses.all_of(addresses.node), uses_nftables=settings.uses_nftables)
        options = {
            "node_addresses": addresses.all_of(addresses.node),
            "idle_seconds": settings.idle_seconds,
            "ends_with_agent": settings.ends_with_agent,
        }
        self._node = ForkServerClient(
            settings.directory,
            options,
            self._channels,
            sandboxes=lambda: list(self._sandboxes),
            prepare=self._guard.open,
        )
        self._sandboxes = {record.id: record for record in state.sandboxes()}
        taken = {state.directory(sandbox): record.users for sandbox, record in self._sandboxes.items()}
        self._users = UserRanges(state.directory(""), taken)
        self._containers = {record.id: record for sandbox in self._sandboxes for record in state.containers(sandbox)}

    @classmethod
    async def open(cls, settings: EmbeddedSettings, images: ImageRoots, clock: Clock) -> EmbeddedRuntime:
        """Start the fork server, or find it, and attach to the pods that run already."""
        settings.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        addresses = PodAddresses(settings.pod_network, settings.ipv6_pod_network)
        runtime = cls(settings, images, clock, addresses=addresses, state=State(settings.directory))
        if settings.pins_containers and not runtime._cgroups.can_pin:
            raise RuntimeFailure(_NO_CPUSET)
        await runtime._node.open()
        await asyncio.to_thread(runtime._cgroups.remove_leftovers, set(runtime._sandboxes), SOCKET)
        for record in runtime._sandboxes.values():
            if record.address and not record.is_stopped:
                addresses.take(record.address)
                with contextlib.suppress(ChannelClosed, PortInUse):
                    runtime._channels.find(record.id)
                    await runtime._open_ports(record)
        await runtime._ports.start()
        return runtime

    async def close(self) -> None:
        """Disconnect from the pods, which go on running; their host ports are open again with the next agent."""
        await self._ports.close_all()
        await self._removals.close()
        self._channels.close_all()
        self._node.close()
        if not self._sandboxes:
            self._cgroups.close()

    async def end(self) -> None:
        """Remove every pod, end the namespaces of the node, and close."""
        await asyncio.gather(*(self.remove_sandbox(sandbox) for sandbox in list(self._sandboxes)))
        await self._node.end(_KILL_SECONDS)
        await self._removals.drain()
        await self.close()

    async def status(self) -> RuntimeStatus:
        abilities = await self._node.check()
        bounds_processes = abilities.id_count > 0  # Each pod has a user namespace, in which the kernel counts them.
        missing = [*self._cgroups.missing(bounds_processes=bounds_processes), *abilities.missing]
        missing += self._guard.missing(checks_ipv4=abilities.checks_sources)
        return RuntimeStatus(
            "pinnace",
            "1",
            has_user_namespaces=abilities.has_pod_users or not abilities.is_root,
            has_supplemental_groups=abilities.id_count != 1,
            missing=missing,
        )

    # Sandboxes

    async def run_sandbox(self, config: SandboxConfig) -> str:
        await self._node.open()
        sandbox = secrets.token_hex(32)
        record = SandboxRecord(
            id=sandbox,
            config=config,
            created_at=self._now(),
            address="" if config.host_network else self._allocate(),
        )
        self._sandboxes[sandbox] = record
        ours, theirs = messages.pair()
        try:
            with theirs:
                place = self._state.directory(sandbox)
                place.mkdir(mode=0o700)
                record = replace(record, users=await self._users.choose(place, config, self._node))
                self._sandboxes[sandbox] = record
                self._state.save_sandbox(record)
                self._cgroups.create(sandbox, resources=config.resources)
                self._follower.on_start(*self._place(record))
                await self._follower.protect()
                directory, shm = str(place), str(self._shm(sandbox))
                routes, has_egress = self._settings.routes, self._settings.has_egress
                request = run_request_of(
                    record, directory, shm, addresses=self._addresses, routes=routes, has_egress=has_egress
                )
                await self._node.request(request, [theirs.fileno()])
            await self._channels.await_first(sandbox, ours)
            await self._lead(record)
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
        await self._ports.close(sandbox)
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
            self._follower.on_end(*self._place(record))
        self._sandboxes[sandbox] = stopped = replace(record, is_stopped=True)
        with contextlib.suppress(OSError):  # A full disk must not keep a pod from ending.
            self._state.save_sandbox(stopped)

    async def remove_sandbox(self, sandbox: str) -> None:
        if sandbox not in self._sandboxes:
            return
        await self.stop_sandbox(sandbox)
        for container in self._of(sandbox):
            self._containers.pop(container.id, None)
            self._launches.drop(container.id)
            self._channels.forget_container(container.id)
        await asyncio.to_thread(self._cgroups.remove, sandbox)
        self._users.release(self._state.directory(sandbox))
        self._removals.add(self._state.directory(sandbox))
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
        if config.cdi_devices:
            config = await asyncio.to_thread(add_devices, config)
        image = await self._images.root_of(config.image)
        abilities = await self._node.abilities()
        record = ContainerRecord(
            id=secrets.token_hex(32),
            sandbox=sandbox,
            config=without_secrets(config),
            created_at=self._now(),
            stop_signal=stop_signal_of(config, image.config),
        )
        directory = self._state.container_directory(record)
        directory.mkdir(parents=True, mode=0o700)
        try:
            plan = await asyncio.to_thread(plan_root, directory, image, has_overlay=abilities.has_overlay)
            volumes = await plan_image_mounts(directory, config, self._images, has_overlay=abilities.has_overlay)
            check_propagation(config.mounts)
            if pod.users:
                check_user(config.security, image.config)
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
            (directory / CREATED).touch(mode=0o600)
            self._state.save_container(record)
        except (OSError, ConfigRefused) as error:
            await asyncio.to_thread(self._cgroups.remove, sandbox, record.id)
            await asyncio.to_thread(remove_tree, directory)
            raise error if isinstance(error, ConfigRefused) else ConfigRefused(str(error)) from error
        self._containers[record.id] = record
        self._launches.add(record.id, launch)
        return record.id

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
        with cloned_sources(config.mounts, memory) as trees, self._launches.take(container) as launch:
            reply, _ = await channel.request({**request, "trees": list(trees)}, [launch, *trees.values()])
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
        self._launches.drop(container)
        self._channels.forget_container(container)
        await asyncio.to_thread(self._cgroups.remove, record.sandbox, container)
        self._removals.add(self._state.container_directory(record))

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
        layers = {
            container: str(self._state.container_directory(self._container(container))) for container in containers
        }
        return await self._node.measure_files(directory, layers)

    def events(self) -> AsyncIterator[ContainerEvent]:
        return self._feed.subscribe()

    # Streams

    async def exec(self, container: str, command: Sequence[str], streams: CommandStreams) -> int:
        check_text("the command", command)
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

    def follow_addresses(self, follower: AddressFollower) -> None:
        """Report the addresses of pods from now on, and those of the pods that run already."""
        self._follower = follower
        for record in self._sandboxes.values():
            if record.address and not record.is_stopped:
                follower.on_start(*self._place(record))

    # The network of the node

    async def lead_to(self, addresses: Sequence[str]) -> None:
        """Let pods send packets for these addresses to the node, and for no others that they had by this method."""
        self._external = list(addresses)
        for record in list(self._sandboxes.values()):
            if not record.is_stopped:
                with contextlib.suppress(ChannelClosed):
                    await self._lead(record, is_new=False)

    async def _lead(self, record: SandboxRecord, *, is_new: bool = True) -> None:
        if record.address and (self._external or not is_new):
            gateways = self._addresses.without_length(self._addresses.node)
            request = {"op": "lead_to", "addresses": self._external, "gateways": gateways}
            await self._channels.find(record.id).request(request)

    async def open_socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        return (await self.open_sockets(family, kind, protocol))[0]

    async def open_sockets(self, family: int, kind: int, protocol: int = 0, *, count: int = 1) -> list[socket.socket]:
        """Create sockets in the network of the node, from which pods are reached. Raise OSError."""
        return await self._node.open_sockets(family, kind, protocol, count)

    async def find_listener(self, kind: int, address: str, port: int) -> socket.socket:
        """Return a bound socket in the network of the node, which stays open when this agent ends. Raise OSError."""
        return await self._node.find_listener(kind, address, port)

    async def node_pid(self) -> int:
        """A process in the namespaces of the node."""
        return (await self._node.abilities()).pid

    async def open_file(self, sandbox: str, directory: str, path: str) -> BinaryIO:
        reply, fds = await self._channels.find(sandbox).request({"op": "open", "directory": directory, "path": path})
        if not fds:
            raise OSError(reply["errno"], os.strerror(reply["errno"]), path)
        return open(fds[0], "rb")

    async def memory(self, sandbox: str = "") -> MemoryDirectory:
        abilities = await self._node.abilities()
        if not sandbox:
            return abilities.memory
        _, fds = await self._channels.find(sandbox).request({"op": "memory"})
        return MemoryDirectory(abilities.memory.path, fds[0])

    # Inside

    async def _open_ports(self, record: SandboxRecord) -> None:
        mapped = record.config.ports
        ports = [HostPort(port.host_ip, port.host_port, port.container_port, port.protocol) for port in mapped]
        if ports and not record.config.host_network:
            await self._ports.open(record.id, ports, self._addresses.without_length(record.address))

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
            addresses=self._addresses.without_length(record.address),
        )

    def _place(self, record: SandboxRecord) -> tuple[Key, list[str]]:
        return Key(record.config.namespace, record.config.name), self._addresses.without_length(record.address)

    def _shm(self, sandbox: str) -> Path:
        return self._state.directory(sandbox) / "shm"

    def _log_file(self, record: ContainerRecord) -> str:
        pod = self._sandbox(record.sandbox).config
        directory = pod.log_directory or str(self._state.directory(record.sandbox) / "logs")
        return os.path.join(directory, record.config.log_path or f"{record.config.name}/{record.config.attempt}.log")

    def _now(self) -> int:
        return int(self._clock.now().timestamp() * 1_000_000) * 1000
