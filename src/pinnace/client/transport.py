"""What carries a request to a server and its answer back: HTTP, or a call within the process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole answer. Header names are lower-case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class ConnectionLost(Exception):
    """The server could not be reached, or went away before it had answered.

    `was_sent` is false where the server cannot have seen the request: it is then safe to send it again.
    """

    def __init__(self, message: str, *, was_sent: bool) -> None:
        super().__init__(message)
        self.was_sent = was_sent


class Untrusted(ConnectionLost):
    """Somebody answered who cannot prove to be the server. To try again soon would not help."""

    def __init__(self, message: str) -> None:
        super().__init__(message, was_sent=False)


class Stream(Protocol):
    """An answer that goes on. Iterate over it, and close it when done; closing twice is harmless."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Its bytes as they come, cut anywhere. Ends with the answer; raises ConnectionLost if that was cut short."""

    async def close(self) -> None: ...


class Socket(Protocol):
    """A WebSocket: messages both ways. Closing twice is harmless."""

    @property
    def protocol(self) -> str:
        """The one that the server has chosen of those it was offered."""

    async def receive(self) -> bytes | None:
        """The next message; None when the server has closed. Raises ConnectionLost."""

    async def send(self, data: bytes) -> None:
        """Returns when more may be sent. Raises ConnectionLost."""

    async def close(self) -> None: ...


class Transport(Protocol):
    """Both requests raise ConnectionLost, and `credentials.NoCredentials` where it cannot be said who is calling."""

    async def request(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """One request and its whole answer. `target` is the path with its query, encoded."""

    async def stream(self, target: str, headers: Mapping[str, str], *, silence: float) -> Stream | Answer:
        """GET an answer that goes on, or the answer that refuses it.

        A connection on which nothing comes for `silence` seconds is taken for lost: nobody else would tell.
        """

    async def close(self) -> None: ...


@runtime_checkable
class SocketTransport(Protocol):
    """A transport that can also go on as a WebSocket."""

    async def open_socket(self, target: str, headers: Mapping[str, str], protocols: Sequence[str]) -> Socket | Answer:
        """One that speaks one of the protocols, or the answer that refuses it. Raises as a request does."""
