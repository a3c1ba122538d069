"""The objects that an operator has in memory, for functions that must not wait."""

from __future__ import annotations

from typing import Any, overload

from pinnace.client.mapping import KindLike, KindName, kind_from
from pinnace.client.typed import Resource, typed_list
from pinnace.model.objects import Key, Object
from pinnace.reconcile.cache import Cache
from pinnace.reconcile.manager import Manager
from pinnace.sdk.resources.spelling import nearest


class Caches:
    """Reads the operator's indexes: the second argument of the functions in `watches`."""

    def __init__(self, manager: Manager, namespaces: tuple[str, ...] = ()) -> None:
        self._manager = manager
        self._namespaces = namespaces or ("",)

    @overload
    def indexed(self, kind: type[Resource], index: str, value: str) -> list[Resource]: ...
    @overload
    def indexed(self, kind: KindName, index: str, value: str) -> list[Object]: ...
    def indexed(self, kind: Any, index: str, value: str) -> list[Any]:
        """Return the objects for which an `@operator.index` function gives this value."""
        return typed_list(kind, (obj for cache in self._caches(kind, index) for obj in cache.by_index(index, value)))

    def keys(self, kind: KindLike, index: str, value: str) -> set[Key]:
        """Return the keys of these objects."""
        return {key for cache in self._caches(kind, index) for key in cache.keys_by_index(index, value)}

    def _caches(self, kind: KindLike, index: str) -> list[Cache]:
        caches = [self._manager.cache(kind_from(kind), namespace=namespace) for namespace in self._namespaces]
        known = caches[0].index_names
        if index not in known:
            name = kind_from(kind).name
            hint = nearest(index, known) or f"; declare it with @operator.index({name})"
            raise LookupError(f"{name} has no index {index}{hint}")
        return caches
