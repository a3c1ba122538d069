"""The cached objects that authentication and authorization read, and their changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pinnace.model.objects import Object


class FixedObjects:
    """Objects that never change."""

    def __init__(self, *objects: Object) -> None:
        self._objects = {_key(obj): obj for obj in objects}

    def get(self, key: str) -> Object | None:
        return self._objects.get(key)

    def items(self) -> Iterable[tuple[str, Object]]:
        return self._objects.items()

    def in_namespace(self, namespace: str) -> Iterable[tuple[str, Object]]:
        return [(key, obj) for key, obj in self._objects.items() if key.rpartition("/")[0] == namespace]

    def on_change(self, changed: Callable[[str], None]) -> None:
        """Nothing changes here."""


def _key(obj: Object) -> str:
    metadata = obj["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])
