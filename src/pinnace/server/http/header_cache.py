"""Parses each distinct block of request headers once: clients repeat the same headers in every request."""

from __future__ import annotations

import re
from typing import TypeAlias

BEARER = b"bearer "
IMPERSONATE = b"impersonate-"

_MOST_KNOWN = 1000
_MOST_BYTES = 4096
_LENGTH = b"\r\nContent-Length: "
_MOST_DIGITS = 9

# The first line of most requests. All others are left to llhttp, which rejects the malformed ones.
_FIRST_LINE = re.compile(rb"(GET|POST|PUT|PATCH|DELETE) ((/[!-\"$&->@-~]*)(?:\?([!-\"$-~]*))?) HTTP/1\.1")


class RequestHead:
    """The headers of a request without Content-Length. Shared among requests: do not change it."""

    __slots__ = (
        "accept",
        "agent",
        "bearer",
        "content_type",
        "headers",
        "impersonates",
        "is_browser",
        "repeated",
        "takes_gzip",
    )

    def __init__(self, headers: dict[bytes, bytes], repeated: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        self.headers = headers
        """The first value of each header. Names are lower-case."""
        self.repeated = repeated
        """The second and later values of repeated headers, in order."""
        self.accept = headers.get(b"accept", b"").decode("latin-1")
        self.content_type = headers.get(b"content-type", b"").decode("latin-1")
        agent = headers.get(b"user-agent", b"")
        self.agent = agent.decode("latin-1").partition("/")[0][:128] or "unknown"
        """The product name of the User-Agent."""
        self.is_browser = agent.startswith((b"curl", b"Wget", b"Mozilla/5.0"))
        """A person reads the response: indent JSON."""
        credentials = headers.get(b"authorization", b"")
        is_bearer = credentials[:7].lower() == BEARER
        self.bearer = (credentials[7:].decode("latin-1").strip() or None) if is_bearer else None
        """The bearer token."""
        self.takes_gzip = b"gzip" in headers.get(b"accept-encoding", b"")
        self.impersonates = any(name.startswith(IMPERSONATE) for name in headers)
        """The request has impersonation headers."""

    def pairs(self) -> list[tuple[bytes, bytes]]:
        """Return every value of every header."""
        return [*self.headers.items(), *self.repeated]


ParsedRequest: TypeAlias = tuple[str, str, str, str, RequestHead, bytes]
"""Method, target, path, query, headers and body."""


class HeaderCache:
    """Blocks of headers that llhttp has parsed before, and whole requests without a body.

    Blocks are equal if their bytes are, except for Content-Length. A request is looked up only if it arrived in one
    piece and nothing follows it.
    """

    __slots__ = ("_known", "_whole")

    def __init__(self) -> None:
        self._known: dict[bytes, RequestHead] = {}
        self._whole: dict[bytes, ParsedRequest] = {}

    def read(self, data: bytes, most: int) -> ParsedRequest | None:
        """Return the request in `data`, with at most `most` bytes of body; None if llhttp must parse it."""
        if data.endswith(b"\r\n\r\n"):
            whole = self._whole.get(data)
            if whole is not None:
                return whole
        start = data.find(b"\r\n")
        end = data.find(b"\r\n\r\n", start)
        if end < 0:
            return None
        block, size = data[start:end], 0
        if _LENGTH in block:
            block, size = _split(block)
        head = self._known.get(block)
        if head is None or len(data) != end + 4 + size or size > most:
            return None
        line = _FIRST_LINE.fullmatch(data, 0, start)
        if line is None:
            return None
        method, target, path, query = line.groups(b"")
        known = method.decode(), target.decode(), path.decode(), query.decode(), head, data[end + 4 :]
        if not size and len(data) <= _MOST_BYTES:
            if len(self._whole) >= _MOST_KNOWN:
                self._whole.clear()
            self._whole[data] = known
        return known

    def learn(self, data: bytes, head: RequestHead, size: int) -> None:
        """Remember the head that llhttp has parsed from `data`, which begins with one whole request.

        `size` is the Content-Length of the request.
        """
        start, end = data.find(b"\r\n"), data.find(b"\r\n\r\n")
        if end - start > _MOST_BYTES or _FIRST_LINE.fullmatch(data, 0, start) is None:
            return
        block, length = _split(data[start:end])
        if length == size and not head.headers.keys() & _NEVER_CACHED:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[block] = head


_NEVER_CACHED = frozenset((b"expect", b"transfer-encoding", b"upgrade"))
"""Headers that change how the rest of the connection is read."""


def _split(block: bytes) -> tuple[bytes, int]:
    """Return a block of headers without the value of Content-Length, and that value; -1 if it is malformed."""
    at = block.find(_LENGTH)
    if at < 0:
        return block, 0
    at += len(_LENGTH)
    after = block.find(b"\r\n", at)
    digits = block[at:] if after < 0 else block[at:after]
    if not digits.isdigit() or len(digits) > _MOST_DIGITS:
        return block, -1
    return block[:at] + (b"" if after < 0 else block[after:]), int(digits)
