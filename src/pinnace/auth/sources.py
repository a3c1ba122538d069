"""What authentication and authorization ask of the server's memory: the objects of a kind, and their changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from pinnace.model.objects import Object


class Objects(Protocol):
    """The objects of one kind, as they are now. Keys are namespace/name, or the name alone."""

    def get(self, key: str) -> Object | None:
        """The object, which belongs to the caller, or None if there is none."""

    def items(self) -> Iterable[tuple[str, Object]]: ...

    def on_change(self, changed: Callable[[str], None]) -> None:
        """Call back with the key of every object that is made, changed or gone, before its writer gets an answer."""


class FixedObjects:
    """Objects as they were when they were listed: nobody is ever told of a change."""

    def __init__(self, *objects: Object) -> None:
        self._objects = {_key(obj): obj for obj in objects}

    def get(self, key: str) -> Object | None:
        return self._objects.get(key)

    def items(self) -> Iterable[tuple[str, Object]]:
        return self._objects.items()

    def on_change(self, changed: Callable[[str], None]) -> None:
        """Nothing changes here."""


def _key(obj: Object) -> str:
    metadata = obj["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])
