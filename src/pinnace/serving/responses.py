"""The outcomes of calls, and the HTTP responses of outcomes and errors: format, compression, warnings."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeGuard

import orjson

from pinnace.model import errors
from pinnace.model.authorization import ForbiddenByAuthorizer
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.process.work_slices import SliceQueue
from pinnace.schema.golang.protobuf import PREFIX
from pinnace.serving.cache.protobuf_representation import to_protobuf
from pinnace.serving.compression import COMPRESSOR, GzipCache, compress_whole
from pinnace.serving.messages import Answer, Request, Response, ResponseStream, StreamingResponse
from pinnace.serving.request.call import Call
from pinnace.serving.request.large_output import FormattedPieces
from pinnace.serving.request.negotiation import (
    PLAIN,
    Accepted,
    indent_json,
    negotiate,
    wants_pretty,
)
from pinnace.serving.request.yaml_output import as_yaml


@dataclass(slots=True, eq=False)
class Outcome:
    """A whole body to send, or a stream that goes on."""

    status: int = 200
    body: bytes | list[bytes] = b""
    """In pieces where it is large, so that they need not be joined to be sent."""
    accepted: Accepted = PLAIN
    stream: Callable[[ResponseStream], NowOrLater[None]] | None = None


_GZIP_FROM = 128 * 1024
_THREAD_FROM = 512 * 1024
_SHARED_FROM = 32 * 1024
_SLICES_FROM = 64 * 1024
"""A larger body is written as YAML or indented JSON in slices."""
_MOST_WARNING_TEXT = 4096
"""Kubernetes' limit on the characters of all warnings of one response."""
_CUT_WARNING_TEXT = 256
_JSON = b"application/json"
_YAML = b"application/yaml"
_PROTOBUF = b"application/vnd.kubernetes.protobuf"
_PROTOBUF_WATCH = b"application/vnd.kubernetes.protobuf;stream=watch"
_NO_SNIFF = b"\r\nX-Content-Type-Options: nosniff"
_PLAIN_TEXT = b"text/plain; charset=utf-8" + _NO_SNIFF
_GZIP = b"Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n"
_NO_CACHE_AND_TYPE = b"\r\nCache-Control: no-cache, private\r\nContent-Type: "


class Responses:
    """Renders the answers of one server. Every response carries an Audit-Id of its own."""

    def __init__(self, slices: SliceQueue) -> None:
        self._slices = slices
        self._gzip_cache = GzipCache()
        self._formatted = FormattedPieces()
        words = secrets.token_hex(10)
        self._audit_prefix = f"Audit-Id: {words[:8]}-{words[8:12]}-{words[12:16]}-{words[16:]}-".encode()
        self._audit_numbers = itertools.count(1)

    async def render(self, call: Call, outcome: Outcome) -> Answer:
        """Return the response to a call. A large body is formatted in slices and compressed in a thread."""
        request = call.request
        if outcome.stream is not None:
            content_type = _PROTOBUF_WATCH if outcome.accepted.is_protobuf else _JSON
            return StreamingResponse(outcome.status, self._head(content_type, call.warnings), outcome.stream)
        body, content_type = _format(request, outcome) or await self._format_in_slices(outcome)
        head = self._head(content_type, call.warnings)
        if not _is_compressed(request, body):
            return Response(outcome.status, head, body)
        compressed = self._compress_at_once(body)
        if compressed is None and _has_shared_pieces(body):
            pending = self._gzip_cache.compress(body)
            compressed = pending if isinstance(pending, list) else await pending
        elif compressed is None:  # Compression releases the interpreter's lock: other requests are served meanwhile.
            loop = asyncio.get_running_loop()
            compressed = await loop.run_in_executor(COMPRESSOR, lambda: compress_whole(_join(body)))
        return Response(outcome.status, head + _GZIP, compressed)

    def render_at_once(self, call: Call, outcome: Outcome) -> Response | None:
        """Return the response; None if it is a stream, or a large body has to be formatted or compressed first."""
        formatted = _format(call.request, outcome) if outcome.stream is None else None
        if formatted is None:
            return None
        body, content_type = formatted
        if not call.request.head.takes_gzip or _size(body) <= _GZIP_FROM:
            return Response(outcome.status, self._head(content_type, call.warnings), body)
        compressed = self._compress_at_once(body)
        if compressed is None:
            return None
        return Response(outcome.status, self._head(content_type, call.warnings) + _GZIP, compressed)

    async def _format_in_slices(self, outcome: Outcome) -> tuple[list[bytes], bytes]:
        if outcome.accepted.is_protobuf:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(COMPRESSOR, lambda: [_as_protobuf(outcome.body)]), _PROTOBUF
        slices = self._slices.begin()
        if outcome.accepted.is_yaml:
            return await self._formatted.yaml(outcome.body, slices), _YAML
        return await self._formatted.indented(outcome.body, slices), _JSON

    def _compress_at_once(self, body: bytes | list[bytes]) -> bytes | list[bytes] | None:
        """Return the compressed body if it is known or small; None if it takes a thread."""
        if _has_shared_pieces(body):
            return self._gzip_cache.find(body)
        return compress_whole(_join(body)) if _size(body) <= _THREAD_FROM else None

    def render_error(self, request: Request, error: errors.ApiError, warnings: list[str] | None = None) -> Response:
        accepted = _accepted_format(request)
        content_type = _PROTOBUF if accepted.is_protobuf else _YAML if accepted.is_yaml else _JSON
        head = self._head(
            content_type + _NO_SNIFF if isinstance(error, ForbiddenByAuthorizer) else content_type, warnings
        )
        if error.retry_after:
            head += b"Retry-After: %d\r\n" % error.retry_after
        if accepted.is_protobuf:
            return Response(error.code, head, to_protobuf(error.status))
        if accepted.is_yaml:
            return Response(error.code, head, as_yaml(error.status))
        body = orjson.dumps(error.status, option=orjson.OPT_APPEND_NEWLINE)
        # A client that accepts no format of the server is taken for a person.
        is_pretty = accepted.is_pretty or error.code == 406 or wants_pretty(request)
        return Response(error.code, head, indent_json(body) if is_pretty else body)

    def not_found_page(self) -> Response:
        """Return the answer for a path outside of every API group."""
        return Response(404, self._head(_PLAIN_TEXT), b"404 page not found\n")

    def _head(self, content_type: bytes, warnings: list[str] | None = None) -> bytes:
        head = b"%b%012x%b%b\r\n" % (self._audit_prefix, next(self._audit_numbers), _NO_CACHE_AND_TYPE, content_type)
        if warnings:
            head += b"".join(_format_warning(text) for text in _shorten(warnings))
        return head


