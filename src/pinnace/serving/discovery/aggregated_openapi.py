"""/openapi/v2 as one document, with the APIs of aggregated servers."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Iterable

import orjson

from pinnace.model.objects import Object
from pinnace.serving.discovery.backends import AggregatedBackend, AggregatedBackends
from pinnace.serving.discovery.documents import ServedDocument
from pinnace.serving.discovery.openapi_protobuf import encode_document

JSON = "application/json"
PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

_REFERENCE = re.compile(rb'"#/(definitions|parameters|responses)/([^"]+)"')

OwnDocument = Callable[[str], ServedDocument | None]
"""Return this server's document in a media type that the Accept header allows, or None."""
Reference = tuple[str, str]
"""A section that others refer to, and a name in it."""


class MergedOpenApi:
    """This server's document merged with those of the available backends; rewritten only if one has changed."""

    def __init__(self, own: OwnDocument, aggregated: AggregatedBackends) -> None:
        self._own = own
        self._aggregated = aggregated
        self._written: dict[str, ServedDocument] = {}

    async def v2(self, accept: str) -> ServedDocument | None:
        """Return the document without unavailable backends; None if the client accepts neither JSON nor protobuf."""
        page = self._own(accept)
        backends = [backend for backend in self._aggregated.backends() if not backend.unavailable_reason]
        if page is None or not backends:
            return page
        documents = await asyncio.gather(*(backend.openapi_v2() for backend in backends))
        theirs = [(backend, *document) for backend, document in zip(backends, documents, strict=True) if document[0]]
        if not theirs:
            return page
        digest = hashlib.sha512(f"{page.etag}{[(each.group, each.version, hash) for each, _, hash in theirs]}".encode())
        etag = f'"{digest.hexdigest().upper()}"'
        content_type = PROTOBUF if page.content_type != JSON else JSON
        known = self._written.get(content_type)
        if known is None or known.etag != etag:
            own = page if content_type == JSON else self._own(JSON)
            assert own is not None  # JSON is always offered.
            document = orjson.loads(own.body)
            for backend, body, _ in theirs:
                merge_backend(document, body, backend)
            body = orjson.dumps(document) if content_type == JSON else encode_document(document)
            known = self._written[content_type] = ServedDocument(body, content_type, etag, page.headers)
        return known


def merge_backend(document: Object, body: bytes, backend: AggregatedBackend) -> None:
    """Merge a backend's document of its own version into ours. A malformed document is ignored.

    A definition that differs from ours of the same name gets a number after its name.
    """
    root = f"/apis/{backend.group}/{backend.version}"
    try:
        theirs = orjson.loads(body)
        paths = {path: orjson.dumps(item) for path, item in theirs["paths"].items() if _is_below(path, root)}
        needed = _collect_references(paths.values(), theirs)
    except (AttributeError, LookupError, TypeError, ValueError):
        return
    for path in [path for path in document["paths"] if _is_below(path, root)]:
        del document["paths"][path]  # The APIService hands them to the backend.
    renamed = _rename_conflicts(document, needed)
    for (section, name), definition in needed.items():
        taken = document.setdefault(section, {})
        taken[renamed.get((section, name), name)] = _replace_names(definition, renamed)
    document["paths"] |= {path: _replace_names(item, renamed) for path, item in paths.items()}


def _rename_conflicts(document: Object, needed: dict[Reference, bytes]) -> dict[Reference, str]:
    """Return new names for definitions that differ from ours of the same name."""
    renamed: dict[Reference, str] = {}
    while True:
        before = len(renamed)
        for (section, name), definition in needed.items():
            taken = document.get(section) or {}
            if (section, name) in renamed or _is_free(taken, name, wanted := _replace_names(definition, renamed)):
                continue
            number = 2
            while not _is_free(taken, f"{name}_v{number}", wanted):
                number += 1
            renamed[section, name] = f"{name}_v{number}"
        if len(renamed) == before:
            return renamed  # Only now: what refers to a renamed definition differs too.


def _is_free(taken: Object, name: str, wanted: Object) -> bool:
    return name not in taken or bool(taken[name] == wanted)


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root}/")


def _collect_references(pieces: Iterable[bytes], document: Object) -> dict[Reference, bytes]:
    """Return the definitions that these pieces refer to, directly or not."""
    definitions: dict[Reference, bytes] = {}
    wanted = [place for piece in pieces for place in _references(piece)]
    while wanted:
        section, name = place = wanted.pop()
        if place not in definitions and name in (document.get(section) or {}):
            definitions[place] = orjson.dumps(document[section][name])
            wanted += _references(definitions[place])
    return definitions


def _references(piece: bytes) -> list[Reference]:
    return [(section.decode(), name.decode()) for section, name in _REFERENCE.findall(piece)]


def _replace_names(piece: bytes, renamed: dict[Reference, str]) -> Object:
    def rename(match: re.Match[bytes]) -> bytes:
        section, name = match[1].decode(), match[2].decode()
        return f'"#/{section}/{renamed.get((section, name), name)}"'.encode()

    value: Object = orjson.loads(_REFERENCE.sub(rename, piece) if renamed else piece)
    return value
