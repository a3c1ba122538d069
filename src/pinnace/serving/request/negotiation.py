"""Content negotiation: the format of an answer, and whether it is the object, its metadata or a table."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import msgspec
import orjson

from pinnace.model import errors
from pinnace.schema.text_cache import LONGEST
from pinnace.serving.messages import Request

JSON = "application/json"
YAML = "application/yaml"
OFFERED = (JSON, YAML)
PROTOBUF = "application/vnd.kubernetes.protobuf"

ALL_OFFERED = (*OFFERED, PROTOBUF)
_NAMES = frozenset(("", "*/*", *ALL_OFFERED))
ONLY_JSON = frozenset(("", "*/*", JSON))

TABLE = "Table"
METADATA = "PartialObjectMetadata"
METADATA_LIST = "PartialObjectMetadataList"
VIEWS = frozenset({TABLE, METADATA, METADATA_LIST})
WITHOUT_ROWS = VIEWS - {TABLE}


class Accepted(NamedTuple):
    """`view` is empty for the object itself, else Table, PartialObjectMetadata or PartialObjectMetadataList."""

    view: str = ""
    version: str = ""
    """The version of the view in meta.k8s.io: v1 or v1beta1."""
    is_yaml: bool = False
    """False for JSON and protobuf."""
    is_pretty: bool = False
    """Indented, for people."""
    is_named: bool = True
    """Whether the client named a format or accepts all: built-in kinds match no other wildcard."""
    is_protobuf: bool = False


PLAIN = Accepted()
PLAIN_NAMES = frozenset(("", JSON, "*/*"))
"""Accept headers that mean the object as JSON."""


def negotiate(accept: str, *, views: frozenset[str] = VIEWS, has_message: bool = True) -> Accepted:
    """Return the best match for an Accept header. Raise NotShownSo if there is none.

    Without a message an object cannot be written as protobuf, but its metadata can.
    """
    if accept in PLAIN_NAMES:
        return PLAIN
    return _negotiated(accept, views, has_message) if len(accept) <= LONGEST else _best(accept, views, has_message)


def _best(accept: str, views: frozenset[str], has_message: bool) -> Accepted:
    for media_type, parameters in _by_preference(accept):
        if media_type in ("*/*", "application/*"):
            media_type = JSON
        if media_type not in ALL_OFFERED:
            continue
        answer = _answer(media_type, parameters)
        if answer is None or (answer.view and answer.view not in views):
            continue
        if answer.is_protobuf and not (answer.view in WITHOUT_ROWS or (has_message and not answer.view)):
            continue  # Tables are never protobuf.
        return answer if is_named(accept) else answer._replace(is_named=False)
    raise errors.NotShownSo(ALL_OFFERED)


_negotiated = lru_cache(maxsize=512)(_best)


def is_named(accept: str, names: frozenset[str] = _NAMES) -> bool:
    """Whether an Accept header names one of the formats, or accepts all."""
    return any(clause.partition(";")[0].strip() in names for clause in accept.split(","))


def clauses(accept: str) -> list[tuple[str, dict[str, str]]]:
    """Return the alternatives of an Accept header by preference, each with its parameters."""
    return _by_preference(accept)


def _answer(media_type: str, parameters: dict[str, str]) -> Accepted | None:
    view = parameters.get("as", "")
    is_yaml, is_protobuf = media_type == YAML, media_type == PROTOBUF
    is_pretty = parameters.get("pretty") == "1" and not is_protobuf
    if not view:
        return Accepted(is_yaml=is_yaml, is_pretty=is_pretty, is_protobuf=is_protobuf)
    version = parameters.get("v", "")
    if view not in VIEWS or parameters.get("g") != "meta.k8s.io" or version not in ("v1", "v1beta1"):
        return None
    if is_protobuf and version != "v1":
        return None  # The lists of v1beta1 have other field numbers, and no client needs them.
    return Accepted(view, version, is_yaml, is_pretty, is_protobuf=is_protobuf)


def _by_preference(accept: str) -> list[tuple[str, dict[str, str]]]:
    choices = []
    for clause in accept.split(","):
        media_type, *rest = (part.strip() for part in clause.split(";"))
        parameters = dict(_parameter(part) for part in rest if part)
        choices.append((_quality(parameters.pop("q", "1")), media_type.lower(), parameters))
    choices.sort(key=lambda choice: -choice[0])
    return [(media_type, parameters) for _, media_type, parameters in choices]


def _parameter(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip(), value.strip().strip('"')


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 1.0


_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))


def wants_pretty(request: Request) -> bool:
    """Whether the query or the User-Agent asks for indented JSON. `negotiate` handles the Accept header."""
    if not request.raw_query or "pretty" not in request.raw_query:
        return request.head.is_browser
    return request.parameter("pretty") in _TRUE


def indent_json(body: bytes | msgspec.Raw) -> bytes:
    return orjson.dumps(orjson.loads(memoryview(body)), option=orjson.OPT_INDENT_2)
