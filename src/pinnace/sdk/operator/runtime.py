"""Everything that the handlers of one running operator share, and the objects that it has in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, overload

from pinnace.client.mapping import KindLike, KindName, kind_from
from pinnace.client.reading import Selection
from pinnace.client.typed import Resource, typed_list
from pinnace.model.objects import Key, Object
from pinnace.reconcile.cache import Cache
from pinnace.reconcile.informer import Informer
from pinnace.reconcile.manager import Manager
from pinnace.reconcile.queue import Exclusion
from pinnace.sdk.declarations import Declarations
from pinnace.sdk.handlers.options import CallOptions
from pinnace.sdk.handlers.threads import HandlerThreads
from pinnace.sdk.operator.applied import AppliedObjects
from pinnace.sdk.operator.shared_resources import Shared
from pinnace.sdk.resources.spelling import nearest


class WaitingHandlers:
    """The handlers of one kind that raised Retry, by object, each with its reason."""

    def __init__(self) -> None:
        self._reasons: dict[Key, dict[str, str]] = {}

    def add(self, key: Key, handler: str, reason: str) -> None:
        self._reasons.setdefault(key, {})[handler] = reason

    def remove(self, key: Key, handler: str) -> str | None:
        """Note that a handler has succeeded. Return the reason of another one that still waits, or None."""
        left = self._reasons.get(key)
        if left is None:
            return None
        left.pop(handler, None)
        if not left:
            del self._reasons[key]
        return next(iter(left.values()), None)

    def forget(self, key: Key) -> None:
        """Drop an object that is gone."""
        self._reasons.pop(key, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRuntime:
    """One running operator: its declarations, and the parts that its handlers use."""

    declarations: Declarations
    manager: Manager
    threads: HandlerThreads
    shared: Shared
    applied: AppliedObjects = field(default_factory=AppliedObjects)
    exclusions: dict[tuple[str, str], Exclusion[Key]] = field(default_factory=dict)
    waiting: dict[tuple[str, str], WaitingHandlers] = field(default_factory=dict)

    def exclusion(self, kind: KindLike) -> Exclusion[Key]:
        """Return the exclusion of all handlers of a kind: they take turns for each object."""
        named = kind_from(kind)
        return self.exclusions.setdefault((named.group, named.name), Exclusion())

    def is_ours(self, obj: Object) -> bool:
        """Whether this process handles an object: false if it is in a shard of another process."""
        shards = self.manager.shards
        return shards is None or shards.holds(obj["metadata"]["uid"])

    def waiting_of(self, kind: KindLike) -> WaitingHandlers:
        """Return the handlers of a kind that have asked to be called later."""
        named = kind_from(kind)
        return self.waiting.setdefault((named.group, named.name), WaitingHandlers())

    def selections(self, options: CallOptions) -> list[Selection]:
        """Return one selection for each namespace of the operator."""
        namespaces = self.declarations.namespaces or ("",)
        return [
            Selection(namespace=namespace, labels=options.labels, fields=options.fields) for namespace in namespaces
        ]


class ObjectCaches:
    """The caches of a handler's objects: one, or one for each namespace of the operator."""

    def __init__(self, runtime: OperatorRuntime, kind: KindLike, options: CallOptions) -> None:
        selections = runtime.selections(options)
        self._informers = [runtime.manager.own_informer(kind, **selection) for selection in selections]

    @property
    def informers(self) -> list[Informer]:
        return list(self._informers)

    def get(self, key: Key) -> Object | None:
        for informer in self._informers:
            obj: Object | None = informer.cache.get(key)
            if obj is not None:
                return obj
        return None

    def keys_near(self, namespace: str) -> list[Key]:
        """Return the keys of all objects of a namespace; of all if that is empty, or if they have no namespaces."""
        return [
            key
            for informer in self._informers
            for key in informer.cache.keys(namespace=namespace if informer.namespaced else "")
        ]

    def __contains__(self, key: Any) -> bool:
        return any(key in informer.cache for informer in self._informers)


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
