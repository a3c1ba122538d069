"""The objects of the backends as they were last read, as a store: with revisions, which backends do not have.

Every read of a client reads the backend first. The result is compared with the previous one: a difference is a change,
which gets the next revision and is sent to watchers.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from pinnace.model import errors
from pinnace.model.objects import Key, Object, key_of
from pinnace.model.resources import Resource
from pinnace.process.clock import Clock
from pinnace.sdk.api.kinds import ApiKind
from pinnace.sdk.backends.backend import Overtaken
from pinnace.sdk.handlers.calls import call as call_backend
from pinnace.serving.cache.fanout import split_key
from pinnace.serving.request.call import Call
from pinnace.serving.write.edits import encode
from pinnace.store.memory import MemoryStore
from pinnace.store.store import Guard, Record, is_expected
from pinnace.store.view import StoreView

_UIDS = uuid.UUID("6f2ad0a6-8d40-4a0e-9d3c-0b7cf7b8c1de")


class CollectionStore(MemoryStore):
    """The collections of one API server. A write goes to the backend; its result is stored here."""

    def __init__(self, clock: Clock) -> None:
        # From the clock, so that no revision is used again after a restart.
        first = int(clock.now().timestamp() * 1_000_000)
        super().__init__(StoreView({}, revision=first, compacted=first))
        self._collections: dict[str, Collection] = {}

    def add(self, kind: ApiKind, backend: Any) -> Collection:
        """Add the collection of a kind."""
        collection = self._collections[kind.resource.prefix] = Collection(self, kind, backend)
        return collection

    def collection(self, resource: Resource) -> Collection:
        return self._collections[resource.prefix]

    async def read(self, call: Call) -> None:
        """Read the object of a call again from its backend."""
        await self.collection(call.resource).read(Key(call.namespace, call.name))

    def record(self, key: str) -> Record | None:
        """Return the object as it was last read."""
        return self._view.records.get(key)

    async def record_read(self, key: str, value: bytes | None) -> int:
        """Store what was read from a backend: the object, or None if it is gone. Return the revision."""
        if value is None:
            return await super().delete(key, expected=None)
        return await super().put(key, value, expected=None)

    async def put(self, key: str, value: bytes, *, expected: int | None, guard: Guard | None = None) -> int:
        """Write an object to its backend, as `Store.put`, but raise the ApiError of a lost race.

        It is not tried again: a backend that changes all the time would keep a client waiting for ever.
        """
        collection, current = self._collections[split_key(key)[0]], self.record(key)
        obj: Object = orjson.loads(value)
        if not is_expected(expected, current):
            raise collection.lost_race(key_of(obj), current)
        return await collection.write(obj, current)

    async def delete(self, key: str, *, expected: int | None) -> int:
        """Delete an object from its backend, as `Store.delete`, but raise the ApiError of a lost race."""
        prefix, rest = split_key(key)
        collection, current = self._collections[prefix], self.record(key)
        namespace, _, name = rest.rpartition("/")
        if current is None or not is_expected(expected, current):
            raise collection.lost_race(Key(namespace, name), current)
        return await collection.delete(Key(namespace, name))


class Collection:
    """All objects of one kind."""

    def __init__(self, store: CollectionStore, kind: ApiKind, backend: Any) -> None:
        self.kind = kind
        self.backend = backend
        self._store = store
        self._group, self._plural = kind.resource.group, kind.resource.plural
        self._digests: dict[Key, bytes] = {}
        self._open_reads = 0
        self._changed: dict[Key, int] = {}
        """The revisions of the objects that changed while a read is open: what it returns of them may be older."""

    # Reading.

    async def read(self, key: Key) -> None:
        """Read an object again."""
        with self._reading() as began:
            obj = await call_backend(self.backend.get, key)
            await self._record(key, self.kind.plain(obj) if obj is not None else None, began)

    async def refresh(self, namespace: str = "") -> None:
        """Read all objects again, those of a namespace or all."""
        with self._reading() as began:
            listed = await call_backend(self.backend.list, namespace)
            present = {key_of(obj): obj for obj in map(self.kind.plain, listed)}
            for key, obj in present.items():
                if namespace in ("", key.namespace):
                    await self._record(key, obj, began)
            for key in [key for key in self._digests if namespace in ("", key.namespace) and key not in present]:
                await self._record(key, None, began)

    @contextmanager
    def _reading(self) -> Iterator[int]:
        """Yield the revision at which a read begins, and note the changes until it ends."""
        self._open_reads += 1
        try:
            yield self._store.revision
        finally:
            self._open_reads -= 1
            if not self._open_reads:
                self._changed.clear()

    # Writing.

    async def write(self, obj: Object, current: Record | None) -> int:
        """Create or update an object in the backend; return the revision of the stored one. Raise ApiError."""
        key = key_of(obj)
        is_deleting = "deletionTimestamp" in obj["metadata"]
        if current is not None:
            obj["metadata"]["resourceVersion"] = str(current.revision)
            if is_deleting and not self.kind.may_update:
                return await self.delete(key)  # No finalizer can ever be removed.
        try:
            stored = await call_backend(
                self.backend.create if current is None else self.backend.update, self.kind.typed(obj)
            )
        except Overtaken as why:
            if current is None:
                raise errors.AlreadyExists(group=self._group, plural=self._plural, name=key.name) from None
            raise self._conflict(key, why) from None
        if stored is None:
            await self.read(key)
        else:
            await self._record(key, self.kind.plain(stored), self._store.revision)
        record = self._store.record(self._place(key))
        if record is None:
            raise errors.NotFound(group=self._group, plural=self._plural, name=key.name)
        if is_deleting and not _is_held(orjson.loads(record.value)["metadata"]):
            return await self.delete(key)  # The backend does not store finalizers: it could never be deleted otherwise.
        return record.revision

    async def delete(self, key: Key) -> int:
        """Delete an object from the backend; return the revision of its deletion. Raise ApiError."""
        try:
            await call_backend(self.backend.delete, key)
        except Overtaken as why:
            raise self._conflict(key, why) from None
        await self._record(key, None, self._store.revision)
        return self._store.revision

    def lost_race(self, key: Key, current: Record | None) -> errors.ApiError:
        """Return the error of a write that was decided on an older state than the present one."""
        if current is None:
            return errors.NotFound(group=self._group, plural=self._plural, name=key.name)
        return errors.Conflict(errors.MODIFIED, group=self._group, plural=self._plural, name=key.name)

    def _conflict(self, key: Key, why: Overtaken) -> errors.Conflict:
        return errors.Conflict(str(why) or errors.MODIFIED, group=self._group, plural=self._plural, name=key.name)

    # Recording what was read. Nothing here waits, so that a list is recorded as one step.

    async def _record(self, key: Key, obj: Object | None, began: int) -> None:
        """Record an object, or that it is gone, as a read found it that began at the revision `began`."""
        if self._changed.get(key, 0) > began:
            return  # It was written during the read, whose result may be older.
        if obj is None:
            if self._digests.pop(key, None) is not None:
                self._note(key, await self._store.record_read(self._place(key), None))
            return
        obj = self._complete(key, obj)
        digest = hashlib.blake2b(orjson.dumps(obj, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()
        if self._digests.get(key) != digest:
            self._digests[key] = digest
            self._note(key, await self._store.record_read(self._place(key), encode(obj, self.kind.resource)))

    def _note(self, key: Key, revision: int) -> None:
        if self._open_reads:
            self._changed[key] = revision

    def _complete(self, key: Key, obj: Object) -> Object:
        """Return the object with a stable uid, in case the backend has none, and without a revision."""
        kind = self.kind.resource.kind
        metadata = {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}
        if not metadata.get("uid"):
            metadata["uid"] = str(uuid.uuid5(_UIDS, f"{kind.group}/{kind.name}/{key}"))
        return {**obj, "metadata": metadata}

    def _place(self, key: Key) -> str:
        resource = self.kind.resource
        return f"{resource.prefix}{key.namespace}/{key.name}" if resource.namespaced else resource.prefix + key.name


def _is_held(metadata: Object) -> bool:
    return "deletionTimestamp" in metadata and bool(metadata.get("finalizers"))
