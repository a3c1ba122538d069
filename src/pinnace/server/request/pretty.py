"""Indented JSON, for people: on request, or for browsers and curl."""

from __future__ import annotations

import msgspec
import orjson

from pinnace.server.http.messages import Request

_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))


def wants_pretty(request: Request) -> bool:
    """Whether the query or the User-Agent asks for indented JSON. `negotiate` handles the Accept header."""
    if not request.raw_query or "pretty" not in request.raw_query:
        return request.head.is_browser
    return request.parameter("pretty") in _TRUE


def indent_json(body: bytes | msgspec.Raw) -> bytes:
    return orjson.dumps(orjson.loads(memoryview(body)), option=orjson.OPT_INDENT_2)
