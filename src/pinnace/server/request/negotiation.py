"""Content negotiation: the format of an answer, and whether it is the object, its metadata or a table."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from pinnace.model import errors
from pinnace.schema.text_cache import LONGEST

JSON = "application/json"
YAML = "application/yaml"
OFFERED = (JSON, YAML)
PROTOBUF = "application/vnd.kubernetes.protobuf"
"""Listed among the formats of built-in kinds, as Kubernetes lists it; clients that accept it accept JSON too."""

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
    """False for JSON."""
    is_pretty: bool = False
    """Indented, for people."""
    is_named: bool = True
    """Whether the client named a format or accepts all: built-in kinds match no other wildcard."""


PLAIN = Accepted()
PLAIN_NAMES = frozenset(("", JSON, "*/*"))
"""Accept headers that mean the object as JSON."""


def negotiate(accept: str, *, views: frozenset[str] = VIEWS) -> Accepted:
    """Return the best match for an Accept header. Raise NotShownSo if there is none."""
    if accept in PLAIN_NAMES:
        return PLAIN
    return _negotiated(accept, views) if len(accept) <= LONGEST else _best(accept, views)


def _best(accept: str, views: frozenset[str]) -> Accepted:
    for media_type, parameters in _by_preference(accept):
        if media_type in ("*/*", "application/*"):
            media_type = JSON
        if media_type not in OFFERED:
            continue
        answer = _answer(media_type, parameters)
        if answer is not None and (not answer.view or answer.view in views):
            return answer if is_named(accept) else answer._replace(is_named=False)
    raise errors.NotShownSo(OFFERED if PROTOBUF in accept else ALL_OFFERED)


_negotiated = lru_cache(maxsize=512)(_best)


def is_named(accept: str, names: frozenset[str] = _NAMES) -> bool:
    """Whether an Accept header names one of the formats, or accepts all."""
    return any(clause.partition(";")[0].strip() in names for clause in accept.split(","))


def clauses(accept: str) -> list[tuple[str, dict[str, str]]]:
    """Return the alternatives of an Accept header by preference, each with its parameters."""
    return _by_preference(accept)


def _answer(media_type: str, parameters: dict[str, str]) -> Accepted | None:
    view = parameters.get("as", "")
    is_yaml, is_pretty = media_type == YAML, parameters.get("pretty") == "1"
    if not view:
        return Accepted(is_yaml=is_yaml, is_pretty=is_pretty)
    version = parameters.get("v", "")
    if view not in VIEWS or parameters.get("g") != "meta.k8s.io" or version not in ("v1", "v1beta1"):
        return None
    return Accepted(view, version, is_yaml, is_pretty)


def _by_preference(accept: str) -> list[tuple[str, dict[str, str]]]:
    found = []
    for clause in accept.split(","):
        media_type, *rest = (part.strip() for part in clause.split(";"))
        parameters = dict(_parameter(part) for part in rest if part)
        found.append((_quality(parameters.pop("q", "1")), media_type.lower(), parameters))
    found.sort(key=lambda one: -one[0])
    return [(media_type, parameters) for _, media_type, parameters in found]


def _parameter(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip(), value.strip().strip('"')


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 1.0
