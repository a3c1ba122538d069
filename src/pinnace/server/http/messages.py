"""What passes between the wire and the handlers: requests, the kinds of answer, and the errors of this layer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol
from urllib.parse import unquote_plus, unquote_to_bytes

import orjson

from pinnace.server.http.audit_context import AuditNotes
from pinnace.server.http.header_cache import RequestHead

Headers = Sequence[tuple[bytes, bytes]] | bytes
"""Header pairs, or a block made once with `header_block` and shared by many answers."""

_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")


class BadTarget(ValueError):
    """The request's target is not one that this server can answer."""


class Peer:
    """The other end of one connection."""

    __slots__ = ("address", "certificate", "chain")

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        name = transport.get_extra_info("peername")
        self.address: str = name[0] if isinstance(name, tuple) else ""
        self.certificate: bytes | None = transport.get_extra_info("client_certificate")
        """The client's certificate as DER, the same object for every request; None if it sent none.

        It is verified, but for the time: it may not be valid yet, or no more. Of one that nobody who is trusted stands
        behind, b"" is all that is left.
        """
        self.chain: list[bytes] = transport.get_extra_info("client_chain") or []
        """The certificates by which the client's was verified, from itself to one that is trusted."""


@dataclass(slots=True, eq=False)
class Request:
    """One request, read whole."""

    method: str
    target: str
    path: str
    raw_query: str
    head: RequestHead
    body: bytes
    peer: Peer
    upgrade: bool = False
    """The client asks for another protocol: answer with a `Takeover`, or refuse."""
    _query: dict[str, list[str]] | None = None
    body_says_dry_run: bool = False
    """The options of a deletion may come in its body."""
    notes: AuditNotes | None = None
    """Of a request that is written down: what is to be written down about it."""

    @property
    def headers(self) -> dict[bytes, bytes]:
        """The first value of each header. Names are lower-case."""
        return self.head.headers

    @property
    def query(self) -> dict[str, list[str]]:
        """Every parameter with its values in order. Pairs that are not valid are left out, as Go's servers do."""
        if self._query is None:
            self._query = _parse_query(self.raw_query) if self.raw_query else {}
        return self._query

    def parameter(self, name: str) -> str | None:
        """The first value of a query parameter, or None."""
        if not self.raw_query:
            return None
        values = self.query.get(name)
        return values[0] if values else None

    def header_values(self, name: bytes) -> list[bytes]:
        """Every value of a header that may come more than once, in order."""
        first = self.headers.get(name)
        if first is None:
            return []
        return [first, *(value for key, value in self.head.repeated if key == name)]


@dataclass(slots=True, eq=False)
class Response:
    """A complete answer to one request. Length, date and connection headers are added when it is written."""

    status: int
    headers: Headers = ()
    body: bytes | list[bytes] = b""
    """Pieces are sent one after another without first joining them all."""


class ResponseStream(Protocol):
    """Where a stream writes. After `closed` every method is harmless."""

    @property
    def closed(self) -> bool:
        """Nothing more can be written: the client left, the server stops, or the stream was finished."""

    @property
    def buffered(self) -> int:
        """Bytes written here that the client has not taken yet."""

    def write(self, chunk: bytes) -> None:
        """Send one chunk made by `frame`. The object is shared, never copied per stream while it waits."""

    async def drain(self) -> None:
        """Return when nothing is buffered or the stream is closed."""

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call back once when the stream closes, whatever the cause; at once if it has."""

    def finish(self) -> None:
        """End the body cleanly."""


@dataclass(slots=True, eq=False)
class StreamingResponse:
    """A response whose body is written over time: the head is sent, then `start` is called with the stream.

    `start` may keep the stream and return: the body then stays open until `finish`. Or it may be a coroutine function:
    the body then lasts as long as the coroutine, which is cancelled when the stream closes.
    """

    status: int
    headers: Headers
    start: Callable[[ResponseStream], Awaitable[None] | None]


@dataclass(slots=True, eq=False)
class Takeover:
    """An answer that gives the connection away, such as 101 to WebSocket.

    After the head is sent, `run` gets the transport and the bytes that the client has already sent beyond its request.
    Reading is paused: `run` sets its own protocol and resumes it, or calls `reader_and_writer`. The connection is
    closed when `run` returns.
    """

    run: Callable[[asyncio.Transport, bytes], Awaitable[None]]
    headers: Headers = ()
    status: int = 101


Answer = Response | StreamingResponse | Takeover


class Handler(Protocol):
    """Answers requests. One that can answer at once returns the answer itself, and no task is made for it.

    An answer in progress goes on when its client leaves: half a write would be worse than an answer nobody reads.
    """

    def __call__(self, request: Request, /) -> Answer | Awaitable[Answer]: ...


def frame(data: bytes) -> bytes:
    """Encode `data` as one HTTP chunk, to be shared by every stream that it is written to."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def unframe(chunks: bytes) -> bytes:
    """The data of one or more chunks made by `frame`, for clients that do not know chunks."""
    data, at = [], 0
    while at < len(chunks):
        start = chunks.index(b"\r\n", at) + 2
        end = start + int(chunks[at : start - 2], 16)
        data.append(chunks[start:end])
        at = end + 2
    return data[0] if len(data) == 1 else b"".join(data)


def header_block(pairs: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Encode headers. Raises ValueError for a value that would smuggle in a header of its own."""
    block = b"".join([b"%b: %b\r\n" % pair for pair in pairs])
    if block.count(b"\n") != len(pairs) or block.count(b"\r") != len(pairs):
        raise ValueError(f"a header may not contain a line break: {pairs!r}")
    return block


JSON_HEADERS = header_block([(b"Content-Type", b"application/json")])


def failure(code: int, reason: str, message: str) -> Response:
    """An error answer as clients of Kubernetes expect it: a `Status` object."""
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return Response(code, JSON_HEADERS, orjson.dumps(status, option=orjson.OPT_APPEND_NEWLINE))


def status_line(code: int) -> bytes:
    """The first line of an answer."""
    try:
        phrase = HTTPStatus(code).phrase
    except ValueError:
        phrase = "Unknown"
    return b"HTTP/1.1 %d %b\r\n" % (code, phrase.encode())


def split_target(target: str) -> tuple[str, str]:
    """Split a request's target into its decoded path and its raw query. Raises BadTarget."""
    raw, _, query = target.partition("?")
    if not raw.startswith("/") and raw != "*":
        scheme, separator, rest = raw.partition("://")
        if not separator or scheme.lower() not in ("http", "https"):
            raise BadTarget(f"the request target {target!r} is neither a path nor a URL")
        raw = "/" + rest.partition("/")[2]
    if "%" in raw:
        if _BAD_ESCAPE.search(raw):
            raise BadTarget(f"invalid URL escape in {target!r}")
        return unquote_to_bytes(raw).decode("utf-8", "replace"), query
    return raw, query


async def reader_and_writer(
    transport: asyncio.Transport, leftover: bytes
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Wrap the transport that a `Takeover` was given; `leftover` is read first."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    if leftover:
        reader.feed_data(leftover)
    transport.resume_reading()
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


def _parse_query(raw: str) -> dict[str, list[str]]:
    query: dict[str, list[str]] = {}
    for pair in raw.split("&"):
        if not pair or ";" in pair:
            continue
        name, _, value = pair.partition("=")
        if "%" in pair or "+" in pair:
            if _BAD_ESCAPE.search(pair):
                continue
            name, value = unquote_plus(name), unquote_plus(value)
        query.setdefault(name, []).append(value)
    return query
