"""Reads one client's requests from the bytes that it sends, and refuses what cannot be understood without doubt."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, NoReturn, Protocol

import httptools

from pinnace.server.http.header_cache import HeaderCache, RequestHead
from pinnace.server.http.limits import Limits
from pinnace.server.http.messages import BadTarget, Peer, Request, Response, failure, split_target

NEVER = float("inf")

# A chunk of one byte takes six on the wire; more overhead than this is an attack on memory, not a body.
_WIRE_BYTES_PER_BODY_BYTE = 8

# Two of these are a disagreement about whom the request is for or where it ends.
_SINGLE = frozenset((b"host", b"content-length", b"transfer-encoding"))

log = logging.getLogger(__name__)


class RequestReceiver(Protocol):
    """Who answers what is read."""

    def asked(self, request: Request, keep: bool, chunks: bool) -> None:
        """A whole request. `keep`: the connection outlives it. `chunks`: the client can be answered in chunks."""

    def refused(self, answer: Response) -> None:
        """Nothing more of this client is interpreted; this says why."""

    def expecting(self) -> None:
        """The client waits to be told to go on."""

    def upgraded(self) -> None:
        """What follows the last request is not HTTP; see `leftover`."""


class _Refused(Exception):
    """Ends the parsing; the answer has been handed on."""


class RequestParser:
    """The reading half of a connection. Its `on_` methods are called by the parser."""

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
        self._first = b""  # What was read last, if it begins with a request that has not been read to its end.
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._repeated: list[tuple[bytes, bytes]] = []
        self._body: bytes | bytearray = b""
        self.is_reading = False
        """Within a request."""
        self.is_in_body = False
        self.is_last = False
        """Another request would not be answered."""
        self.owes_continue = False
        """The client waits for the word to send its body."""
        self.leftover = b""
        self.deadline = loop.time() + limits.head_time
        """When the client should have sent what it began to send."""

    def feed(self, data: bytes) -> None:
        if self._parser is None:
            return
        if self.is_reading:
            self._first = b""
        else:
            known = None if self.is_last else self._header_cache.read(data, self._limits.body)
            if known is not None:
                self.deadline = NEVER
                self._receiver.asked(Request(*known, self._peer), keep=True, chunks=True)
                return
            self._first = data
        self._fed = len(data)
        self._wire += self._fed
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._parser = None
            self.leftover = data[upgrade.args[0] :]
            self._receiver.upgraded()
        except httptools.HttpParserCallbackError as error:
            if not isinstance(error.__context__, _Refused):
                log.error("reading a request failed", exc_info=error)
                self.refuse(failure(500, "InternalError", "Internal Server Error: the request could not be read"))
        except httptools.HttpParserError as error:
            self._malformed(error)
        else:
            if self.is_reading and self._wire > self._limits.head + _WIRE_BYTES_PER_BODY_BYTE * len(self._body):
                self.refuse(failure(431, "BadRequest", f"request header is too large: limit is {self._limits.head}"))

    def refuse(self, answer: Response) -> None:
        """Answer after what is in progress; nothing more of this client is interpreted."""
        self.is_reading = False
        self.owes_continue = False
        self.deadline = NEVER
        self._parser = None
        self._receiver.refused(answer)

    def stop(self) -> None:
        """Read no more. What was read is let go, since the connection itself may stay until the collector comes."""
        self._parser = None
        self._first = self._target = self._body = b""
        self._headers, self._repeated = {}, []

    def refuse_late(self) -> None:
        """What was begun has not come in time."""
        what = "body" if self.is_in_body else "headers"
        self.refuse(failure(408, "Timeout", f"the request's {what} did not arrive in time"))

    def _malformed(self, error: httptools.HttpParserError) -> None:
        if self.is_last:
            return  # Bytes after the last request are not a mistake to answer.
        if isinstance(error, httptools.HttpParserInvalidMethodError):
            message = "the server does not allow this method on the requested resource"
            self.refuse(failure(405, "MethodNotAllowed", message))
        else:
            self.refuse(failure(400, "BadRequest", f"malformed HTTP request: {error}"))

    # The parser's side.

    def on_message_begin(self) -> None:
        if self.is_last:
            raise _Refused
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
            return  # A trailer: nothing of the API is said in one, and it must not change what was decided before.
        name = name.lower()
        if name in self._headers:
            self._repeated.append((name, value))
        else:
            self._headers[name] = value

    def on_headers_complete(self) -> None:
        self.is_in_body = True
        headers = self._headers
        if len(headers) + len(self._repeated) > self._limits.headers:
            self._refuse_within(431, "BadRequest", f"too many request headers: limit is {self._limits.headers}")
        version = self._parser.get_http_version()
        if version == "1.1":
            if b"host" not in headers:
                self._refuse_within(400, "BadRequest", "missing required Host header")
        elif version != "1.0":
            self._refuse_within(400, "BadRequest", f"unsupported HTTP version {version}")
        elif b"transfer-encoding" in headers:
            self._refuse_within(400, "BadRequest", "Transfer-Encoding is not part of HTTP/1.0")
        if self._repeated and any(name in _SINGLE for name, _ in self._repeated):
            self._refuse_within(400, "BadRequest", "a header that must be unique came twice")
        length = headers.get(b"content-length")
        coding = headers.get(b"transfer-encoding")
        if coding is None and (length is None or int(length) == 0):
            return
        if coding is not None and coding.strip().lower() != b"chunked":
            self._refuse_within(400, "BadRequest", f"unsupported transfer encoding {coding.decode('latin-1')!r}")
        if self._parser.should_upgrade():
            # llhttp reads no body here, so the body would be taken for what follows the request.
            self._refuse_within(400, "BadRequest", "a request to upgrade may not have a body")
        if length is not None and int(length) > self._limits.body:
            self._refuse_too_large()
        self.deadline = self._loop.time() + self._limits.body_time
        expectation = headers.get(b"expect")
        if expectation is not None and version == "1.1":
            if expectation.lower() != b"100-continue":
                self._refuse_within(417, "BadRequest", f"unknown expectation {expectation.decode('latin-1')!r}")
            self.owes_continue = True
            self._receiver.expecting()

    def on_body(self, data: bytes) -> None:
        if len(self._body) + len(data) > self._limits.body:
            self._refuse_too_large()
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
            self._refuse_within(400, "BadRequest", str(error))
        body, self._body = self._body, b""
        upgrade: bool = parser.should_upgrade()
        # llhttp cannot go on after an upgrade; refusing one is rare enough to cost the connection.
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
        self._receiver.asked(request, keep, chunks)

    def _refuse_within(self, code: int, reason: str, message: str) -> NoReturn:
        self.refuse(failure(code, reason, message))
        raise _Refused

    def _refuse_too_large(self) -> NoReturn:
        self._refuse_within(413, "RequestEntityTooLarge", f"Request entity too large: limit is {self._limits.body}")