def _format(request: Request, outcome: Outcome) -> tuple[bytes | list[bytes], bytes] | None:
    """Return the body in the format that the client accepts, and its content type; None if that takes long."""
    if outcome.accepted is PLAIN and not (request.raw_query or request.head.is_browser):
        return outcome.body + b"\n" if type(outcome.body) is bytes else outcome.body, _JSON
    return _format_as_accepted(request, outcome.body, outcome.accepted)


def _format_as_accepted(
    request: Request, body: bytes | list[bytes], accepted: Accepted
) -> tuple[bytes | list[bytes], bytes] | None:
    if accepted.is_protobuf:
        if (body if isinstance(body, bytes) else body[0]).startswith(PREFIX):
            return body, _PROTOBUF
        return (_as_protobuf(body), _PROTOBUF) if _size(body) <= _SLICES_FROM else None
    if accepted.is_yaml:
        return (as_yaml(orjson.loads(_join(body))), _YAML) if _size(body) <= _SLICES_FROM else None
    if accepted.is_pretty or wants_pretty(request):
        return (indent_json(_join(body)), _JSON) if _size(body) <= _SLICES_FROM else None
    return body + b"\n" if type(body) is bytes else body, _JSON


def _as_protobuf(body: bytes | list[bytes]) -> bytes:
    """Return an answer that is no stored object, such as a Status or a review."""
    return to_protobuf(orjson.loads(_join(body)))


def _shorten(warnings: list[str]) -> list[str]:
    """Return each warning once. Beyond Kubernetes' limit on the total, long ones are cut and later ones dropped."""
    texts = [text for text in dict.fromkeys(warnings) if text]
    fitting = sum(total <= _MOST_WARNING_TEXT for total in itertools.accumulate(map(len, texts)))
    if fitting == len(texts):
        return texts
    kept = [text[:_CUT_WARNING_TEXT] for text in texts[: fitting + 1]]
    total = sum(map(len, kept))
    for text in texts[fitting + 1 :]:
        if total >= _MOST_WARNING_TEXT:
            break
        kept.append(text[:_CUT_WARNING_TEXT])
        total += len(kept[-1])
    return kept


def _format_warning(text: str) -> bytes:
    """RFC 7234's header with the agent and code that Kubernetes uses; control characters cannot smuggle a header."""
    clean = "".join(char if char.isprintable() else " " for char in text)
    quoted = clean.replace("\\", "\\\\").replace('"', '\\"')
    return b'Warning: 299 - "%b"\r\n' % quoted.encode()


def _accepted_format(request: Request) -> Accepted:
    """Return the format of an error."""
    try:
        accepted = negotiate(request.head.accept)
    except errors.NotShownSo:
        return PLAIN
    return PLAIN if accepted.view else accepted  # Errors have no table rows.


def _is_compressed(request: Request, body: bytes | list[bytes]) -> bool:
    return request.head.takes_gzip and _size(body) > _GZIP_FROM


def _has_shared_pieces(body: bytes | list[bytes]) -> TypeGuard[list[bytes]]:
    """Whether other responses may have large pieces of this body, so that they are compressed one by one."""
    return isinstance(body, list) and (len(body[-1]) > _GZIP_FROM or any(len(piece) >= _SHARED_FROM for piece in body))


def _size(body: bytes | list[bytes]) -> int:
    return len(body) if isinstance(body, bytes) else sum(map(len, body))


def _join(body: bytes | list[bytes]) -> bytes:
    return body if isinstance(body, bytes) else b"".join(body)
