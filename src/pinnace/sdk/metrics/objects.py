"""Finds the objects that a request for metrics is about: by name, by namespace and by labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pinnace.client.mapping import KindLike, kind_from
from pinnace.client.snapshots import Snapshot
from pinnace.model.objects import Key
from pinnace.model.selectors import LabelSelector
from pinnace.reconcile.cache import Cache
from pinnace.reconcile.manager import Manager
from pinnace.sdk.resources.plurals import is_namespaced

ALL = "*"
_BY_LABEL = "metric label"


class MeasuredObjects:
    """The objects of one kind, in the namespaces of the operator. They are cached: a request costs no other one."""

    def __init__(self, manager: Manager, kind: KindLike, namespaces: Sequence[str]) -> None:
        within = namespaces if namespaces and is_namespaced(kind) else ("",)
        self._caches: list[Cache] = [manager.cache(kind_from(kind), namespace=namespace) for namespace in within]
        for cache in self._caches:
            cache.add_encoded_index(_BY_LABEL, _labels_of)

    def select(self, namespace: str, name: str, labels: LabelSelector) -> list[Snapshot]:
        """Return the object with this name, or for * all that the selector matches, sorted by key."""
        selected = [snapshot for cache in self._caches for snapshot in self._select(cache, namespace, name, labels)]
        return sorted(selected, key=lambda snapshot: snapshot.key)

    def _select(self, cache: Cache, namespace: str, name: str, labels: LabelSelector) -> Iterable[Snapshot]:
        if name != ALL:
            named = cache.snapshot(Key(namespace, name))
            return [named] if named is not None else []
        exact = labels.equalities()
        if not exact:
            snapshots: Iterable[Snapshot] = cache.snapshots(namespace=namespace)
        else:
            keys = cache.keys_by_all(_BY_LABEL, (f"{key}={value}" for key, value in exact.items()))
            known = (cache.snapshot(key) for key in keys if namespace in ("", key.namespace))
            snapshots = [snapshot for snapshot in known if snapshot is not None]
        if len(exact) == len(labels.requirements):
            return snapshots
        return [snapshot for snapshot in snapshots if labels.matches(snapshot.metadata.get("labels") or {})]


def _labels_of(snapshot: Snapshot) -> list[str]:
    return [f"{key}={value}" for key, value in (snapshot.metadata.get("labels") or {}).items()]
