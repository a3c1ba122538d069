"""The objects of one kind as the server knows them, for the parts that follow them without reading the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from pinnace.model.objects import Object


class WatchedObjects(Protocol):
    """The current objects of one kind. Keys are namespace/name, or the name alone."""

    def get(self, key: str) -> Object | None:
        """Return a copy of the object, or None if there is none."""

    def items(self) -> Iterable[tuple[str, Object]]: ...

    def in_namespace(self, namespace: str) -> Iterable[tuple[str, Object]]:
        """Return the objects of one namespace with their keys."""

    def on_change(self, changed: Callable[[str], None]) -> None:
        """Call back with the key of every created, changed or deleted object, before its writer gets an answer."""
