"""The OpenAPI definitions of the built-in kinds, for each minor version of Kubernetes, read on demand."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson

from pinnace.model.objects import Kind
from pinnace.schema.shape import Schema

FOLDER = "pinnace_definitions"
"""The directory into which the build writes the definitions: in the environment, not in the checkout."""


class NoDefinitions(LookupError):
    """There are no definitions of the requested minor version; the message says how to get them."""


def _find_data() -> Path:
    spec = find_spec(FOLDER)
    places = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(places))) if places else Path(__file__).parents[2] / FOLDER


DATA = _find_data()


def minors(data: Path = DATA) -> tuple[str, ...]:
    """Return the minor versions that can be loaded, oldest first: 1.25, 1.26, ..."""
    stems = (path.stem for path in data.glob("1.*.zlib"))
    return tuple(sorted(stems, key=lambda minor: int(minor.partition(".")[2])))


class Definitions:
    """The definitions of one minor version. Each is parsed once, on first use."""

    def __init__(
        self, bodies: memoryview, places: Mapping[str, tuple[int, int]], kinds: Mapping[str, str], *, minor: str
    ) -> None:
        self.minor = minor
        self._bodies = bodies
        self._places = places
        self._kinds = kinds
        self._schemas: dict[str, Schema] = {}

    @classmethod
    def load(cls, minor: str, data: Path = DATA) -> Definitions:
        try:
            packed = (data / f"{minor}.zlib").read_bytes()
        except FileNotFoundError:
            available = minors(data)
            if not available:
                raise NoDefinitions(
                    "this environment has no Kubernetes definitions: run `pip install --editable .` in the checkout"
                ) from None
            raise NoDefinitions(
                f"there are no definitions of Kubernetes {minor}; available are {', '.join(available)}"
            ) from None
        whole = zlib.decompress(packed)
        end = whole.index(b"\n")
        index = orjson.loads(whole[:end])
        return cls(memoryview(whole)[end + 1 :], index["places"], index["kinds"], minor=minor)

    def names(self) -> Iterator[str]:
        return iter(self._places)

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def raw_bytes(self, name: str) -> bytes:
        """Return a definition as JSON; references are `#/$defs/<name>`."""
        start, end = self._places[name]
        return bytes(self._bodies[start:end])

    def schema(self, name: str) -> Schema:
        known = self._schemas.get(name)
        if known is None:
            if name not in self._places:
                raise KeyError(f"Kubernetes {self.minor} defines no {name!r}")
            raw: dict[str, Any] = orjson.loads(self.raw_bytes(name))
            known = self._schemas[name] = Schema(raw, self.schema, name)
        return known

    def name_of_kind(self, kind: Kind) -> str | None:
        return self._kinds.get(f"{kind.group}/{kind.version}/{kind.name}")

    def of_kind(self, kind: Kind) -> Schema | None:
        """Return the schema of a kind, or None if this minor version has no such kind."""
        name = self.name_of_kind(kind)
        return None if name is None else self.schema(name)
