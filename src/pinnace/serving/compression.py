"""gzip for large responses: shared pieces are compressed once, whatever each response begins with."""

from __future__ import annotations

import asyncio
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from pinnace.process.eager_coroutines import NowOrLater
from pinnace.serving.recent_values import RecentValues

MOST_BYTES = 32 << 20
"""The total size that is kept for a while, compressed and uncompressed."""

_LEVEL = 1  # Most of the gain for a tenth of the time.
_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"  # Deflate, no name, no time, fastest level, unknown system.
_LAST_BLOCK = b"\x03\x00"
_ONE = 1 << 31  # Polynomials modulo that of CRC-32, lowest power first.
_X = 1 << 30
_CRC_32 = 0xEDB88320


_SMALL = 1024
"""A smaller piece is compressed at once, each time."""

COMPRESSOR = ThreadPoolExecutor(max_workers=1, thread_name_prefix="gzip")
"""One thread, though zlib releases the interpreter's lock: several would leave the event loop no processor."""


class CompressedPiece(NamedTuple):
    """A piece of a body, compressed so that it can follow any other."""

    data: bytes
    crc: int
    size: int
    shift: int
    """The factor for the checksum of the bytes that precede it."""


class GzipCache:
    """Compresses bodies whose pieces after the first are shared by several responses, such as the items of a list.

    A piece is compressed in a thread, because that takes long and releases the interpreter's lock. Requests that need
    the same piece meanwhile wait for the same result.
    """

    def __init__(self, *, most_bytes: int = MOST_BYTES) -> None:
        self._done: RecentValues[tuple[bytes, CompressedPiece]] = RecentValues(most_bytes)
        """By the id of a piece: the piece, which keeps the id its own, and the compressed piece."""
        self._pending: dict[int, asyncio.Future[CompressedPiece]] = {}

    def compress(self, pieces: list[bytes]) -> NowOrLater[list[bytes]]:
        begin, *rest = pieces
        self._done.make_room(2 * sum(map(len, rest)))
        return self.find(pieces) or _join_when_compressed(begin, [self._compress(piece) for piece in rest])

    def find(self, pieces: list[bytes]) -> list[bytes] | None:
        """Return the compressed body if all large pieces after the first are compressed already."""
        begin, *rest = pieces
        results: list[CompressedPiece] = []
        for piece in rest:
            if len(piece) < _SMALL:
                results.append(compress_piece(piece))
                continue
            done = self._done.get(id(piece))
            if done is None:
                return None
            results.append(done[1])
        return join_compressed(begin, results)

    def _compress(self, piece: bytes) -> CompressedPiece | asyncio.Future[CompressedPiece]:
        if len(piece) < _SMALL:
            return compress_piece(piece)
        done = self._done.get(id(piece))
        if done is not None:
            return done[1]
        pending = self._pending.get(id(piece))
        if pending is None:
            pending = asyncio.get_running_loop().run_in_executor(COMPRESSOR, compress_piece, piece)
            self._pending[id(piece)] = pending
            pending.add_done_callback(lambda done: self._keep(piece, done))
        return pending

    def _keep(self, piece: bytes, pending: asyncio.Future[CompressedPiece]) -> None:
        del self._pending[id(piece)]
        if not pending.cancelled() and pending.exception() is None:  # Else the next request tries again.
            done = pending.result()
            self._done.put(id(piece), (piece, done), len(piece) + len(done.data))


def compress_piece(piece: bytes) -> CompressedPiece:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    data = packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH)
    return CompressedPiece(data, zlib.crc32(piece), len(piece), _power_of_x(8 * len(piece)))


def join_compressed(begin: bytes, rest: list[CompressedPiece]) -> list[bytes]:
    """Return the gzip file of a beginning and the pieces after it, in pieces."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    first = packer.compress(begin) + packer.flush(zlib.Z_FULL_FLUSH)
    crc, size = zlib.crc32(begin), len(begin)
    for piece in rest:
        crc, size = _product(piece.shift, crc) ^ piece.crc, size + piece.size
    trailer = struct.pack("<II", crc, size & 0xFFFFFFFF)
    return [_HEADER + first, *(piece.data for piece in rest), _LAST_BLOCK + trailer]


def compress_whole(body: bytes) -> bytes:
    """Return the gzip file of a body whose end is not shared."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


async def _join_when_compressed(
    begin: bytes, rest: list[CompressedPiece | asyncio.Future[CompressedPiece]]
) -> list[bytes]:
    # A cancelled request must not cancel the compression for the others.
    compressed = [piece if isinstance(piece, CompressedPiece) else await asyncio.shield(piece) for piece in rest]
    return join_compressed(begin, compressed)


def _power_of_x(exponent: int) -> int:
    power, square = _ONE, _X
    while exponent:
        if exponent & 1:
            power = _product(power, square)
        square = _product(square, square)
        exponent >>= 1
    return power


def _product(factor: int, other: int) -> int:
    """Multiply two polynomials over GF(2), modulo the polynomial of CRC-32."""
    result, bit = 0, _ONE
    while bit:
        if factor & bit:
            result ^= other
        other = (other >> 1) ^ _CRC_32 if other & 1 else other >> 1
        bit >>= 1
    return result
