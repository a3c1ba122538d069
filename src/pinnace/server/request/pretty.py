"""JSON for people: with line breaks, if they say so, or look at it with a program that shows it to them."""

from __future__ import annotations

import orjson

from pinnace.server.http.messages import Request

_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))


def wants_pretty(request: Request) -> bool:
    """By the query, or else by the client's name. Who says so by the Accept header is known by `negotiate`."""
    if not request.raw_query or "pretty" not in request.raw_query:
        return request.head.is_browser
    return request.parameter("pretty") in _TRUE


def indented(body: bytes) -> bytes:
    return orjson.dumps(orjson.loads(body), option=orjson.OPT_INDENT_2)
