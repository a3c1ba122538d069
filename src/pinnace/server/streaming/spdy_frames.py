"""The frames of SPDY/3.1, as far as Kubernetes' clients use them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping

SYN_STREAM, SYN_REPLY, RST_STREAM, SETTINGS, PING, GOAWAY, HEADERS, WINDOW_UPDATE = 1, 2, 3, 4, 6, 7, 8, 9
FIN = 0x01
PROTOCOL_ERROR, REFUSED_STREAM, CANCEL = 1, 3, 5

HEAD = 8
"""The length of a frame's head."""
LARGEST_CONTROL = 256 * 1024
LARGEST_HEADERS = 1 << 20
LARGEST_DATA = (1 << 24) - 1

_CONTROL = 1 << 31
_VERSION = 3
_WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow "
    "authorization cache-control connection content-base content-encoding content-language content-length "
    "content-location content-md5 content-range content-type date etag expect expires from host if-match "
    "if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma "
    "proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade "
    "user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie "
    "keep-alive origin"
)
_TAIL = (
    b"100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    b"203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized"
    b"403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    b"Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    b"chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,"
    b"text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def _counted(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


# What both sides' compression begins with: each word after its length, then fragments of common headers.
_DICTIONARY = b"".join(_counted(word.replace("_", " ").encode()) for word in _WORDS.split()) + _TAIL


class SpdyError(ConnectionError):
    """The other side does not keep to the protocol."""


class HeaderPacker:
    """Packs the headers of one direction: each block is packed with what those before it had in common with it."""

    def __init__(self) -> None:
        self._packer = zlib.compressobj(zdict=_DICTIONARY)

    def pack(self, headers: Mapping[str, str]) -> bytes:
        pairs = [_counted(name.lower().encode()) + _counted(value.encode()) for name, value in headers.items()]
        block = struct.pack(">I", len(pairs)) + b"".join(pairs)
        return self._packer.compress(block) + self._packer.flush(zlib.Z_SYNC_FLUSH)


class HeaderUnpacker:
    """Unpacks the headers of the other direction."""

    def __init__(self) -> None:
        self._unpacker = zlib.decompressobj(zdict=_DICTIONARY)

    def unpack(self, data: bytes) -> dict[str, str]:
        """Names are in lower case. Raises SpdyError for what is not packed well, or is too much when unpacked."""
        try:
            block = self._unpacker.decompress(data, LARGEST_HEADERS)
        except zlib.error as error:
            raise SpdyError(f"headers that cannot be unpacked: {error}") from None
        if self._unpacker.unconsumed_tail:
            raise SpdyError("headers that are too long")
        try:
            return _pairs(block)
        except (struct.error, ValueError):
            raise SpdyError("headers that cannot be read") from None


def _pairs(block: bytes) -> dict[str, str]:
    (count,) = struct.unpack_from(">I", block)
    at, pairs = 4, {}
    for _ in range(count):
        name, at = _word(block, at)
        value, at = _word(block, at)
        pairs[name.lower()] = value
    return pairs


def _word(block: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">I", block, at)
    end = at + 4 + size
    if end > len(block):
        raise ValueError("a word that is longer than its block")
    return block[at + 4 : end].decode(), end


def control(kind: int, flags: int, body: bytes) -> bytes:
    return struct.pack(">HHI", 0x8000 | _VERSION, kind, flags << 24 | len(body)) + body


def data(stream: int, body: bytes, *, flags: int = 0) -> bytes:
    return struct.pack(">II", stream, flags << 24 | len(body)) + body


def syn_stream(stream: int, headers: bytes) -> bytes:
    return control(SYN_STREAM, 0, struct.pack(">IIH", stream, 0, 0) + headers)


def syn_reply(stream: int, headers: bytes) -> bytes:
    return control(SYN_REPLY, 0, struct.pack(">I", stream) + headers)


def rst_stream(stream: int, status: int) -> bytes:
    return control(RST_STREAM, 0, struct.pack(">II", stream, status))


def ping(number: int) -> bytes:
    return control(PING, 0, struct.pack(">I", number))


def goaway(last: int) -> bytes:
    return control(GOAWAY, 0, struct.pack(">II", last, 0))


def head_of(head: bytes) -> tuple[int, int, int, int]:
    """Kind (0 for data), the data's stream, flags, and the length of what follows."""
    first, second = struct.unpack(">II", head)
    flags, size = second >> 24, second & 0xFFFFFF
    if not first & _CONTROL:
        return 0, first, flags, size
    if first >> 16 & 0x7FFF != _VERSION:
        raise SpdyError(f"version {first >> 16 & 0x7FFF} of SPDY is not spoken here")
    if size > LARGEST_CONTROL:
        raise SpdyError("a control frame that is too long")
    return first & 0xFFFF, 0, flags, size


def number_of(body: bytes, at: int = 0) -> int:
    """A number that a control frame begins with, or has at a place. Raises SpdyError if it is too short for that."""
    try:
        (number,) = struct.unpack_from(">I", body, at)
    except struct.error:
        raise SpdyError("a control frame that is too short") from None
    return int(number) & 0x7FFFFFFF
