"""The interface of the API server to the node of a pod: a part of this process, or a kubelet.

Methods raise ApiError, which the client receives unchanged. A call is cancelled when its client disconnects.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from pinnace.process.byte_streams import ByteReader, ByteWriter, Duplex, ProxyResponse


@dataclass(frozen=True, slots=True)
class PodAddress:
    """One pod, identified by its uid, so that a later pod of the same name differs."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class TerminalSize:
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class CommandStreams:
    """The streams of a command. A stream that the client does not want is None."""

    stdin: ByteReader | None = None
    stdout: ByteWriter | None = None
    stderr: ByteWriter | None = None
    sizes: AsyncIterator[TerminalSize] | None = None
    """The sizes of the terminal, one after the other; None without a terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerLogOptions:
    follow: bool = False
    previous: bool = False
    """Read the logs of the previous, restarted container."""
    timestamps: bool = False
    since_seconds: int | None = None
    since_time: str = ""
    """An RFC 3339 time. At most one of this and `since_seconds` is set."""
    tail_lines: int | None = None
    limit_bytes: int | None = None


class NodeConnection(Protocol):
    """A connection to one node."""

    @property
    def host(self) -> str:
        """The name or address of the machine; empty for a node in this process: only it can reach the pods."""

    async def reach(self) -> None:
        """Raise OSError if the node cannot be reached. Called before a stream begins."""

    async def exec(self, pod: PodAddress, container: str, command: Sequence[str], streams: CommandStreams) -> int:
        """Run a command in a container, and return its exit code after all its output is written."""

    async def attach(self, pod: PodAddress, container: str, streams: CommandStreams) -> int:
        """Attach to the process of the container, and return its exit code; 0 if it cannot be known."""

    async def logs(self, pod: PodAddress, container: str, options: ContainerLogOptions) -> AsyncIterator[bytes]:
        """Yield the output of the container, and future output if the client follows."""

    async def connect(self, pod: PodAddress, port: int) -> Duplex:
        """Connect to a port, as from within the pod. Raise OSError if nothing listens there.

        The writer is an asyncio.StreamWriter if clients may reach the pod over HTTPS.
        """

    async def ask(
        self, method: str, target: str, headers: Sequence[tuple[bytes, bytes]], body: bytes, *, upgrade: bytes = b""
    ) -> ProxyResponse:
        """Send a request to the node's web server. Raise OSError if it cannot be reached.

        `upgrade` names a protocol that the client wants to switch to; a node may respond without it.
        """


class NodeConnections(Protocol):
    """The connections to the nodes."""

    def find(self, node: str) -> NodeConnection:
        """Raise KeyError if there is no such node, and an ApiError if it has no usable address."""
