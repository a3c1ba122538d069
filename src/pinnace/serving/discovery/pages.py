"""The paths that are not objects: health, version, discovery, OpenAPI and metrics."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import orjson

from pinnace.model import errors
from pinnace.model.users import User
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.process.exposition import HealthResults
from pinnace.serving.cache.protobuf_representation import to_protobuf
from pinnace.serving.discovery.aggregated_openapi import MergedOpenApi
from pinnace.serving.discovery.backends import AggregatedBackends, NoBackends
from pinnace.serving.discovery.discovery import DiscoveryPages, fetch_openapi, merge_index
from pinnace.serving.discovery.documents import ServedDocument
from pinnace.serving.discovery.openapi import OpenApi
from pinnace.serving.long_work import run_beside
from pinnace.serving.messages import Answer, Request, Response
from pinnace.serving.request.body import is_long_body
from pinnace.serving.request.negotiation import (
    ALL_OFFERED,
    JSON,
    ONLY_JSON,
    PROTOBUF,
    YAML,
    clauses,
    indent_json,
    is_named,
    negotiate,
    wants_pretty,
)
from pinnace.serving.request.yaml_output import as_yaml

_EMPTY = ((b"Cache-Control", b"no-cache, private"),)
_PLAIN = (*_EMPTY, (b"Content-Type", b"text/plain; charset=utf-8"))
_TEXT = (*_PLAIN, (b"X-Content-Type-Options", b"nosniff"))
_NO_VIEWS: frozenset[str] = frozenset()
_JSON = ((b"Cache-Control", b"no-cache, private"), (b"Content-Type", b"application/json"))
_PUBLIC = (b"Cache-Control", b"public, max-age=3600")
_PUBLIC_JSON = (_PUBLIC, (b"Content-Type", b"application/json"))
_JWKS = (_PUBLIC, (b"Content-Type", b"application/jwk-set+json"))
_METRICS = (
    (b"Cache-Control", b"no-cache, private"),
    (b"Content-Type", b"text/plain; version=0.0.4; charset=utf-8; escaping=underscores"),
)
_NOT_ACCEPTED = ((b"Cache-Control", b"no-cache, private"), (b"Vary", b"Accept"))
_GZIP_FROM = 1024
_HEALTH = frozenset(("healthz", "livez", "readyz"))
_DIAGNOSTIC = frozenset(("statusz", "flagz", "debug"))
_READ_ONLY = frozenset(("/version", "/openid/v1/jwks", "/.well-known/openid-configuration"))

log = logging.getLogger(__name__)

Check = Callable[[], NowOrLater[str]]
"""Returns the reason of a failure; empty if the check passes."""
Diagnostics = Callable[[Request, list[str]], Awaitable[Response | None]]
"""Returns the page about the process at a path; None if there is none."""


class Issuer(NamedTuple):
    """The issuer of service account tokens, and its public keys."""

    name: str
    keys: Callable[[], Mapping[str, object]]


class NonResourcePages:
    """Answers the paths that are not objects."""

    def __init__(
        self,
        *,
        version: Mapping[str, str],
        discovery: DiscoveryPages,
        openapi: OpenApi,
        metrics: Mapping[str, Callable[[], NowOrLater[str]]],
        issuer: Issuer | None = None,
        health: Callable[[str], Mapping[str, Check]],
        aggregated: AggregatedBackends | None = None,
    ) -> None:
        self._aggregated = aggregated or NoBackends()
        self._version = orjson.dumps(version, option=orjson.OPT_INDENT_2)
        self._discovery = discovery
        self._openapi = openapi
        self._merged_openapi = MergedOpenApi(openapi.v2, self._aggregated)
        self._metrics = metrics
        """The pages in Prometheus' text format, by path."""
        self._issuer = issuer
        self._checks = health
        self.diagnostics: Diagnostics | None = None
        """The pages about the process, if there are some."""
        self._results = HealthResults()

    async def answer(self, request: Request, segments: list[str], user: User) -> Answer | None:
        """Return the page at the path; None if there is none."""
        first = segments[0]
        if first in _HEALTH:
            return await self._health(request, first, segments[1:])
        if self.diagnostics is not None and first in _DIAGNOSTIC:
            return await self.diagnostics(request, segments)
        if request.method != "GET" and self._is_read_only(request.path, segments):
            raise errors.BadMethod()
        if request.path == "/version" or request.path == "/version/":
            return Response(200, _JSON, _require_json(self._version, request.head.accept))
        if request.path in self._metrics:
            text = self._metrics[request.path]()
            return Response(200, _METRICS, (text if isinstance(text, str) else await text).encode())
        if request.path == "/metrics/slis":
            return self._slis(request)
        accept = request.head.accept
        if self._issuer is not None and request.path.rstrip("/") == "/.well-known/openid-configuration":
            return Response(200, _PUBLIC_JSON, _openid(request, self._issuer))
        if self._issuer is not None and request.path.rstrip("/") == "/openid/v1/jwks":
            return Response(200, _JWKS, orjson.dumps(self._issuer.keys()))
        if first == "openapi":
            return await self._openapi_page(request, segments, accept)
        if request.path in ("/", "/index.html"):
            return Response(200, _JSON, self._paths(accept))
        document = self._discovery.page(request.path, accept) if first in ("api", "apis") else None
        return _respond(request, _negotiate_format(document, request)) if document is not None else None

    def _slis(self, request: Request) -> Response:
        """Return the results of the health checks. DELETE forgets them."""
        if request.method == "DELETE":
            self._results = HealthResults()
            return Response(200, _PLAIN, b"metrics reset\n")
        return Response(200, _METRICS, self._results.text().encode())

    def _is_read_only(self, path: str, segments: list[str]) -> bool:
        """Whether the page accepts only GET: Kubernetes serves its other pages whatever the method is."""
        if segments[0] == "api" or (segments[0] == "apis" and len(segments) > 2 and segments[2]):
            return self._discovery.page(path, "") is not None
        return path.rstrip("/") in _READ_ONLY

    async def _openapi_page(self, request: Request, segments: list[str], accept: str) -> Response | None:
        document: ServedDocument | None
        match segments:
            case ["openapi", "v2"]:
                return await self._respond_with_v2(request, accept)
            case ["openapi", "v3"]:
                document = self._openapi.index()
                if self._aggregated.revision:
                    document = merge_index(document, self._aggregated)
            case ["openapi", "v3", "apis", group, version] if backend := self._aggregated.find(group, version):
                document = await fetch_openapi(backend)
            case ["openapi", "v3", *rest]:
                return await self._respond_with_v3(request, "/".join(rest))
            case _:
                return None
        return _respond(request, document) if document is not None else None

    async def _respond_with_v2(self, request: Request, accept: str) -> Response:
        await self._openapi.prepare_v2(accept)
        if self._aggregated.revision:
            document = await self._merged_openapi.v2(accept)
        else:
            document = self._openapi.v2(accept)
        if document is None:
            return Response(406, _NOT_ACCEPTED)
        return await _respond_in_time(request, document)

    async def _respond_with_v3(self, request: Request, path: str) -> Response:
        await self._openapi.prepare_v3(path)
        document = self._openapi.v3(path, hash=request.parameter("hash") or "")
        return await _respond_in_time(request, document) if document is not None else Response(404, _EMPTY, b"")

    def _paths(self, accept: str) -> bytes:
        """Return all paths of the server."""
        paths = ["/.well-known/openid-configuration", "/openid/v1/jwks"] if self._issuer is not None else []
        paths += [
            "/api",
            "/apis",
            "/apis/",
            "/healthz",
            "/livez",
            *self._metrics,
            "/metrics/slis",
            "/openapi/v2",
            "/openapi/v3",
            "/readyz",
            "/version",
        ]
        paths += [f"/{page}/{name}" for page in sorted(_HEALTH) for name in self._checks(page)]
        groups = self._discovery.page("/apis", "")
        for group in orjson.loads(groups.body)["groups"] if groups is not None else []:
            paths.append(f"/apis/{group['name']}")
            paths += [f"/apis/{version['groupVersion']}" for version in group["versions"]]
        return orjson.dumps({"paths": sorted([*paths, "/api/v1"])}, option=orjson.OPT_INDENT_2)

    async def _health(self, request: Request, page: str, rest: list[str]) -> Response | None:
        checks = self._checks(page)
        if not rest:
            return await _run_all_checks(request, page, checks, self._results)
        check = checks.get("/".join(rest))
        if check is None:
            return None
        if reason := await _reason_of(check):
            return Response(500, _TEXT, f"internal server error: {reason}\n".encode())
        return Response(200, _PLAIN, b"ok")


