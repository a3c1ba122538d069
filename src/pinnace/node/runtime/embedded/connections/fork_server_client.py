"""The agent's connection to the fork server of its node, which is started if none runs, and what it does for the agent.

The namespaces of the node outlive its fork server: the agent keeps them open, and so does every supervisor for a later
agent. Pods that run already, and the proxies and rules of the node, stay in the same network as the pods that follow,
and one file system in memory holds the Secrets of all.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pinnace
from pinnace.node.errors import RuntimeFailure
from pinnace.node.machine.channels import Channel, ChannelClosed, Reply
from pinnace.node.machine.messages import Message, connect
from pinnace.node.machine.open_files import OpenFile
from pinnace.node.runtime.embedded.connections.sandbox_channels import SandboxChannels
from pinnace.node.runtime.embedded.supervision.fork_server import SOCKET
from pinnace.node.runtime.embedded.supervision.memory import MEMORY
from pinnace.node.runtime.runtime import DiskUsage, MemoryDirectory

LOG = "fork-server.log"
_START_SECONDS = 30.0
_NAMESPACE_SECONDS = 5.0
"""How long a supervisor may take to send the namespaces of its node: another one knows them too."""
_MOST_UNANSWERED = 3
"""Questions without an answer, each of 10 s, after which a fork server hangs."""
_CODE = (
    "import sys; sys.path.insert(0, {root!r}); "
    "from pinnace.node.runtime.embedded.supervision.node_namespaces import main; main()"
)


@dataclass(frozen=True, slots=True)
class Abilities:
    """The abilities that the fork server has on this machine."""

    is_root: bool
    id_count: int
    """How many user ids pods have: 0 for all, 1 for an ordinary user without subordinate ids."""
    has_overlay: bool
    has_pod_users: bool
    """Whether each pod of root can have user ids of its own."""
    has_seccomp: bool
    pid: int
    checks_sources: bool
    """Whether the kernel drops IPv4 packets of pods that have forged source addresses."""
    memory: MemoryDirectory
    namespaces: Sequence[int]
    """The open namespaces of the node, for the next fork server if this one is killed."""

    @property
    def missing(self) -> list[str]:
        """A sentence for each ability that it lacks."""
        missing = []
        if self.id_count == 1:
            missing.append(
                "supplemental groups are ignored and files have one owner: this user has one user id only; "
                "install newuidmap (Debian: uidmap) and add the user to /etc/subuid and /etc/subgid for more"
            )
        if not self.has_overlay:
            missing.append("images are copied for each container: this user cannot mount overlays")
        if not self.has_seccomp:
            missing.append("the default seccomp profile is not applied: this machine has no libseccomp")
        return missing


class ForkServerClient:
    def __init__(
        self,
        directory: Path,
        options: Message,
        pods: SandboxChannels,
        *,
        sandboxes: Callable[[], Sequence[str]],
        prepare: Callable[[Channel], Awaitable[None]],
    ) -> None:
        """`prepare` is called for every fork server, before it has a pod.

        The supervisors of `sandboxes` may know the node's namespaces.
        """
        self._directory = directory
        self._options = options
        self._pods = pods
        self._sandboxes = sandboxes
        self._prepare = prepare
        self._channel: Channel | None = None
        self._abilities: Abilities | None = None
        self._namespaces: Sequence[int] = ()
        self._unanswered = 0
        self._lock = asyncio.Lock()
        """Two fork servers must not start at once."""

    async def open(self) -> tuple[Channel, Abilities]:
        """Return the connection to the fork server, which is started if none runs. Raise RuntimeFailure."""
        async with self._lock:
            if self._channel is None or self._channel.is_closed or self._abilities is None:
                self._abilities = None
                channel, abilities = await self._connect()
                self._keep(abilities.namespaces)
                try:
                    await self._prepare(channel)
                except BaseException:
                    channel.close()
                    raise
                self._channel, self._abilities = channel, abilities
            return self._channel, self._abilities

    async def abilities(self) -> Abilities:
        return (await self.open())[1]

    async def request(self, message: Message, fds: Sequence[int] = ()) -> Reply:
        channel, _ = await self.open()
        return await channel.request(message, fds)

    async def check(self) -> Abilities:
        """Ask whether the fork server answers, and kill one that hangs: the next request starts another.

        Raise ChannelClosed if it has ended, or has left several questions in a row unanswered.
        """
        channel, abilities = await self.open()
        self._unanswered += 1
        if self._unanswered > _MOST_UNANSWERED:
            self._unanswered = 0
            with contextlib.suppress(ProcessLookupError):
                os.kill(abilities.pid, signal.SIGKILL)  # Its connection is open: the number is still its own.
            channel.close()
            raise ChannelClosed(f"the fork server has not answered {_MOST_UNANSWERED} times: it was killed")
        try:
            await channel.request({"op": "ping"})
        except ChannelClosed:
            raise
        except RuntimeFailure:  # The fork server of an older version knows no such request, but it answers.
            pass
        self._unanswered = 0
        return abilities

    async def open_sockets(self, family: int, kind: int, protocol: int, count: int) -> list[socket.socket]:
        """Create sockets in the network of the node, from which pods are reached. Raise OSError."""
        request = {"op": "socket", "family": family, "kind": kind, "protocol": protocol, "count": count}
        try:
            _, fds = await self.request(request)
        except RuntimeFailure as error:
            raise OSError(errno.EIO, f"the node has opened no socket: {error}") from error
        return [socket.socket(fileno=fd) for fd in fds]

    async def find_listener(self, kind: int, address: str, port: int) -> socket.socket:
        """Return a bound socket in the network of the node, which stays open when this agent ends. Raise OSError."""
        try:
            _, fds = await self.request({"op": "listen", "kind": kind, "address": address, "port": port})
        except RuntimeFailure as error:
            raise OSError(errno.EADDRNOTAVAIL, f"the node does not listen on {address}:{port}: {error}") from error
        return socket.socket(fileno=fds[0])

    async def measure_files(self, directory: str, layers: Mapping[str, str]) -> DiskUsage:
        """Measure the files below a directory, and the layers of containers by their directories."""
        receiving, sending = os.pipe()
        output = OpenFile(receiving)
        try:
            try:
                await self.request({"op": "measure", "directory": directory, "layers": [*layers.values()]}, [sending])
            finally:
                os.close(sending)
            data = b""
            while part := await output.read():
                data += part
        finally:
            output.close()
        if not data:
            raise RuntimeFailure(
                f"the disk space of {directory} could not be measured; the log of the fork server says why"
            )
        sizes = json.loads(data)
        sizes_of_layers = dict(zip(layers, sizes["layers"], strict=True))
        return DiskUsage(files=sizes["files"], layers=sizes_of_layers, cpu_seconds=sizes["cpu_seconds"])

    async def end(self, seconds: float) -> None:
        """End the fork server, and wait for its end."""
        if self._channel is not None:
            with contextlib.suppress(ChannelClosed, TimeoutError):  # It has ended, or has a pod that does not end.
                await self._channel.request({"op": "end"})
                async with asyncio.timeout(seconds):
                    await self._channel.closed.wait()

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._keep(())

    async def _connect(self) -> tuple[Channel, Abilities]:
        """Connect to the fork server, after starting it if none runs.

        A new one joins the open namespaces that an earlier one has left, or makes others.
        """
        path = self._directory / SOCKET
        try:
            connection = connect(path)
        except OSError:
            await _start(self._directory, self._options, await self._find_namespaces())
            connection = connect(path)
        try:
            return await _greet(connection, self._directory)
        except ChannelClosed:  # It was about to end.
            await _start(self._directory, self._options, await self._find_namespaces())
            return await _greet(connect(path), self._directory)

    async def _find_namespaces(self) -> Sequence[int]:
        """The open namespaces of the node: those that this agent knows, or those that its pods have kept."""
        for sandbox in self._sandboxes() if not self._namespaces else ():
            with contextlib.suppress(RuntimeFailure, TimeoutError):
                async with asyncio.timeout(_NAMESPACE_SECONDS):
                    _, self._namespaces = await self._pods.find(sandbox).request({"op": "namespaces"})
                    break
        return self._namespaces

    def _keep(self, namespaces: Sequence[int]) -> None:
        for fd in self._namespaces:
            os.close(fd)
        self._namespaces = namespaces


async def _greet(connection: socket.socket, directory: Path) -> tuple[Channel, Abilities]:
    """Ask a fork server for its abilities. Raise RuntimeFailure, with the connection closed."""
    channel = Channel(connection, "the fork server")
    try:
        reply, fds = await channel.request({"op": "hello"})
        if not fds:
            raise RuntimeFailure(f"the fork server of {directory} is one of another version; end its pods first")
    except BaseException:
        channel.close()
        raise
    names = ("is_root", "id_count", "has_overlay", "has_pod_users", "has_seccomp", "pid", "checks_sources")
    memory = MemoryDirectory(str(directory / MEMORY), fds[0])
    return channel, Abilities(**{name: reply[name] for name in names}, memory=memory, namespaces=fds[1:])


async def _start(directory: Path, options: Message, namespaces: Sequence[int]) -> None:
    """Start the process. It belongs to no terminal, and outlives this one."""
    options = {**options, "namespaces": list(namespaces)}
    code = _CODE.format(root=str(Path(pinnace.__file__).parents[1]))
    arguments = (sys.executable, "-P", "-S", "-E", "-c", code, str(directory), json.dumps(options))
    with (directory / LOG).open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env={"PATH": os.defpath},
            cwd="/",
            pass_fds=namespaces,
        )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_START_SECONDS):
            line = await process.stdout.readline()
            await process.wait()
    except TimeoutError:
        line = b""
    if line.strip() != b"ready":
        text = (directory / LOG).read_text(errors="replace").strip().splitlines()
        raise RuntimeFailure(
            f"the namespaces of the node cannot be made: {text[-1] if text else 'the fork server did not start'}; "
            "check that this user may create user namespaces (unshare -Urn true), or run as root"
        )
