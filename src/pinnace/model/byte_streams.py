"""Bytes that come and go while a connection lasts: what the two sides of a stream may rely on of each other.

asyncio's StreamReader and StreamWriter are such; so are the streams of a process, or one of many on a connection.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol


class ByteReader(Protocol):
    async def read(self, n: int, /) -> bytes:
        """At least one byte and at most `n`; empty at the end. Raises ConnectionError if the connection is lost."""


class ByteWriter(Protocol):
    def write(self, data: bytes, /) -> None:
        """Send, or keep until it can be sent."""

    async def drain(self) -> None:
        """Return when more may be written. Raises ConnectionError if the other side has gone."""

    def write_eof(self) -> None:
        """Nothing more is written; reading goes on. NotImplementedError where a connection cannot be half closed."""

    def close(self) -> None:
        """Send what is kept, and end."""


class Duplex(NamedTuple):
    """Both directions of a connection."""

    reader: ByteReader
    writer: ByteWriter


class HttpAnswer(Protocol):
    """What another server says to a request that was passed on to it. Whoever gets one closes it."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]: ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises OSError if the connection is lost."""

    def close(self) -> None: ...