def _openid(request: Request, issuer: Issuer) -> bytes:
    """Return the OpenID configuration: the keys are at this server, under the host of the request."""
    host = request.headers.get(b"host", b"").decode("latin-1")
    at = f"https://{host}" if host else issuer.name
    return orjson.dumps(
        {
            "issuer": issuer.name,
            "jwks_uri": f"{at}/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        }
    )


async def _run_all_checks(request: Request, page: str, checks: Mapping[str, Check], results: HealthResults) -> Response:
    excluded = set(request.query.get("exclude", ()))
    lines: list[str] = []
    is_failed = False
    for name, check in checks.items():
        if name in excluded:
            lines.append(f"[+]{name} excluded: ok")
            continue
        reason = await _reason_of(check)
        results.observe(name, page, is_passed=not reason)
        if reason:
            is_failed = True
            log.info("/%s: %s failed: %s", page, name, reason)
        lines.append(f"[-]{name} failed: reason withheld" if reason else f"[+]{name} ok")
    if unknown := ",".join(orjson.dumps(name).decode() for name in sorted(excluded - checks.keys())):
        lines.append(f"warn: some health checks cannot be excluded: no matches for {unknown}")
    if is_failed:
        lines.sort(key=lambda line: not line.startswith("[-]"))  # kubectl shows only 2,048 bytes of an error.
        return Response(500, _TEXT, "\n".join([*lines, f"{page} check failed", ""]).encode())
    if request.parameter("verbose") is None:
        return Response(200, _TEXT, b"ok")
    return Response(200, _TEXT, "\n".join([*lines, f"{page} check passed", ""]).encode())


async def _reason_of(check: Check) -> str:
    reason = check()
    return reason if isinstance(reason, str) else await reason


def _require_json(body: bytes, accept: str) -> bytes:
    if not is_named(accept, ONLY_JSON):
        raise errors.NotAcceptable((JSON,))
    return body


def _negotiate_format(document: ServedDocument, request: Request) -> ServedDocument:
    """Return a discovery page in the format that the client accepts. Aggregated discovery has its own already."""
    accept = request.head.accept
    if document.content_type != JSON:
        if document.content_type.startswith(PROTOBUF):
            return document
        is_pretty = wants_pretty(request) or any(parameters.get("pretty") == "1" for _, parameters in clauses(accept))
        return replace(document, body=indent_json(document.body)) if is_pretty else document
    try:
        accepted = negotiate(accept, views=_NO_VIEWS)
    except errors.NotShownSo:
        if is_named(accept) or request.path.rstrip("/") == "/apis":
            raise
        raise errors.NotAcceptable(ALL_OFFERED) from None
    if accepted.is_protobuf:
        return replace(document, body=to_protobuf(orjson.loads(document.body)), content_type=PROTOBUF, etag="")
    if accepted.is_yaml:
        return replace(document, body=as_yaml(orjson.loads(document.body)), content_type=YAML, etag="")
    if accepted.is_pretty or wants_pretty(request):
        return replace(document, body=indent_json(document.body))
    return document


async def _respond_in_time(request: Request, document: ServedDocument) -> Response:
    """Respond with a document that may be large: it is compressed beside the loop, once."""
    if is_long_body(document.body) and request.head.takes_gzip:
        await run_beside("documents", getattr, document, "gzipped")
    return _respond(request, document)


def _respond(request: Request, document: ServedDocument) -> Response:
    headers = [(b"Content-Type", document.content_type.encode())]
    headers += [(name.encode(), value.encode()) for name, value in document.headers]
    if document.etag:
        headers.append((b"Etag", document.etag.encode()))
    if document.location:
        return Response(301, [*headers, (b"Location", document.location.encode())])
    if document.is_held_by(request.headers.get(b"if-none-match", b"").decode("latin-1")):
        return Response(304, headers)
    if len(document.body) > _GZIP_FROM and request.head.takes_gzip:
        headers += [(b"Content-Encoding", b"gzip"), (b"Vary", b"Accept-Encoding")]
        return Response(200, headers, document.gzipped)
    return Response(200, headers, document.body)
