"""What admission asks of the server's memory, and of those who decide what a user may do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from pinnace.admission.chain import Requester
from pinnace.model.objects import Object


class Objects(Protocol):
    """The objects of one kind, as they are now. Keys are namespace/name, or the name alone."""

    def get(self, key: str) -> Object | None:
        """The object, which belongs to the caller, or None if there is none."""

    def items(self) -> Iterable[tuple[str, Object]]: ...

    def on_change(self, changed: Callable[[str], None]) -> None:
        """Call back with the key of every object that is made, changed or gone, before its writer gets an answer."""


class Permissions(Protocol):
    """Who may do what."""

    def forbidden_error(
        self,
        user: Requester,
        verb: str,
        *,
        group: str,
        resource: str,
        subresource: str = "",
        namespace: str = "",
        name: str = "",
    ) -> Awaitable[str]:
        """What who asks for it is told; empty if it is allowed."""


class Kept:
    """What is worked out from all objects of a kind, once, and again only after one of them has changed."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._items: list[Object] | None = None
        objects.on_change(self._forget)

    def all(self) -> list[Object]:
        """Every object, by key. They are shared: look at them, and do not change them."""
        if self._items is None:
            self._items = [obj for _, obj in sorted(self._objects.items())]
        return self._items

    def _forget(self, key: str) -> None:
        self._items = None


class KeptByNamespace:
    """The objects of a namespaced kind by namespace, kept until one of that namespace changes."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._keys: dict[str, set[str]] = {}
        for key, _ in objects.items():
            self._keys.setdefault(key.partition("/")[0], set()).add(key)
        self._known: dict[str, list[Object]] = {}
        objects.on_change(self._changed)

    def has(self, namespace: str) -> bool:
        return namespace in self._keys

    def of(self, namespace: str) -> list[Object]:
        """Those of one namespace, by name. They are shared: look at them, and do not change them."""
        keys = self._keys.get(namespace)
        if not keys:
            return []
        known = self._known.get(namespace)
        if known is None:
            found = (self._objects.get(key) for key in sorted(keys))
            known = self._known[namespace] = [obj for obj in found if obj is not None]
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
