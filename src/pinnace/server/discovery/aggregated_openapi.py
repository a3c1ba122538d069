"""/openapi/v2 as one document of everything, whoever serves it."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Iterable

import orjson

from pinnace.model.objects import Object
from pinnace.server.aggregation import AggregatedBackend, AggregatedBackends
from pinnace.server.discovery.documents import ServedDocument
from pinnace.server.discovery.openapi_protobuf import encode_document

JSON = "application/json"
PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

_REFERENCE = re.compile(rb'"#/(definitions|parameters|responses)/([^"]+)"')

Own = Callable[[str], ServedDocument | None]
"""The document of this server alone, in a form that this Accept header takes."""
Place = tuple[str, str]
"""A section that others refer to, and a name in it."""


class MergedOpenApi:
    """This server's document with those of the backends that can be asked; written anew only if one has changed."""

    def __init__(self, own: Own, aggregated: AggregatedBackends) -> None:
        self._own = own
        self._aggregated = aggregated
        self._written: dict[str, ServedDocument] = {}

    async def v2(self, accept: str) -> ServedDocument | None:
        """None if the client accepts neither JSON nor protobuf. A backend that is gone is left out, or as last seen."""
        found = self._own(accept)
        backends = [backend for backend in self._aggregated.backends() if not backend.unavailable_reason]
        if found is None or not backends:
            return found
        documents = await asyncio.gather(*(backend.openapi_v2() for backend in backends))
        theirs = [(backend, *document) for backend, document in zip(backends, documents, strict=True) if document[0]]
        if not theirs:
            return found
        told = hashlib.sha512(f"{found.etag}{[(each.group, each.version, hash) for each, _, hash in theirs]}".encode())
        etag = f'"{told.hexdigest().upper()}"'
        content_type = PROTOBUF if found.content_type != JSON else JSON
        known = self._written.get(content_type)
        if known is None or known.etag != etag:
            own = found if content_type == JSON else self._own(JSON)
            assert own is not None  # JSON is always offered.
            document = orjson.loads(own.body)
            for backend, body, _ in theirs:
                merge_backend(document, body, backend)
            body = orjson.dumps(document) if content_type == JSON else encode_document(document)
            known = self._written[content_type] = ServedDocument(body, content_type, etag, found.headers)
        return known


def merge_backend(document: Object, body: bytes, backend: AggregatedBackend) -> None:
    """Put what a backend says of its own version into the document. What cannot be understood is left out.

    A definition that has the name of another but says something else gets a number behind its name.
    """
    root = f"/apis/{backend.group}/{backend.version}"
    try:
        theirs = orjson.loads(body)
        paths = {path: orjson.dumps(said) for path, said in theirs["paths"].items() if _is_below(path, root)}
        needed = _needed(paths.values(), theirs)
    except (AttributeError, LookupError, TypeError, ValueError):
        return
    for path in [path for path in document["paths"] if _is_below(path, root)]:
        del document["paths"][path]  # The APIService says that they are not this server's to answer.
    renamed = _renamed(document, needed)
    for (section, name), said in needed.items():
        taken = document.setdefault(section, {})
        taken[renamed.get((section, name), name)] = _with_names(said, renamed)
    document["paths"] |= {path: _with_names(said, renamed) for path, said in paths.items()}


def _renamed(document: Object, needed: dict[Place, bytes]) -> dict[Place, str]:
    """New names for what would change the meaning of a name in the document."""
    renamed: dict[Place, str] = {}
    while True:
        before = len(renamed)
        for (section, name), said in needed.items():
            taken = document.get(section) or {}
            if (section, name) in renamed or _is_free(taken, name, wanted := _with_names(said, renamed)):
                continue
            number = 2
            while not _is_free(taken, f"{name}_v{number}", wanted):
                number += 1
            renamed[section, name] = f"{name}_v{number}"
        if len(renamed) == before:
            return renamed  # Not before: what refers to something renamed says something else, too.


def _is_free(taken: Object, name: str, wanted: Object) -> bool:
    return name not in taken or bool(taken[name] == wanted)


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root}/")


def _needed(pieces: Iterable[bytes], document: Object) -> dict[Place, bytes]:
    """What these pieces refer to, directly or not."""
    found: dict[Place, bytes] = {}
    wanted = [place for piece in pieces for place in _references(piece)]
    while wanted:
        section, name = place = wanted.pop()
        if place not in found and name in (document.get(section) or {}):
            found[place] = orjson.dumps(document[section][name])
            wanted += _references(found[place])
    return found


def _references(piece: bytes) -> list[Place]:
    return [(section.decode(), name.decode()) for section, name in _REFERENCE.findall(piece)]


def _with_names(piece: bytes, renamed: dict[Place, str]) -> Object:
    def named(match: re.Match[bytes]) -> bytes:
        section, name = match[1].decode(), match[2].decode()
        return f'"#/{section}/{renamed.get((section, name), name)}"'.encode()

    said: Object = orjson.loads(_REFERENCE.sub(named, piece) if renamed else piece)
    return said
