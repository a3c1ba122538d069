"""The objects of one kind, kept encoded: memory close to wire size, and every reader gets its own copy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Generic, NamedTuple

from pinnace.client.snapshots import Snapshot
from pinnace.model.objects import Key, TypedObject
from pinnace.model.selectors import LabelSelector
from pinnace.process.tasks import StopRequested

IndexFunction = Callable[[TypedObject], Iterable[str]]
"""Returns the values by which an object is found. It must be pure: after a change it is called for the old object."""

EncodedIndexFunction = Callable[[Snapshot[TypedObject]], Iterable[str]]
"""The same, read from the encoded object: with `Snapshot.derive` at best."""

_log = logging.getLogger(__name__)
_Objects = list[TypedObject]
_NO_VALUES: frozenset[str] = frozenset()
_NO_KEYS: frozenset[Key] = frozenset()


class _Index(NamedTuple, Generic[TypedObject]):
    function: IndexFunction[TypedObject] | None
    encoded: EncodedIndexFunction[TypedObject] | None
    """One of the two."""
    entries: dict[str, set[Key]]


class _Version(Generic[TypedObject]):
    """One version of an object while it is indexed: decoded at most once, and only for indexes that need it."""

    def __init__(self, snapshot: Snapshot[TypedObject]) -> None:
        self.snapshot = snapshot

    @cached_property
    def object(self) -> TypedObject:
        return self.snapshot.object


class Cache(Generic[TypedObject]):
    """The objects of one kind by key and by index. Every read decodes a new copy, which the caller may change.

    Only its informer writes to it.
    """

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, Snapshot[TypedObject]]] = {}
        self._indexes: dict[str, _Index[TypedObject]] = {}

    def get(self, key: Key) -> TypedObject | None:
        snapshot = self.snapshot(key)
        return snapshot.object if snapshot is not None else None

    def snapshot(self, key: Key) -> Snapshot[TypedObject] | None:
        """Return the encoded object."""
        return self._by_namespace.get(key.namespace, {}).get(key.name)

    def list(self, *, namespace: str = "", labels: LabelSelector | None = None) -> _Objects[TypedObject]:
        """Return all objects, those in one namespace, or those that a selector matches."""
        snapshots = self.snapshots(namespace=namespace)
        if labels is None or labels.matches_everything:
            return [snapshot.object for snapshot in snapshots]
        return [snapshot.object for snapshot in snapshots if labels.matches(snapshot.metadata.get("labels") or {})]

    def snapshots(self, *, namespace: str = "") -> Iterator[Snapshot[TypedObject]]:
        if namespace:
            return iter(list(self._by_namespace.get(namespace, {}).values()))
        return iter([snapshot for some in self._by_namespace.values() for snapshot in some.values()])

    def keys(self, *, namespace: str = "") -> Iterator[Key]:
        return (snapshot.key for snapshot in self.snapshots(namespace=namespace))

    def __iter__(self) -> Iterator[Key]:
        return self.keys()

    def add_index(self, name: str, function: IndexFunction[TypedObject]) -> None:
        """Index the objects by the values of `function`. Adding the same index twice is harmless."""
        self._add_index(name, _Index(function, None, {}))

    def add_encoded_index(self, name: str, function: EncodedIndexFunction[TypedObject]) -> None:
        """Like `add_index`, without decoding: for kinds that change often."""
        self._add_index(name, _Index(None, function, {}))

    def _add_index(self, name: str, index: _Index[TypedObject]) -> None:
        known = self._indexes.get(name)
        if known is not None:
            if known.function is not index.function or known.encoded is not index.encoded:
                raise ValueError(f"there is another index named {name!r} already")
            return
        self._indexes[name] = index
        for snapshot in self.snapshots():
            self._enter(name, snapshot.key, self._values(name, _Version(snapshot)))

    @property
    def index_names(self) -> tuple[str, ...]:
        return tuple(self._indexes)

    def by_index(self, name: str, value: str) -> _Objects[TypedObject]:
        """Return the objects for which the index's function gave this value."""
        return [
            snapshot.object for key in self.keys_by_index(name, value) if (snapshot := self.snapshot(key)) is not None
        ]

    def keys_by_index(self, name: str, value: str) -> set[Key]:
        return set(self._indexes[name].entries.get(value, ()))

    def keys_by_all(self, name: str, values: Iterable[str]) -> set[Key]:
        """Return the keys for which the index's function gave every one of these values; none for no values."""
        entries = self._indexes[name].entries
        by_size = sorted((entries.get(value, _NO_KEYS) for value in values), key=len)
        return set(by_size[0].intersection(*by_size[1:])) if by_size else set()

    def __contains__(self, key: Key) -> bool:
        return self.snapshot(key) is not None

    def __len__(self) -> int:
        return sum(len(some) for some in self._by_namespace.values())

    # For the informer

    def put(self, snapshot: Snapshot[TypedObject]) -> None:
        key = snapshot.key
        if self._indexes:
            self._reindex(self.snapshot(key), snapshot)
        self._by_namespace.setdefault(key.namespace, {})[key.name] = snapshot

    def remove(self, key: Key) -> None:
        if self._indexes:
            self._reindex(self.snapshot(key), None)
        some = self._by_namespace.get(key.namespace)
        if some is not None:
            some.pop(key.name, None)
            if not some:
                del self._by_namespace[key.namespace]

    def _reindex(self, old: Snapshot[TypedObject] | None, new: Snapshot[TypedObject] | None) -> None:
        """Each version is decoded once for all indexes; an index whose values stay the same is not touched."""
        was = _Version(old) if old is not None else None
        now = _Version(new) if new is not None else None
        for name in self._indexes:
            before = self._values(name, was) if was is not None else _NO_VALUES
            after = self._values(name, now) if now is not None else _NO_VALUES
            if old is not None and before != after:
                self._leave(name, old.key, before - after)
            if new is not None and before != after:
                self._enter(name, new.key, after - before)

    def _enter(self, name: str, key: Key, values: Iterable[str]) -> None:
        entries = self._indexes[name].entries
        for value in values:
            entries.setdefault(value, set()).add(key)

    def _leave(self, name: str, key: Key, values: Iterable[str]) -> None:
        entries = self._indexes[name].entries
        for value in values:
            keys = entries.get(value)
            if keys is not None:
                keys.discard(key)
                if not keys:
                    del entries[value]

    def _values(self, name: str, version: _Version[TypedObject]) -> frozenset[str]:
        index = self._indexes[name]
        try:
            if index.encoded is not None:
                return frozenset(index.encoded(version.snapshot))
            assert index.function is not None
            return frozenset(index.function(version.object))
        except StopRequested:
            raise
        except BaseException:  # SystemExit, or CancelledError out of a function that does not wait.
            # One object that the function cannot handle must not stop the others.
            _log.exception("the index %s could not be computed for %s", name, version.snapshot.key)
            return _NO_VALUES
