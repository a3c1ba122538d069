"""The parts of an OpenAPI document: what one resource contributes, written again only if the resource changes.

A cluster may have thousands of custom kinds. A document is put together from the parts that are there; missing ones are
written in slices of the event loop, so that one more kind costs one part and not the whole document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import orjson

from pinnace.model.objects import Object
from pinnace.model.openapi.schemas import REFERENCE, DefinitionBodies, names_in
from pinnace.model.resources import Resource
from pinnace.process.work_slices import SliceQueue

Form = Callable[[str, bytes], bytes]
"""Write a schema as a version of OpenAPI has it."""


@dataclass(frozen=True, slots=True)
class Part:
    """The paths and schemas of one resource, as entries of JSON objects by their key."""

    paths: dict[str, bytes]
    schemas: dict[str, bytes]
    referenced: frozenset[str]
    """The names of schemas that either refers to."""


def write_part(paths: Object, schemas: Mapping[str, bytes], form: Form) -> Part:
    items = {path: orjson.dumps(item) for path, item in paths.items()}
    referenced = {name for item in items.values() for name in names_in(item)}
    referenced |= {name for body in schemas.values() for name in references_of(body)}
    return Part(
        {path: _entry(path, body) for path, body in items.items()},
        {name: _entry(name, form(name, body)) for name, body in schemas.items()},
        frozenset(referenced),
    )


def references_of(schema: bytes) -> list[str]:
    return [name.decode() for name in REFERENCE.findall(schema)]


def join_document(head: bytes, *pieces: bytes | Mapping[str, bytes]) -> bytes:
    """Return a document that begins with the object `head`. It is copied once: it may have 50 MB."""
    joined = [head[:-1], b","]
    for piece in pieces:
        if isinstance(piece, bytes):
            joined.append(piece)
            continue
        for body in piece.values():
            joined += (body, b",")
        if piece:
            joined.pop()
    return b"".join(joined)


def _entry(key: str, body: bytes) -> bytes:
    return orjson.dumps(key) + b":" + body


@dataclass(slots=True)
class _Defined:
    """A schema of the definitions, written once."""

    entry: bytes
    referenced: list[str]


@dataclass(slots=True)
class DocumentParts:
    """The parts of all resources for one version of OpenAPI."""

    write: Callable[[Resource], Part]
    form: Form
    definitions: DefinitionBodies
    _parts: dict[int, tuple[Resource, Part]] = field(default_factory=dict)
    """By the identity of the resource: a resource that changes is another object."""
    _defined: dict[str, _Defined] = field(default_factory=dict)

    def of(self, resource: Resource) -> Part:
        known = self._parts.get(id(resource))
        if known is None:
            known = self._parts[id(resource)] = (resource, self.write(resource))
        return known[1]

    async def prepare(self, resources: Iterable[Resource]) -> None:
        """Write the parts that are missing, and the definitions that they refer to, in slices."""
        missing = [resource for resource in resources if id(resource) not in self._parts]
        slices = SliceQueue.of_loop().begin()
        seen: set[str] = set()
        for resource in missing:
            await slices.pause()
            waiting = list(self.of(resource).referenced - seen)
            while waiting:
                name = waiting.pop()
                if name in seen:
                    continue
                await slices.pause()
                seen.add(name)
                defined = self._find(name)
                waiting += defined.referenced if defined is not None else ()

    def forget_all_but(self, resources: Iterable[Resource]) -> None:
        present = {id(resource) for resource in resources}
        self._parts = {key: known for key, known in self._parts.items() if key in present}

    def gather(self, resources: Iterable[Resource], *others: str) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """Return the entries of all paths and schemas, with `others` and all that these refer to, in order."""
        paths: dict[str, bytes] = {}
        schemas: dict[str, bytes] = {}
        wanted: set[str] = set(others)
        for resource in resources:
            part = self.of(resource)
            paths |= part.paths
            schemas |= part.schemas
            wanted |= part.referenced
        waiting = list(wanted)
        while waiting:
            name = waiting.pop()
            if name not in schemas and (defined := self._find(name)) is not None:
                schemas[name] = defined.entry
                waiting += defined.referenced
        return paths, dict(sorted(schemas.items()))

    def _find(self, name: str) -> _Defined | None:
        known = self._defined.get(name)
        if known is None and name in self.definitions:
            body = self.definitions.raw_bytes(name)
            known = self._defined[name] = _Defined(_entry(name, self.form(name, body)), references_of(body))
        return known
