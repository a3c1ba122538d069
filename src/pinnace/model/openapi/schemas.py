"""The schemas in an OpenAPI document: their names, and the schemas that they refer to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from pinnace.model.objects import Kind

REFERENCE = re.compile(rb'"\$ref":"#/\$defs/([^"]+)"')
OPENNESS = b',"x-kubernetes-preserve-unknown-fields":true'
"""Missing in the definitions of Kubernetes' own kinds."""

_OF_PATHS = re.compile(rb'"\$ref":"#/(?:components/schemas|definitions)/([^"]+)"')


class DefinitionBodies(Protocol):
    """Definitions as JSON, by name."""

    def __contains__(self, name: str) -> bool: ...

    def raw_bytes(self, name: str) -> bytes: ...


def schema_name(kind: Kind) -> str:
    """Return com.example.boats.v1.Boat for a group boats.example.com."""
    if "." not in kind.group:
        return f"io.k8s.api.{kind.group or 'core'}.{kind.version}.{kind.name}"
    return ".".join((*reversed(kind.group.split(".")), kind.version, kind.name))


def names_in(paths: bytes) -> list[str]:
    """Return the names of the schemas to which the paths of a document refer."""
    return sorted({name.decode() for name in _OF_PATHS.findall(paths)})


def with_references(bodies: dict[str, bytes], others: Iterable[str], definitions: DefinitionBodies) -> dict[str, bytes]:
    """Return the schemas `bodies`, the defined `others`, and all that they refer to, sorted by name."""
    gathered = dict(bodies)
    wanted = [*others, *(name for body in bodies.values() for name in _references(body))]
    while wanted:
        name = wanted.pop()
        if name not in gathered and name in definitions:
            gathered[name] = definitions.raw_bytes(name)
            wanted += _references(gathered[name])
    return dict(sorted(gathered.items()))


def _references(body: bytes) -> list[str]:
    return [name.decode() for name in REFERENCE.findall(body)]
