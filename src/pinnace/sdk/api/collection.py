"""The objects of one kind as they were last seen, with revisions, so that backends without any can be watched.

A backend is asked for every read. What it gives is compared with what it gave before: what differs is a change, which
gets the next revision, and is told to those who watch.
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
from pinnace.sdk.api.kinds import ServedKind
from pinnace.sdk.operator.calls import called

REMEMBERED = 10_000
"""Changes that a watch can begin before; whoever is further behind has to list again."""

_UIDS = uuid.UUID("6f2ad0a6-8d40-4a0e-9d3c-0b7cf7b8c1de")


@dataclass(frozen=True, slots=True)
class Entry:
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
class Change:
    revision: int
    key: Key
    old: Entry | None
    new: Entry | None


class Watcher:
    """Takes the changes from some revision on, in order."""

    def __init__(self, changes: Iterable[Change]) -> None:
        self._waiting = deque(changes)
        self._woken = asyncio.Event()
        self.is_over = False
        """Nothing more comes: the server stops, or so many changes wait that the client had better list again."""

    def tell(self, change: Change) -> None:
        if len(self._waiting) >= REMEMBERED:
            self.is_over = True
        else:
            self._waiting.append(change)
        self._woken.set()

    def end(self) -> None:
        self.is_over = True
        self._woken.set()

    def wake(self) -> None:
        """Have `next` return, though nothing has changed."""
        self._woken.set()

    async def next(self) -> list[Change]:
        """What has changed since the last call; empty if somebody only wants to be heard."""
        if not self._waiting:
            await self._woken.wait()
        self._woken.clear()
        found, self._waiting = list(self._waiting), deque()
        return found


class Collection:
    """All objects of one kind."""

    def __init__(self, served: ServedKind, backend: Any, clock: Clock) -> None:
        self.served = served
        self._backend = backend
        # So that no revision comes twice, though nothing is kept between two runs.
        self.revision = int(clock.now().timestamp() * 1_000_000)
        self._oldest = self.revision
        self._entries: dict[Key, Entry] = {}
        self._gone: dict[Key, int] = {}
        self._history: deque[Change] = deque()
        self._watchers: set[Watcher] = set()
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    # Reading.

    async def get(self, key: Key) -> Entry | None:
        began = self.revision
        found = await called(self._backend.get, key)
        return self._seen(key, self.served.plain(found) if found is not None else None, began)

    async def refresh(self, namespace: str = "") -> None:
        """Look at everything again."""
        began = self.revision
        listed = await called(self._backend.list, namespace)
        objects = [self.served.plain(found) for found in listed]
        present = {key_of(obj): obj for obj in objects}
        for key, obj in present.items():
            if namespace in ("", key.namespace):
                self._seen(key, obj, began)
        for key in [key for key in self._entries if namespace in ("", key.namespace) and key not in present]:
            self._seen(key, None, began)

    def at(self, revision: int, namespace: str) -> list[Entry]:
        """The objects as they were at a revision, sorted. Raises Expired if that is forgotten."""
        self._refuse_forgotten(revision)
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
    async def watching(self, since: int) -> AsyncIterator[Watcher]:
        """Be told of the changes after a revision, within a block. Raises Expired if some are forgotten."""
        self._refuse_forgotten(since)
        watcher = Watcher(change for change in self._history if change.revision > since)
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    def end_watches(self) -> None:
        """Tell those who watch that this server stops."""
        for watcher in self._watchers:
            watcher.end()

    @property
    def is_watched(self) -> bool:
        return bool(self._watchers)

    def _refuse_forgotten(self, revision: int) -> None:
        if not self._oldest <= revision <= self.revision:
            raise errors.Expired(f"too old resource version: {revision} ({self._oldest})")

    # Writing.

    @asynccontextmanager
    async def writing(self, key: Key) -> AsyncIterator[None]:
        """Nobody else writes this object within the block."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            yield

    async def create(self, obj: Object) -> Entry:
        key, resource = key_of(obj), self.served.resource
        try:
            return await self._stored(key, await called(self._backend.create, self.served.typed(obj)))
        except Overtaken:
            raise errors.AlreadyExists(group=resource.group, plural=resource.plural, name=key.name) from None

    async def update(self, obj: Object) -> Entry:
        key = key_of(obj)
        try:
            return await self._stored(key, await called(self._backend.update, self.served.typed(obj)))
        except Overtaken as why:
            raise self._conflict(key, why) from None

    async def delete(self, key: Key) -> None:
        try:
            await called(self._backend.delete, key)
        except Overtaken as why:
            raise self._conflict(key, why) from None
        self._seen(key, None, self.revision)

    def _conflict(self, key: Key, why: Overtaken) -> errors.Conflict:
        resource = self.served.resource
        return errors.Conflict(str(why) or errors.MODIFIED, group=resource.group, plural=resource.plural, name=key.name)

    async def _stored(self, key: Key, found: Any) -> Entry:
        entry = await self.get(key) if found is None else self._seen(key, self.served.plain(found), self.revision)
        if entry is None:
            resource = self.served.resource
            raise errors.NotFound(group=resource.group, plural=resource.plural, name=key.name)
        return entry

    # Seeing.

    def _seen(self, key: Key, obj: Object | None, began: int) -> Entry | None:
        """What is known of an object, now that it was read by somebody who began at a revision."""
        old = self._entries.get(key)
        if (old.revision if old is not None else self._gone.get(key, 0)) > began:
            return old  # It was written while it was read: what was read may be older.
        if obj is None:
            if old is not None:
                del self._entries[key]
                self._tell(key, old, None)
                self._gone[key] = self.revision
            return None
        obj = self._complete(key, obj)
        digest = hashlib.blake2b(orjson.dumps(obj, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()
        if old is not None and old.digest == digest:
            return old
        metadata = {**obj["metadata"], "resourceVersion": str(self.revision + 1)}
        entry = Entry(key, self.revision + 1, orjson.dumps({**obj, "metadata": metadata}), digest)
        self._entries[key] = entry
        self._tell(key, old, entry)
        return entry

    def _complete(self, key: Key, obj: Object) -> Object:
        """With a uid that stays the same, though the backend may know of none."""
        kind = self.served.kind
        metadata = {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}
        if not metadata.get("uid"):
            metadata["uid"] = str(uuid.uuid5(_UIDS, f"{kind.group}/{kind.name}/{key}"))
        head = {"kind": obj["kind"], "apiVersion": obj["apiVersion"], "metadata": metadata}
        return {**head, **{name: value for name, value in obj.items() if name not in head}}

    def _tell(self, key: Key, old: Entry | None, new: Entry | None) -> None:
        self.revision += 1
        change = Change(self.revision, key, old, new)
        self._history.append(change)
        self._gone.pop(key, None)
        if len(self._history) > REMEMBERED:
            forgotten = self._history.popleft()
            self._oldest = forgotten.revision
            if self._gone.get(forgotten.key) == forgotten.revision:
                del self._gone[forgotten.key]
        for watcher in self._watchers:
            watcher.tell(change)
