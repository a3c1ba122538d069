"""The Protocol that sends a request and returns its answer: over HTTP, or by a call within the process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol, cast, runtime_checkable

from pinnace.model.errors import ApiError
from pinnace.model.objects import Object, ObjectEvent


@dataclass(frozen=True, slots=True)
class Answer:
    """One complete answer. Header names are lower-case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class ConnectionLost(Exception):
    """The server could not be reached, or the connection ended before the answer.

    `was_sent` is false if the server cannot have received the request: it is then safe to send it again.
    """

    def __init__(self, message: str, *, was_sent: bool) -> None:
        super().__init__(message)
        self.was_sent = was_sent


class Untrusted(ConnectionLost):
    """The server's certificate is not trusted. A retry would not help."""

    def __init__(self, message: str) -> None:
        super().__init__(message, was_sent=False)


class Stream(Protocol):
    """An answer that goes on. Iterate over it, and close it when done; closing twice is harmless."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield its bytes in arbitrary chunks until the answer ends. Raise ConnectionLost if it is truncated."""

    async def close(self) -> None: ...


class EventStream(Protocol):
    """A watch: chunks of lines, or events that were never encoded as lines. Close it when done."""

    def __aiter__(self) -> AsyncIterator[bytes | ObjectEvent]:
        """Yield until the watch ends. Raise ConnectionLost if it is truncated."""

    async def close(self) -> None: ...


class Socket(Protocol):
    """A WebSocket: messages both ways. Closing twice is harmless."""

    @property
    def protocol(self) -> str:
        """The subprotocol that the server has chosen."""

    async def receive(self) -> bytes | None:
        """Return the next message; None when the server has closed. Raise ConnectionLost."""

    async def send(self, data: bytes) -> None:
        """Send a message; return when more may be sent. Raise ConnectionLost."""

    async def close(self) -> None: ...


class Transport(Protocol):
    """Both requests raise ConnectionLost, and `credentials.NoCredentials` if there are no credentials."""

    async def request(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Send one request and return its answer. `target` is the encoded path with its query."""

    async def stream(self, target: str, headers: Mapping[str, str], *, silence: float) -> Stream | Answer:
        """GET a stream; return an answer instead if the server rejects the request.

        A connection that is silent for `silence` seconds counts as lost: TCP alone would not notice.
        """

    async def close(self) -> None: ...


@runtime_checkable
class BatchTransport(Protocol):
    """A transport that can also write several objects at once: one to a server in this process."""

    async def write_many(
        self, method: str, target: str, objects: list[Object], headers: Mapping[str, str]
    ) -> list[ApiError | None] | None:
        """Create (POST), patch (PATCH) or delete (DELETE) objects; return their errors.

        Return None if each needs its own request. The caller gives the objects away. `target` names the first of them,
        unless they are created in a collection.
        """


@runtime_checkable
class WatchTransport(Protocol):
    """A transport that can also watch objects without encoding each event: one to a server in this process."""

    async def watch(self, target: str, headers: Mapping[str, str]) -> EventStream | Answer:
        """Watch; return an answer instead if the server rejects the request."""


def watch_transport(transport: Transport) -> WatchTransport | None:
    """Return a transport that can watch objects without encoding them; None if this one cannot."""
    return transport if isinstance(transport, WatchTransport) else None


def batch_transport(transport: Transport) -> BatchTransport | None:
    """Return a transport that can create several objects at once; None if this one cannot."""
    return cast("BatchTransport", transport) if _takes_batches(type(transport)) else None


@cache
def _takes_batches(kind: type) -> bool:
    return issubclass(kind, BatchTransport)  # Once for each type: a check of a Protocol costs as much as a read.


@runtime_checkable
class SocketTransport(Protocol):
    """A transport that can also open WebSockets."""

    async def open_socket(self, target: str, headers: Mapping[str, str], protocols: Sequence[str]) -> Socket | Answer:
        """Open a WebSocket with one of the subprotocols, or return the answer that rejects it."""
