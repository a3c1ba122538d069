"""gzip for large responses: a shared end is compressed once, whatever each response begins with."""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import Awaitable
from typing import NamedTuple

MOST_BYTES = 16 << 20
"""The total size that is kept, compressed and uncompressed."""

_LEVEL = 1  # Most of the gain for a tenth of the time.
_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"  # Deflate, no name, no time, fastest level, unknown system.
_LAST_BLOCK = b"\x03\x00"
_ONE = 1 << 31  # Polynomials modulo that of CRC-32, lowest power first.
_X = 1 << 30
_CRC_32 = 0xEDB88320


class CompressedEnd(NamedTuple):
    """The end of a body, compressed so that it can follow any beginning."""

    data: bytes
    crc: int
    size: int
    shift: int
    """The factor for the checksum of the beginning that precedes it."""


class GzipCache:
    """Compresses bodies whose last piece is large and shared by several responses, such as the items of a kept list.

    The end is compressed in a thread, because that takes long and releases the interpreter's lock. Requests that need
    the same end meanwhile wait for the same result.
    """

    def __init__(self, *, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._known: dict[int, tuple[bytes, asyncio.Future[CompressedEnd]]] = {}

    def compress(self, pieces: list[bytes]) -> list[bytes] | Awaitable[list[bytes]]:
        *begin, end = pieces
        known = self._known.get(id(end))
        if known is None:  # A known one is kept alive, so that no other object can have its id.
            pending: asyncio.Future[CompressedEnd] = asyncio.get_running_loop().run_in_executor(None, compress_end, end)
            self._known[id(end)] = (end, pending)
            pending.add_done_callback(lambda done: self._keep(end, done))
        elif known[1].done():
            return join_compressed(b"".join(begin), known[1].result())
        else:
            pending = known[1]
        return _join_when_compressed(b"".join(begin), pending)

    def find(self, pieces: list[bytes]) -> list[bytes] | None:
        """Return the compressed body if its last piece is compressed already."""
        known = self._known.get(id(pieces[-1]))
        if known is None or not known[1].done():
            return None
        return join_compressed(b"".join(pieces[:-1]), known[1].result())

    def _keep(self, end: bytes, done: asyncio.Future[CompressedEnd]) -> None:
        if done.cancelled() or done.exception() is not None:
            del self._known[id(end)]  # Waiting requests get the error; the next one tries again.
            return
        self._bytes += _size_of(end, done.result())
        for key, (oldest, packing) in list(self._known.items()):
            if self._bytes <= self._most_bytes:
                return
            if packing.done():
                self._bytes -= _size_of(oldest, packing.result())
                del self._known[key]


def compress_end(end: bytes) -> CompressedEnd:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    data = packer.compress(end) + packer.flush(zlib.Z_FULL_FLUSH)
    return CompressedEnd(data, zlib.crc32(end), len(end), _power_of_x(8 * len(end)))


def join_compressed(begin: bytes, end: CompressedEnd) -> list[bytes]:
    """Return the gzip file of a beginning and an end, in pieces."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    first = packer.compress(begin) + packer.flush(zlib.Z_FULL_FLUSH)
    crc = _product(end.shift, zlib.crc32(begin)) ^ end.crc
    trailer = struct.pack("<II", crc, (len(begin) + end.size) & 0xFFFFFFFF)
    return [_HEADER + first, end.data, _LAST_BLOCK + trailer]


def compress_whole(body: bytes) -> bytes:
    """Return the gzip file of a body whose end is not shared."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


async def _join_when_compressed(begin: bytes, pending: asyncio.Future[CompressedEnd]) -> list[bytes]:
    return join_compressed(
        begin, await asyncio.shield(pending)
    )  # A cancelled request must not cancel it for the others.


def _size_of(end: bytes, done: CompressedEnd) -> int:
    return len(end) + len(done.data)


def _power_of_x(exponent: int) -> int:
    power, square = _ONE, _X
    while exponent:
        if exponent & 1:
            power = _product(power, square)
        square = _product(square, square)
        exponent >>= 1
    return power


def _product(one: int, other: int) -> int:
    """Multiply two polynomials over GF(2), modulo the polynomial of CRC-32."""
    result, bit = 0, _ONE
    while bit:
        if one & bit:
            result ^= other
        other = (other >> 1) ^ _CRC_32 if other & 1 else other >> 1
        bit >>= 1
    return result
