"""The objects that admission plug-ins read, kept between writes."""

from __future__ import annotations

from pinnace.model.objects import Object
from pinnace.model.watched_objects import WatchedObjects


class Kept:
    """A value computed from all objects of a kind, and again only after a change."""

    def __init__(self, objects: WatchedObjects) -> None:
        self._objects = objects
        self._items: list[Object] | None = None
        objects.on_change(self._forget)

    def all(self) -> list[Object]:
        """Return every object, by key. They are shared: do not change them."""
        if self._items is None:
            self._items = [obj for _, obj in sorted(self._objects.items())]
        return self._items

    def _forget(self, key: str) -> None:
        self._items = None


class KeptByNamespace:
    """The objects of a namespaced kind by namespace, kept until one of that namespace changes."""

    def __init__(self, objects: WatchedObjects) -> None:
        self._objects = objects
        self._keys: dict[str, set[str]] = {}
        for key, _ in objects.items():
            self._keys.setdefault(key.partition("/")[0], set()).add(key)
        self._known: dict[str, list[Object]] = {}
        objects.on_change(self._changed)

    def has(self, namespace: str) -> bool:
        return namespace in self._keys

    def of(self, namespace: str) -> list[Object]:
        """Return the objects of one namespace, by name. They are shared: do not change them."""
        keys = self._keys.get(namespace)
        if not keys:
            return []
        known = self._known.get(namespace)
        if known is None:
            stored = (self._objects.get(key) for key in sorted(keys))
            known = self._known[namespace] = [obj for obj in stored if obj is not None]
        return known

    def _changed(self, key: str) -> None:
        namespace = key.partition("/")[0]
        self._known.pop(namespace, None)
        if self._objects.get(key) is not None:
            self._keys.setdefault(namespace, set()).add(key)
        elif (keys := self._keys.get(namespace)) is not None:
            keys.discard(key)
            if not keys:
                del self._keys[namespace]
