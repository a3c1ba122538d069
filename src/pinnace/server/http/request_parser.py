"""Parses one client's requests, and rejects those that are malformed or ambiguous."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any, NoReturn, Protocol, TypeAlias

import httptools

from pinnace.serving.limits import Limits
from pinnace.serving.messages import BadTarget, Peer, Request, RequestHead, Response, failure, split_target

_MOST_KNOWN = 1000
_MOST_BYTES = 4096
_LENGTH = b"\r\nContent-Length: "
_MOST_DIGITS = 9

# The first line of most requests. All others are left to llhttp, which rejects the malformed ones.
_FIRST_LINE = re.compile(rb"(GET|POST|PUT|PATCH|DELETE) ((/[!-\"$&->@-~]*)(?:\?([!-\"$-~]*))?) HTTP/1\.1")


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


NEVER = float("inf")

# A chunk of one byte needs six on the wire; more overhead than this is an attack on memory.
_WIRE_BYTES_PER_BODY_BYTE = 8

# Repeated, these make the host or the end of the request ambiguous.
_SINGLE = frozenset((b"host", b"content-length", b"transfer-encoding"))

log = logging.getLogger(__name__)


class RequestReceiver(Protocol):
    """Takes the parsed requests: the connection."""

    def handle_request(self, request: Request, keep: bool, chunks: bool) -> None:
        """Answer a whole request. `keep`: the connection stays open. `chunks`: the client supports chunks."""

    def reject(self, answer: Response) -> None:
        """Send this error, and parse nothing more of this client."""

    def expect_continue(self) -> None:
        """Send 100 Continue: the client waits for it."""

    def begin_upgrade(self) -> None:
        """Answer a request to upgrade: the bytes after it are not HTTP; see `leftover`."""


class _Rejected(Exception):
    """Ends the parsing; the error response is on its way."""


class RequestParser:
    """The reading half of a connection. llhttp calls its `on_` methods."""

    __slots__ = (
        "_body",
        "_fed",
        "_first",
        "_header_cache",
        "_headers",
        "_limits",
        "_loop",
        "_parser",
        "_peer",
        "_receiver",
        "_repeated",
        "_target",
        "_wire",
        "deadline",
        "is_in_body",
        "is_last",
        "is_reading",
        "leftover",
        "owes_continue",
    )

    def __init__(
        self,
        receiver: RequestReceiver,
        peer: Peer,
        *,
        header_cache: HeaderCache,
        limits: Limits,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._receiver = receiver
        self._peer = peer
        self._header_cache = header_cache
        self._limits = limits
        self._loop = loop
        self._parser: Any = httptools.HttpRequestParser(self)
        self._wire = 0
        self._fed = 0
        self._first = b""  # The last bytes read, if they begin with a request that is not complete.
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._repeated: list[tuple[bytes, bytes]] = []
        self._body: bytes | bytearray = b""
        self.is_reading = False
        """A request has begun and is not complete."""
        self.is_in_body = False
        self.is_last = False
        """No further request is answered."""
        self.owes_continue = False
        """The client waits for 100 Continue."""
        self.leftover = b""
        self.deadline = loop.time() + limits.head_time
        """When the client must have completed its request, or begun the next."""

    def feed(self, data: bytes) -> None:
        if self._parser is None:
            return
        known = None
        if not (self.is_reading or self.is_last):
            known = self._header_cache.read(data, self._limits.body)
        if known is not None:
            self.deadline = NEVER
            self._receiver.handle_request(Request(*known, self._peer), keep=True, chunks=True)
            return
        self._first = b"" if self.is_reading else data
        self._parse(data)

    def _parse(self, data: bytes) -> None:
        self._fed = len(data)
        self._wire += self._fed
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._parser = None
            self.leftover = data[upgrade.args[0] :]
            self._receiver.begin_upgrade()
        except httptools.HttpParserCallbackError as error:
            if not isinstance(error.__context__, _Rejected):
                log.error("reading a request failed", exc_info=error)
                self.reject(failure(500, "InternalError", "Internal Server Error: the request could not be read"))
        except httptools.HttpParserError as error:
            self._reject_malformed(error)
        else:
            if self.is_reading and self._wire > self._limits.head + _WIRE_BYTES_PER_BODY_BYTE * len(self._body):
                self.reject(failure(431, "BadRequest", f"request header is too large: limit is {self._limits.head}"))

    def reject(self, answer: Response) -> None:
        """Send an error after the pending answers; nothing more of this client is parsed."""
        self.is_reading = False
        self.owes_continue = False
        self.deadline = NEVER
        self._parser = None
        self._receiver.reject(answer)

    def stop(self) -> None:
        """Stop parsing, and free what was read: the connection may live until the next garbage collection."""
        self._parser = None
        self._first = self._target = self._body = b""
        self._headers, self._repeated = {}, []

    def reject_late(self) -> None:
        """Reject a request that did not arrive in time."""
        what = "body" if self.is_in_body else "headers"
        self.reject(failure(408, "Timeout", f"the request's {what} did not arrive in time"))

    def _reject_malformed(self, error: httptools.HttpParserError) -> None:
        if self.is_last:
            return  # Bytes after the last request are ignored.
        if isinstance(error, httptools.HttpParserInvalidMethodError):
            message = "the server does not allow this method on the requested resource"
            self.reject(failure(405, "MethodNotAllowed", message))
        else:
            self.reject(failure(400, "BadRequest", f"malformed HTTP request: {error}"))

    # Called by llhttp.

    def on_message_begin(self) -> None:
        if self.is_last:
            raise _Rejected
        self.is_reading = True
        self.is_in_body = False
        self._wire = self._fed
        self._headers = {}
        self._repeated = []
        self._target = b""
        self._body = b""
        self.deadline = self._loop.time() + self._limits.head_time

    def on_url(self, part: bytes) -> None:
        self._target = self._target + part if self._target else part

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.is_in_body:
            return  # A trailer: the API uses none, and it must not change the headers.
        name = name.lower()
        if name in self._headers:
            self._repeated.append((name, value))
        else:
            self._headers[name] = value

    def on_headers_complete(self) -> None:
        self.is_in_body = True
        headers = self._headers
        if len(headers) + len(self._repeated) > self._limits.headers:
            self._reject(431, "BadRequest", f"too many request headers: limit is {self._limits.headers}")
        version = self._parser.get_http_version()
        self._check_version(version)
        if self._repeated and any(name in _SINGLE for name, _ in self._repeated):
            self._reject(400, "BadRequest", "a header that must be unique came twice")
        length = headers.get(b"content-length")
        coding = headers.get(b"transfer-encoding")
        if coding is None and (length is None or int(length) == 0):
            return
        if coding is not None and coding.strip().lower() != b"chunked":
            self._reject(400, "BadRequest", f"unsupported transfer encoding {coding.decode('latin-1')!r}")
        if self._parser.should_upgrade():
            # llhttp reads no body here: it would take the body for the bytes after the request.
            self._reject(400, "BadRequest", "a request to upgrade may not have a body")
        if length is not None and int(length) > self._limits.body:
            self._reject_too_large()
        self.deadline = self._loop.time() + self._limits.body_time
        expectation = headers.get(b"expect")
        if expectation is not None and version == "1.1":
            if expectation.lower() != b"100-continue":
                self._reject(417, "BadRequest", f"unknown expectation {expectation.decode('latin-1')!r}")
            self.owes_continue = True
            self._receiver.expect_continue()

    def _check_version(self, version: str) -> None:
        if version == "1.1":
            if b"host" not in self._headers:
                self._reject(400, "BadRequest", "missing required Host header")
        elif version != "1.0":
            self._reject(400, "BadRequest", f"unsupported HTTP version {version}")
        elif b"transfer-encoding" in self._headers:
            self._reject(400, "BadRequest", "Transfer-Encoding is not part of HTTP/1.0")

    def on_body(self, data: bytes) -> None:
        if len(self._body) + len(data) > self._limits.body:
            self._reject_too_large()
        if not self._body:
            self._body = data
        elif isinstance(self._body, bytearray):
            self._body += data
        else:
            self._body = bytearray(self._body) + data

    def on_message_complete(self) -> None:
        self.is_reading = False
        self.owes_continue = False
        self.deadline = NEVER
        parser = self._parser
        method: str = parser.get_method().decode()
        try:
            target = self._target.decode("ascii")
            path, query = split_target(target)
        except (BadTarget, UnicodeDecodeError) as error:
            self._reject(400, "BadRequest", str(error))
        body, self._body = self._body, b""
        upgrade: bool = parser.should_upgrade()
        # llhttp cannot continue after an upgrade; a rejected upgrade closes the connection.
        keep: bool = parser.should_keep_alive() and not upgrade
        chunks: bool = parser.get_http_version() == "1.1"
        if not keep:
            self.is_last = True
        size = int(self._headers.pop(b"content-length", b"0"))
        head = RequestHead(self._headers, tuple(self._repeated))
        first, self._first = self._first, b""
        if first and keep and chunks:
            self._header_cache.learn(first, head, size)
        body = body if type(body) is bytes else bytes(body)
        request = Request(method, target, path, query, head, body, self._peer, upgrade)
        self._receiver.handle_request(request, keep, chunks)

    def _reject(self, code: int, reason: str, message: str) -> NoReturn:
        self.reject(failure(code, reason, message))
        raise _Rejected

    def _reject_too_large(self) -> NoReturn:
        self._reject(413, "RequestEntityTooLarge", f"Request entity too large: limit is {self._limits.body}")
