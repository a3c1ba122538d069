"""The paths that are not objects: health, version, discovery, OpenAPI and metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import orjson

from pinnace.auth.users import User
from pinnace.model import errors
from pinnace.server.documents import Document
from pinnace.server.messages import Answer, Request, Response

_TEXT = ((b"Cache-Control", b"no-cache, private"), (b"Content-Type", b"text/plain; charset=utf-8"))
_JSON = ((b"Cache-Control", b"no-cache, private"), (b"Content-Type", b"application/json"))
_METRICS = ((b"Content-Type", b"text/plain; version=0.0.4; charset=utf-8"),)
_HEALTH = frozenset(("healthz", "livez", "readyz"))

Check = Callable[[], str]
"""Says what is wrong; an empty answer means that all is well."""


class Documents(Protocol):
    """Discovery or OpenAPI."""

    def page(self, path: str, accept: str) -> Document | None:
        """The document at a path, or None. Raises NotAcceptable."""


class Pages:
    """`checks` are asked in order; those named in `only_ready` say when to send traffic, not whether to restart."""

    def __init__(
        self,
        *,
        version: Mapping[str, str],
        documents: tuple[Documents, ...],
        metrics: Callable[[], str],
        checks: Mapping[str, Check],
        only_ready: frozenset[str] = frozenset(),
    ) -> None:
        self._version = orjson.dumps(version, option=orjson.OPT_INDENT_2)
        self._documents = documents
        self._metrics = metrics
        self._checks = dict(checks)
        self._only_ready = only_ready

    def answer(self, request: Request, segments: list[str], user: User) -> Answer | Awaitable[Answer] | None:
        first = segments[0]
        if first in _HEALTH:
            return self._health(request, first, segments[1:])
        if request.method not in ("GET", "HEAD"):
            raise errors.BadMethod()
        if request.path == "/version" or request.path == "/version/":
            return Response(200, _JSON, self._version)
        if request.path == "/metrics":
            return Response(200, _METRICS, self._metrics().encode())
        accept = request.headers.get(b"accept", b"").decode("latin-1")
        for documents in self._documents:
            document = documents.page(request.path, accept)
            if document is not None:
                return _shown(request, document)
        return None

    def _health(self, request: Request, page: str, rest: list[str]) -> Response | None:
        names = [name for name in self._checks if page == "readyz" or name not in self._only_ready]
        if rest and rest[0]:
            name = "/".join(rest)
            if name not in names:
                return None
            wrong = self._checks[name]()
            if wrong:
                return Response(500, _TEXT, f"internal server error: {wrong}\n".encode())
            return Response(200, _TEXT, b"ok")
        excluded = set(request.query.get("exclude", ()))
        lines, failed = [], []
        for name in names:
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok")
            elif self._checks[name]():
                failed.append(name)
                lines.append(f"[-]{name} failed: reason withheld")
            else:
                lines.append(f"[+]{name} ok")
        if failed:
            text = "\n".join([*lines, f"{page} check failed", ""])
            return Response(500, _TEXT, text.encode())
        if request.parameter("verbose") is None:
            return Response(200, _TEXT, b"ok")
        return Response(200, _TEXT, "\n".join([*lines, f"{page} check passed", ""]).encode())


def _shown(request: Request, document: Document) -> Response:
    headers = [(b"Content-Type", document.content_type.encode())]
    headers += [(name.encode(), value.encode()) for name, value in document.headers]
    if document.etag:
        headers.append((b"Etag", document.etag.encode()))
    if document.is_held_by(request.headers.get(b"if-none-match", b"").decode("latin-1")):
        return Response(304, headers)
    return Response(200, headers, document.body)
