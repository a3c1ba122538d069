"""Requests and the kinds of answer that pass between connections and handlers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import ClassVar, Protocol
from urllib.parse import unquote_plus, unquote_to_bytes

import orjson

from pinnace.model.authorization import Decision
from pinnace.model.users import User
from pinnace.process.eager_coroutines import NowOrLater


@dataclass(slots=True, eq=False)
class AuditNotes:
    """The auditor attaches it to a request that is audited; later stages fill it in."""

    impersonated: User | None = None
    """The impersonated user, once impersonation is allowed."""
    constraint: str = ""
    """The verb that allowed it, if impersonation is constrained."""
    decision: Decision | None = None
    """The authorization decision; None if the request failed before authorization."""
    admission: dict[str, dict[str, str]] = field(default_factory=dict)
    """Annotations of admission plug-ins by object, from the last attempt if a write was retried."""

    @property
    def annotations(self) -> dict[str, str]:
        """Merge all annotations. The first value of a name wins."""
        merged: dict[str, str] = {}
        if self.decision is not None:
            merged["authorization.k8s.io/decision"] = "allow" if self.decision.is_allowed else "forbid"
            merged["authorization.k8s.io/reason"] = self.decision.reason
        for added in self.admission.values():
            merged |= {name: value for name, value in added.items() if name not in merged}
        return merged


Headers = Sequence[tuple[bytes, bytes]] | bytes
"""Header pairs, or a block from `header_block` that many answers share."""

BEARER = b"bearer "
IMPERSONATE = b"impersonate-"

_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")


class BadTarget(ValueError):
    """The request target is malformed."""


class Peer:
    """The other end of one connection."""

    __slots__ = ("address", "certificate", "chain")

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        name = transport.get_extra_info("peername")
        self.address: str = name[0] if isinstance(name, tuple) else ""
        self.certificate: bytes | None = transport.get_extra_info("client_certificate")
        """The client's certificate as DER, the same object for every request; None if it sent none.

        Its chain is verified, its validity period is not. b"" stands for a certificate that no trusted CA has signed.
        """
        self.chain: list[bytes] = transport.get_extra_info("client_chain") or []
        """The verified chain, from the client's certificate to a trusted one."""


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


LONGEST_SHOWN = 1000
"""The characters of a target that are shown."""


@dataclass(eq=False)
class Request:
    """One request, with its whole body."""

    method: str
    target: str
    path: str
    raw_query: str
    head: RequestHead
    body: bytes
    peer: Peer
    upgrade: bool = False
    """The client asks for another protocol: answer with a `Takeover` or an error."""
    _query: dict[str, list[str]] | None = field(default=None, init=False)  # Most requests leave it to the class.
    body_says_dry_run: bool = False
    """The DeleteOptions in the body ask for a dry run."""
    notes: AuditNotes | None = None
    """Facts for the audit event; None if the request is not audited."""

    @property
    def headers(self) -> dict[bytes, bytes]:
        """The first value of each header. Names are lower-case."""
        return self.head.headers

    @property
    def query(self) -> dict[str, list[str]]:
        """All parameters with their values in order. Malformed pairs are left out, as Go's servers do."""
        if self._query is None:
            self._query = _parse_query(self.raw_query) if self.raw_query else {}
        return self._query

    @property
    def short_target(self) -> str:
        """The target for logs and messages: any client may send a megabyte of it, again and again."""
        return self.target if len(self.target) <= LONGEST_SHOWN else f"{self.target[:LONGEST_SHOWN]}…"

    def parameter(self, name: str) -> str | None:
        """Return the first value of a query parameter, or None."""
        if not self.raw_query:
            return None
        values = self.query.get(name)
        return values[0] if values else None

    def header_values(self, name: bytes) -> list[bytes]:
        """Return every value of a header, in order."""
        first = self.headers.get(name)
        if first is None:
            return []
        return [first, *(value for key, value in self.head.repeated if key == name)]


class Response:
    """A complete answer. Length, date and connection headers are added when it is written."""

    __slots__ = ("body", "headers", "size", "status")

    def __init__(self, status: int, headers: Headers = (), body: bytes | list[bytes] = b"") -> None:
        """`body` may be a list of pieces, which are sent without joining them first."""
        self.status = status
        self.headers = headers
        self.body = body
        self.size = len(body) if isinstance(body, bytes) else sum(map(len, body))
        """The bytes of the body."""


class ResponseStream(Protocol):
    """The body of a `StreamingResponse`. Once it is `closed`, every method does nothing."""

    @property
    def closed(self) -> bool:
        """Nothing more can be written: the client left, the server stops, or `finish` was called."""

    @property
    def buffered(self) -> int:
        """Bytes that are written and not yet sent to the client."""

    def write(self, chunk: bytes) -> None:
        """Send one chunk from `frame`. The bytes are shared by all streams and not copied while they wait."""

    async def drain(self) -> None:
        """Return when nothing is buffered or the stream is closed."""

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call back once when the stream closes, whatever the cause; at once if it is closed."""

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
    start: Callable[[ResponseStream], NowOrLater[None]]
    size: ClassVar[int] = -1  # Not known.


@dataclass(slots=True, eq=False)
class Takeover:
    """An answer that hands over the connection, such as 101 for a WebSocket.

    After the head is sent, `run` gets the transport and the bytes that the client has sent after its request. Reading
    is paused: `run` sets its own protocol and resumes reading, or calls `reader_and_writer`. The connection is closed
    when `run` returns.
    """

    run: Callable[[asyncio.Transport, bytes], Awaitable[None]]
    headers: Headers = ()
    status: int = 101
    size: ClassVar[int] = -1  # It has no body.


Answer = Response | StreamingResponse | Takeover


RequestHandler = Callable[[Request], NowOrLater[Answer]]
"""Answers requests. It returns the answer itself if it can answer at once: then no task is created.

A pending answer continues when its client leaves: half a write would be worse than an unread answer.
"""


def frame(data: bytes) -> bytes:
    """Encode `data` as one HTTP chunk, which many streams can share."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def unframe(chunks: bytes) -> bytes:
    """Return the data of chunks from `frame`, for clients that do not support chunks."""
    data, at = [], 0
    while at < len(chunks):
        start = chunks.index(b"\r\n", at) + 2
        end = start + int(chunks[at : start - 2], 16)
        data.append(chunks[start:end])
        at = end + 2
    return data[0] if len(data) == 1 else b"".join(data)


def header_block(pairs: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Encode headers. Raise ValueError for a value with a line break, which would inject a header."""
    block = b"".join([b"%b: %b\r\n" % pair for pair in pairs])
    if block.count(b"\n") != len(pairs) or block.count(b"\r") != len(pairs):
        raise ValueError(f"a header may not contain a line break: {pairs!r}")
    return block


JSON_HEADERS = header_block([(b"Content-Type", b"application/json")])


def failure(code: int, reason: str, message: str) -> Response:
    """Return an error response with a `Status` object."""
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
    """Return the first line of a response."""
    try:
        phrase = HTTPStatus(code).phrase
    except ValueError:
        phrase = "Unknown"
    return b"HTTP/1.1 %d %b\r\n" % (code, phrase.encode())


def split_target(target: str) -> tuple[str, str]:
    """Split a request target into its decoded path and its raw query. Raise BadTarget."""
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
    """Wrap the transport of a `Takeover`; `leftover` is read first."""
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
