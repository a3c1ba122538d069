"""Protocols of byte streams on a connection.

asyncio's StreamReader and StreamWriter fulfil them; so do the streams of a process and the streams multiplexed on one
connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

_CHUNK = 65536


class ByteReader(Protocol):
    async def read(self, n: int, /) -> bytes:
        """Return 1 to `n` bytes; empty at the end. Raise ConnectionError if the connection is lost."""


class ByteWriter(Protocol):
    def write(self, data: bytes, /) -> None:
        """Send the data, or buffer it."""

    async def drain(self) -> None:
        """Return when more may be written. Raise ConnectionError if the peer has closed."""

    def write_eof(self) -> None:
        """End writing; reading continues. Raise NotImplementedError if the connection cannot be half closed."""

    def close(self) -> None:
        """Send the buffered data and close."""


class Duplex(NamedTuple):
    """Both directions of a connection."""

    reader: ByteReader
    writer: ByteWriter


class ProxyResponse(Protocol):
    """The response of another server to a proxied request. The receiver must close it."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]: ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives. Raise OSError if the connection is lost."""

    def close(self) -> None: ...


async def relay(outside: Duplex, inside: Duplex) -> None:
    """Copy both directions between two connections until both have ended, then close them."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_copy_to_end(outside.reader, inside.writer))
            group.create_task(_copy_to_end(inside.reader, outside.writer))
    finally:
        outside.writer.close()
        inside.writer.close()


async def copy(source: ByteReader, target: ByteWriter) -> None:
    """Copy bytes, no faster than they are taken, until the source ends."""
    while data := await source.read(_CHUNK):
        target.write(data)
        await target.drain()


async def _copy_to_end(source: ByteReader, target: ByteWriter) -> None:
    try:
        await copy(source, target)
        target.write_eof()
    except NotImplementedError:
        pass  # It cannot be half closed: the end of the other direction closes it.
    except (OSError, RuntimeError):  # ENOTCONN is no ConnectionError; a transport that is closing raises RuntimeError.
        target.close()  # So that the other direction ends, too.
