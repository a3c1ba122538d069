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


def _with_length(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


# The preset dictionary of the header compression: each word after its length, then parts of common headers.
_DICTIONARY = b"".join(_with_length(word.replace("_", " ").encode()) for word in _WORDS.split()) + _TAIL


class SpdyError(ConnectionError):
    """The peer breaks the protocol."""


class HeaderPacker:
    """Compresses the headers of one direction. Each block is compressed relative to the blocks before it."""

    def __init__(self) -> None:
        self._packer = zlib.compressobj(zdict=_DICTIONARY)

    def pack(self, headers: Mapping[str, str]) -> bytes:
        pairs = [_with_length(name.lower().encode()) + _with_length(value.encode()) for name, value in headers.items()]
        block = struct.pack(">I", len(pairs)) + b"".join(pairs)
        return self._packer.compress(block) + self._packer.flush(zlib.Z_SYNC_FLUSH)


class HeaderUnpacker:
    """Decompresses the headers of the other direction."""

    def __init__(self) -> None:
        self._unpacker = zlib.decompressobj(zdict=_DICTIONARY)

    def unpack(self, data: bytes) -> dict[str, str]:
        """Return the headers with lower-case names. Raise SpdyError if they are malformed or too large."""
        try:
            block = self._unpacker.decompress(data, LARGEST_HEADERS)
        except zlib.error as error:
            raise SpdyError(f"malformed compressed headers: {error}") from None
        if self._unpacker.unconsumed_tail:
            raise SpdyError(f"headers larger than {LARGEST_HEADERS} bytes")
        try:
            return _pairs(block)
        except (struct.error, ValueError):
            raise SpdyError("malformed headers") from None


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
        raise ValueError("a text is longer than its block")
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
    """Return the type (0 for data), the stream of a data frame, the flags, and the length of the payload."""
    first, second = struct.unpack(">II", head)
    flags, size = second >> 24, second & 0xFFFFFF
    if not first & _CONTROL:
        return 0, first, flags, size
    if first >> 16 & 0x7FFF != _VERSION:
        raise SpdyError(f"expected SPDY version {_VERSION}, found {first >> 16 & 0x7FFF}")
    if size > LARGEST_CONTROL:
        raise SpdyError(f"a control frame larger than {LARGEST_CONTROL} bytes")
    return first & 0xFFFF, 0, flags, size


def number_of(body: bytes, at: int = 0) -> int:
    """Return the number at an offset of a control frame. Raise SpdyError if the frame is too short."""
    try:
        (number,) = struct.unpack_from(">I", body, at)
    except struct.error:
        raise SpdyError("a control frame is too short") from None
    return int(number) & 0x7FFFFFFF
