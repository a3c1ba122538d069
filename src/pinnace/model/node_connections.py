"""What the API server asks of the node that a pod runs on, whoever that is: a part of this process, or a kubelet.

A refusal is an ApiError, and goes to the client as it is. A call is cancelled when its client leaves.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from pinnace.model.byte_streams import ByteReader, ByteWriter, Duplex, HttpAnswer


@dataclass(frozen=True, slots=True)
class PodAddress:
    """One pod, and no later one of its name."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class TerminalSize:
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class CommandStreams:
    """What a command reads and writes. A stream that the client does not want is None."""

    stdin: ByteReader | None = None
    stdout: ByteWriter | None = None
    stderr: ByteWriter | None = None
    sizes: AsyncIterator[TerminalSize] | None = None
    """The command is to have a terminal, of these sizes one after the other; without it, it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    follow: bool = False
    previous: bool = False
    """Of the container before this one, that was restarted."""
    timestamps: bool = False
    since_seconds: int | None = None
    since_time: str = ""
    """As RFC 3339 has it. Either this or `since_seconds`, or neither."""
    tail_lines: int | None = None
    limit_bytes: int | None = None


class NodeConnection(Protocol):
    """The way to one node."""

    @property
    def host(self) -> str:
        """The name or address of the machine; empty if it is a part of this process, whose pods only it can reach."""

    async def reach(self) -> None:
        """Raises OSError if the node cannot be reached now: clients are told before they begin to talk."""

    async def exec(self, pod: PodAddress, container: str, command: Sequence[str], streams: CommandStreams) -> int:
        """Run a command in a container, and return its exit code when all it wrote is written."""

    async def attach(self, pod: PodAddress, container: str, streams: CommandStreams) -> int:
        """Join the process that the container runs, and return its exit code; 0 if that cannot be known."""

    async def logs(self, pod: PodAddress, container: str, options: LogOptions) -> AsyncIterator[bytes]:
        """What the container has written, and if the client follows, what it goes on to write."""

    async def connect(self, pod: PodAddress, port: int) -> Duplex:
        """A connection to a port, as from within the pod. Raises OSError if nobody listens there.

        Its writer is an asyncio.StreamWriter where clients are to reach the pod over HTTPS.
        """

    async def ask(
        self, method: str, target: str, headers: Sequence[tuple[bytes, bytes]], body: bytes, *, upgrade: bytes = b""
    ) -> HttpAnswer:
        """Pass a request to the node's own web server. Raises OSError if it cannot be reached.

        `upgrade` names a protocol that the client wants to go on with; a node may answer without it.
        """


class NodeConnections(Protocol):
    """The ways to the nodes there are."""

    def find(self, node: str) -> NodeConnection:
        """Raises KeyError if there is no such node, and an ApiError if it says nowhere how it is reached."""
