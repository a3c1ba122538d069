"""What the heads of requests say, worked out once: clients ask for the same again, with the same headers each time."""

from __future__ import annotations

import re
from typing import TypeAlias

BEARER = b"bearer "
IMPERSONATE = b"impersonate-"

_MOST_KNOWN = 1000
_MOST_BYTES = 4096
_LENGTH = b"\r\nContent-Length: "
_MOST_DIGITS = 9

# The beginning of most requests. What is written otherwise is read by the parser, and refused there if need be.
_FIRST_LINE = re.compile(rb"(GET|POST|PUT|PATCH|DELETE) ((/[!-\"$&->@-~]*)(?:\?([!-\"$-~]*))?) HTTP/1\.1")


class RequestHead:
    """The headers of a request, but for the length of its body. Shared among requests: nobody changes it."""

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
        """The first value of each. Names are lower-case."""
        self.repeated = repeated
        """The second and later values of those that came more than once, in order."""
        self.accept = headers.get(b"accept", b"").decode("latin-1")
        self.content_type = headers.get(b"content-type", b"").decode("latin-1")
        agent = headers.get(b"user-agent", b"")
        self.agent = agent.decode("latin-1").partition("/")[0][:128] or "unknown"
        """The first word of what the client says that it is."""
        self.is_browser = agent.startswith((b"curl", b"Wget", b"Mozilla/5.0"))
        """People look at what it shows."""
        shown = headers.get(b"authorization", b"")
        self.bearer = (shown[7:].decode("latin-1").strip() or None) if shown[:7].lower() == BEARER else None
        """The token that is shown."""
        self.takes_gzip = b"gzip" in headers.get(b"accept-encoding", b"")
        self.impersonates = any(name.startswith(IMPERSONATE) for name in headers)
        """Whether the client wants to act as somebody else."""

    def pairs(self) -> list[tuple[bytes, bytes]]:
        """Every value of every header."""
        return [*self.headers.items(), *self.repeated]


ParsedRequest: TypeAlias = tuple[str, str, str, str, RequestHead, bytes]
"""Method, target, path, query, headers and body."""


class HeaderCache:
    """Every block of headers that came, as it was understood: the parser reads each once.

    Blocks are the same if they are so to the byte, but for the length of the body. A request is read here only if it
    came in one piece and nothing follows it. Those without a body are remembered whole.
    """

    __slots__ = ("_known", "_whole")

    def __init__(self) -> None:
        self._known: dict[bytes, RequestHead] = {}
        self._whole: dict[bytes, ParsedRequest] = {}

    def read(self, data: bytes, most: int) -> ParsedRequest | None:
        """The request that `data` is, with `most` so many bytes of body; None if the parser has to look at it."""
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
        """What the parser has found in `data`, which begins with a request, and has the whole of it.

        `size` is that of its body, by its Content-Length.
        """
        start, end = data.find(b"\r\n"), data.find(b"\r\n\r\n")
        if end - start > _MOST_BYTES or _FIRST_LINE.fullmatch(data, 0, start) is None:
            return
        block, told = _split(data[start:end])
        if told == size and not head.headers.keys() & _SAYS_MORE:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[block] = head


_SAYS_MORE = frozenset((b"expect", b"transfer-encoding", b"upgrade"))
"""Headers that decide how the rest is read."""


def _split(block: bytes) -> tuple[bytes, int]:
    """A block of headers without the length of the body, and that length."""
    at = block.find(_LENGTH)
    if at < 0:
        return block, 0
    at += len(_LENGTH)
    after = block.find(b"\r\n", at)
    digits = block[at:] if after < 0 else block[at:after]
    if not digits.isdigit() or len(digits) > _MOST_DIGITS:
        return block, -1
    return block[:at] + (b"" if after < 0 else block[after:]), int(digits)
