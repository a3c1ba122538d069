"""The objects of one kind as they were last read, with revisions, so that backends without revisions can be watched.

Every read asks the backend. The result is compared with the previous one: a difference is a change, which gets the
next revision and is sent to watchers.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import orjson

from pinnace.model import errors
from pinnace.model.clock import Clock
from pinnace.model.objects import Key, Object, key_of
from pinnace.sdk.api.backends import Overtaken
from pinnace.sdk.api.kinds import ApiKind
from pinnace.sdk.handlers.calls import call

HISTORY_LENGTH = 10_000
"""How many changes are kept for watches; a client that is further behind must list again."""

_UIDS = uuid.UUID("6f2ad0a6-8d40-4a0e-9d3c-0b7cf7b8c1de")


@dataclass(frozen=True, slots=True)
class CollectionEntry:
    """One object at one revision."""

    key: Key
    revision: int
    body: bytes
    digest: bytes

    @property
    def object(self) -> Object:
        decoded: Object = orjson.loads(self.body)
        return decoded


@dataclass(frozen=True, slots=True)
class CollectionChange:
    """One change of an object; `old` is None for a new one, `new` for a removed one."""

    revision: int
    key: Key
    old: CollectionEntry | None
    new: CollectionEntry | None


class CollectionWatcher:
    """Receives the changes after a revision, in order."""

    def __init__(self, changes: Iterable[CollectionChange]) -> None:
        self._waiting = deque(changes)
        self._woken = asyncio.Event()
        self.is_over = False
        """No more changes follow: the server stops, or so many changes wait that the client must list again."""

    def notify(self, change: CollectionChange) -> None:
        if len(self._waiting) >= HISTORY_LENGTH:
            self.is_over = True
        else:
            self._waiting.append(change)
        self._woken.set()

    def end(self) -> None:
        self.is_over = True
        self._woken.set()

    def wake(self) -> None:
        """Make `next` return even if nothing has changed."""
        self._woken.set()

    async def next(self) -> list[CollectionChange]:
        """Return the changes since the last call; none after `wake` or `end`."""
        if not self._waiting:
            await self._woken.wait()
        self._woken.clear()
        found, self._waiting = list(self._waiting), deque()
        return found


class Collection:
    """All objects of one kind."""

    def __init__(self, served: ApiKind, backend: Any, clock: Clock) -> None:
        self.served = served
        self._backend = backend
        # From the clock, so that no revision is used again after a restart.
        self.revision = int(clock.now().timestamp() * 1_000_000)
        self._oldest = self.revision
        self._entries: dict[Key, CollectionEntry] = {}
        self._gone: dict[Key, int] = {}
        self._history: deque[CollectionChange] = deque()
        self._watchers: set[CollectionWatcher] = set()
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    # Reading.

    async def get(self, key: Key) -> CollectionEntry | None:
        began = self.revision
        found = await call(self._backend.get, key)
        return self._record(key, self.served.plain(found) if found is not None else None, began)

    async def refresh(self, namespace: str = "") -> None:
        """Read all objects again."""
        began = self.revision
        listed = await call(self._backend.list, namespace)
        objects = [self.served.plain(found) for found in listed]
        present = {key_of(obj): obj for obj in objects}
        for key, obj in present.items():
            if namespace in ("", key.namespace):
                self._record(key, obj, began)
        for key in [key for key in self._entries if namespace in ("", key.namespace) and key not in present]:
            self._record(key, None, began)

    def at(self, revision: int, namespace: str) -> list[CollectionEntry]:
        """Return the objects at a revision, sorted. Raise Expired if the history no longer reaches back to it."""
        self._check_history(revision)
        entries = dict(self._entries)
        for change in reversed(self._history):
            if change.revision <= revision:
                break
            if change.old is None:
                entries.pop(change.key, None)
            else:
                entries[change.key] = change.old
        chosen = (key for key in entries if namespace in ("", key.namespace))
        return [entries[key] for key in sorted(chosen)]

    @asynccontextmanager
    async def watching(self, since: int) -> AsyncIterator[CollectionWatcher]:
        """Watch the changes after a revision, within a block. Raise Expired if the history is too short."""
        self._check_history(since)
        watcher = CollectionWatcher(change for change in self._history if change.revision > since)
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    def end_watches(self) -> None:
        """End all watches, since this server stops."""
        for watcher in self._watchers:
            watcher.end()

    @property
    def is_watched(self) -> bool:
        return bool(self._watchers)

    def _check_history(self, revision: int) -> None:
        if not self._oldest <= revision <= self.revision:
            raise errors.Expired(f"too old resource version: {revision} ({self._oldest})")

    # Writing.

    @asynccontextmanager
    async def writing(self, key: Key) -> AsyncIterator[None]:
        """Hold the lock of an object: only this block writes it."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            yield

    async def create(self, obj: Object) -> CollectionEntry:
        key, resource = key_of(obj), self.served.resource
        try:
            return await self._store(key, await call(self._backend.create, self.served.typed(obj)))
        except Overtaken:
            raise errors.AlreadyExists(group=resource.group, plural=resource.plural, name=key.name) from None

    async def update(self, obj: Object) -> CollectionEntry:
        key = key_of(obj)
        try:
            return await self._store(key, await call(self._backend.update, self.served.typed(obj)))
        except Overtaken as why:
            raise self._conflict(key, why) from None

    async def delete(self, key: Key) -> None:
        try:
            await call(self._backend.delete, key)
        except Overtaken as why:
            raise self._conflict(key, why) from None
        self._record(key, None, self.revision)

    def _conflict(self, key: Key, why: Overtaken) -> errors.Conflict:
        resource = self.served.resource
        return errors.Conflict(str(why) or errors.MODIFIED, group=resource.group, plural=resource.plural, name=key.name)

    async def _store(self, key: Key, found: Any) -> CollectionEntry:
        entry = await self.get(key) if found is None else self._record(key, self.served.plain(found), self.revision)
        if entry is None:
            resource = self.served.resource
            raise errors.NotFound(group=resource.group, plural=resource.plural, name=key.name)
        return entry

    # Recording what was read.

    def _record(self, key: Key, obj: Object | None, began: int) -> CollectionEntry | None:
        """Record an object as it was read, and return its entry. The read began at the revision `began`."""
        old = self._entries.get(key)
        if (old.revision if old is not None else self._gone.get(key, 0)) > began:
            return old  # It was written during the read, whose result may be older.
        if obj is None:
            if old is not None:
                del self._entries[key]
                self._notify(key, old, None)
                self._gone[key] = self.revision
            return None
        obj = self._complete(key, obj)
        digest = hashlib.blake2b(orjson.dumps(obj, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()
        if old is not None and old.digest == digest:
            return old
        metadata = {**obj["metadata"], "resourceVersion": str(self.revision + 1)}
        entry = CollectionEntry(key, self.revision + 1, orjson.dumps({**obj, "metadata": metadata}), digest)
        self._entries[key] = entry
        self._notify(key, old, entry)
        return entry

    def _complete(self, key: Key, obj: Object) -> Object:
        """Return the object with a stable uid, in case the backend has none."""
        kind = self.served.kind
        metadata = {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}
        if not metadata.get("uid"):
            metadata["uid"] = str(uuid.uuid5(_UIDS, f"{kind.group}/{kind.name}/{key}"))
        head = {"kind": obj["kind"], "apiVersion": obj["apiVersion"], "metadata": metadata}
        return {**head, **{name: value for name, value in obj.items() if name not in head}}

    def _notify(self, key: Key, old: CollectionEntry | None, new: CollectionEntry | None) -> None:
        self.revision += 1
        change = CollectionChange(self.revision, key, old, new)
        self._history.append(change)
        self._gone.pop(key, None)
        if len(self._history) > HISTORY_LENGTH:
            forgotten = self._history.popleft()
            self._oldest = forgotten.revision
            if self._gone.get(forgotten.key) == forgotten.revision:
                del self._gone[forgotten.key]
        for watcher in self._watchers:
            watcher.notify(change)
