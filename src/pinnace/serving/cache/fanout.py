"""Fan-out: one watch of the store in, many watchers out. Each event is framed once per representation."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from operator import attrgetter
from typing import NotRequired, TypedDict, Unpack

from pinnace.model import errors
from pinnace.model.objects import ObjectEvent
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.process.tasks import Tasks
from pinnace.serving.cache.representations import Representation
from pinnace.serving.cache.watch_cache import LARGE_EVENT, CachedObject, CacheEvent, WatchCache
from pinnace.serving.messages import frame
from pinnace.store import store as stores
from pinnace.store.store import end_of

log = logging.getLogger(__name__)

FRESHNESS_SECONDS = 3.0
"""How long a client waits for a revision that this server has not reached."""
LARGE_FRAME_SECONDS = 10.0
"""How long the frames of a large event are kept for others. The watchers have them by then, and share the bytes."""
_FIRST_SEGMENT = len("/registry/")


def _ignore() -> None:
    """The default for `finish`: do nothing."""


class WatcherOptions(TypedDict):
    namespace: str
    matches: Callable[[str, CachedObject], bool] | None
    representation: Representation
    deliver: Callable[[bytes], None]
    later: NotRequired[Representation | None]
    """The representation of all events but the first, where it differs."""
    finish: NotRequired[Callable[[], None]]
    """Ends the client's watch."""


class CacheWatcher:
    """One client's watch: which objects it selects, in which representation, and the callback that takes frames."""

    __slots__ = (
        "cancelled",
        "deliver",
        "finish",
        "is_plain",
        "later",
        "matches",
        "namespace",
        "queued",
        "representation",
    )

    def __init__(self, **options: Unpack[WatcherOptions]) -> None:
        self.namespace = options["namespace"]
        self.matches = options["matches"]
        self.representation = options["representation"]
        self.deliver = options["deliver"]
        self.later = options.get("later")
        self.finish = options.get("finish", _ignore)
        self.is_plain = self.matches is None and self.later is None
        """Whether every event is for it, in a frame that depends on the representation alone."""
        self.queued: list[bytes] = []
        self.cancelled = False

    def frame_of(self, event: CacheEvent) -> bytes | None:
        """Return the framed event; None if the watcher does not select it.

        An object that enters the selection is ADDED, one that leaves it is DELETED.
        """
        new, old = event.new, event.old
        if self.matches is not None:
            if new is not None and not self.matches(event.key, new):
                new = None
            if old is not None and not self.matches(event.key, old):
                old = None
        if new is not None:
            return self._frame(event, "MODIFIED" if old is not None else "ADDED", new)
        if old is None:
            return None
        if event.new is not None:  # Still there, but no longer selected: send the old object at the new revision.
            old = old.at(event.revision)
        return self._frame(event, "DELETED", old)

    def _frame(self, event: CacheEvent, kind: str, entry: CachedObject) -> bytes | None:
        shared = (kind, self.representation.name)
        if event.frames is None:
            event.frames = {}
        framed = event.frames.get(shared)
        if framed is None:
            form = self.representation
            framed = event.frames[shared] = frame(form.encode_event(kind, form.encode_object(entry)))
            if len(framed) >= LARGE_EVENT:
                asyncio.get_running_loop().call_later(LARGE_FRAME_SECONDS, event.drop_frames)
        if self.later is not None:
            self.take_headers()
        return framed

    def line_of(self, kind: str, entry: CachedObject) -> bytes:
        """Return an event that is sent to this watcher only, without the frame."""
        line = self.representation.encode_event(kind, self.representation.encode_object(entry))
        self.take_headers()
        return line

    def take_headers(self) -> bool:
        """Return True once, for the first event: only it carries what later events leave out, such as table columns."""
        if self.later is None:
            return False
        self.representation, self.later = self.later, None
        return True


class EncodingWatcher(CacheWatcher):
    """A watcher whose large objects are encoded beside the loop. The events after such an object wait for it."""

    __slots__ = ("_tasks", "_waiting")

    def __init__(self, tasks: Tasks, **options: Unpack[WatcherOptions]) -> None:
        super().__init__(**options)
        self._tasks = tasks
        self._waiting: deque[CacheEvent] = deque()
        self.is_plain = False

    @property
    def first_waiting(self) -> int | None:
        """The revision of the first event that has not been sent; None if none waits."""
        return self._waiting[0].revision if self._waiting else None

    def frame_of(self, event: CacheEvent) -> bytes | None:
        if self._waiting:
            self._waiting.append(event)
            return None
        preparation = self._prepare(event)
        if preparation is None:
            return super().frame_of(event)
        self._waiting.append(event)
        self._tasks.start(self._send_waiting(preparation))
        return None

    async def prepare_initial(self, entry: CachedObject) -> None:
        """Encode an object beside the loop if it is large, before `line_of`."""
        preparation = self.representation.prepare((entry,))
        if preparation is not None:
            await preparation

    def _prepare(self, event: CacheEvent) -> NowOrLater[None]:
        return self.representation.prepare([entry for entry in (event.new, event.old) if entry is not None])

    async def _send_waiting(self, preparation: NowOrLater[None]) -> None:
        while not self.cancelled:
            event = self._waiting[0]
            try:
                if preparation is not None:
                    await preparation
                framed = super().frame_of(event)
            except Exception:
                _end_failed(self, event.revision)
                return
            if framed is not None:
                self.deliver(framed)
            self._waiting.popleft()
            if not self._waiting:
                return
            preparation = self._prepare(self._waiting[0])


class ObjectWatcher(CacheWatcher):
    """A watcher in this process that takes cached objects: nothing is framed for it."""

    __slots__ = ("_take",)

    def __init__(self, take: Callable[[ObjectEvent], None], **options: Unpack[WatcherOptions]) -> None:
        super().__init__(**options)
        self._take = take

    def _frame(self, event: CacheEvent, kind: str, entry: CachedObject) -> bytes | None:
        """Hand the event over at once; there is no frame to deliver."""
        self._take(ObjectEvent(kind, event.key, entry.revision, entry.body))
        return None


class ConvertingWatcher(CacheWatcher):
    """A watcher whose objects a webhook converts first: its events wait, in order, until `fetch`."""

    __slots__ = ("_arrived", "_waiting", "is_busy")

    def __init__(self, **options: Unpack[WatcherOptions]) -> None:
        super().__init__(**options)
        self._waiting: list[CacheEvent] = []
        self._arrived = asyncio.Event()
        self.is_plain = False
        self.is_busy = True
        """Some events have not been sent to the client."""

    def frame_of(self, event: CacheEvent) -> bytes | None:
        self._waiting.append(event)
        self._arrived.set()
        self.is_busy = True
        return None

    def frame_now(self, event: CacheEvent) -> bytes | None:
        """Return the framed event, as `CacheWatcher.frame_of` does. Its objects must be prepared."""
        return super().frame_of(event)

    async def fetch(self) -> list[CacheEvent]:
        """Wait for events and return those since the last call, at least one."""
        if not self._waiting:
            self.is_busy = False
            self._arrived.clear()
            await self._arrived.wait()
        fetched, self._waiting = self._waiting, []
        return fetched


class Fanout:
    """All watch caches and watchers of the server. The store calls `follow` on the event loop, in commit order."""

    def __init__(self, store: stores.Store) -> None:
        self._store = store
        self._caches: dict[str, WatchCache] = {}
        self._watchers: dict[tuple[str, str], set[CacheWatcher]] = {}
        self._listeners: dict[str, list[Callable[[CacheEvent], None]]] = {}
        self._progress: list[Callable[[int], None]] = []
        self.revision = 0
        self._loaded = 0
        self.is_loaded = False
        self.terminated: Counter[str] = Counter()
        """Watches that were ended because their client read too slowly, by prefix."""
        self.shard_watches: Counter[str] = Counter()
        """The open watches with a shard selector, by prefix."""
        self.outside_shards: Counter[str] = Counter()
        """The objects that such watches did not select, by prefix."""

    def on_progress(self, callback: Callable[[int], None]) -> None:
        """Call back with the newest revision after every commit."""
        self._progress.append(callback)

    def forget_progress(self, callback: Callable[[int], None]) -> None:
        self._progress.remove(callback)

    async def has_reached(self, revision: int) -> bool:
        """Wait a little until all changes up to a revision have arrived; return False if they have not."""
        if self._store.is_shared:  # The revision may be one of other keys: then only the store can say so.
            with suppress(stores.StoreError):
                await self._store.sync()
        reached = asyncio.get_running_loop().create_future()

        def check(now: int) -> None:
            if now >= revision and not reached.done():
                reached.set_result(None)

        self.on_progress(check)
        try:
            check(self.revision)
            async with asyncio.timeout(FRESHNESS_SECONDS):
                await reached
        except TimeoutError:
            return False
        finally:
            self.forget_progress(check)
        return True

    def on_change(self, prefix: str, callback: Callable[[CacheEvent], None]) -> None:
        """Call back with every change below a resource's prefix, before the write is answered. It must not raise."""
        self._listeners.setdefault(prefix, []).append(callback)

    async def load(self) -> None:
        """Read all stored objects and follow the store."""
        self._store.follow(self.follow, on_gap=self._bridge_gap, on_readability=self._note_readability)
        page = await self._store.list("/registry/")
        self.revision = self._loaded = max(self.revision, page.revision)
        at, stored = 0, page.records
        while at < len(stored):
            prefix, _ = split_key(stored[at].key)
            end = bisect_left(stored, end_of(prefix) or "", at, key=attrgetter("key"))
            records, cut = stored[at:end], len(prefix)
            self.cache(prefix).load([record.key[cut:] for record in records], records)
            at = end
        for cache in self._caches.values():  # Also those that changed before they were loaded.
            cache.recent_since = max(cache.recent_since, page.revision)
            cache.changed = max(cache.changed, page.revision)
        self.is_loaded = True

    def fork(self, store: stores.Store) -> Fanout:
        """Return the caches over a fork of the store, which is at the same revision. It has no watchers yet."""
        twin = Fanout(store)
        twin.revision = twin._loaded = self.revision
        twin._caches = {prefix: cache.fork(self.revision) for prefix, cache in self._caches.items()}
        twin.is_loaded = True
        store.follow(twin.follow)
        return twin

    @property
    def unreadable(self) -> Mapping[str, str]:
        """The keys of objects that cannot be decrypted, which no cache has, and why."""
        return self._store.unreadable

    def refuse_unreadable(self, key: str) -> None:
        """Raise InternalError if the object with this key cannot be decrypted."""
        if (reason := self.unreadable.get(key)) is not None:
            path = key.removeprefix("/registry/").partition("/")[2]
            raise errors.InternalError(errors.corrupt_object(f"/{path}", reason))

    def refuse_unreadable_below(self, prefix: str, resource: str, verb: str) -> None:
        """Raise StorageReadError if an object below a prefix cannot be decrypted: a list would not be whole."""
        if failed := {key: reason for key, reason in self.unreadable.items() if key.startswith(prefix)}:
            raise errors.StorageReadError(resource, verb, failed)

    def _note_readability(self, key: str, record: stores.Record | None) -> None:
        """Drop an object that cannot be decrypted, and end the watches that would miss it; or take it back."""
        prefix, rest = split_key(key)
        cache = self.cache(prefix)
        if record is None:
            cache.drop(rest)
            self.end_watches(prefix)
            return
        cache.load([rest], [record])
        if prefix in self._listeners:
            self._call_listeners(prefix, CacheEvent(rest, record.revision, cache.entries[rest], None))

    def cache(self, prefix: str) -> WatchCache:
        known = self._caches.get(prefix)
        if known is None:
            known = self._caches[prefix] = WatchCache(prefix, revision=self._loaded)
        return known

    def counts(self) -> dict[str, int]:
        return {prefix: len(cache.entries) for prefix, cache in self._caches.items()}

    def change_counts(self) -> dict[str, int]:
        """Return how many changes of each resource the store has reported, by prefix."""
        return {prefix: cache.changes for prefix, cache in self._caches.items() if cache.changes}

    def size(self, prefix: str) -> tuple[int, int]:
        """Return the number of objects of a resource, and their bytes."""
        cache = self._caches.get(prefix)
        return (len(cache.entries), cache.bytes) if cache is not None else (0, 0)

    def watch_count(self, prefix: str, namespace: str) -> int:
        """Return how many watches a change in a namespace may concern; "" for a resource without namespaces."""
        count = len(self._watchers.get((prefix, ""), ()))
        return count + len(self._watchers.get((prefix, namespace), ())) if namespace else count

    def follow(self, changes: list[stores.Change]) -> None:
        touched: list[CacheWatcher] = []
        watchers = self._watchers
        for change in changes:
            prefix, key = split_key(change.key)
            event = self.cache(prefix).apply(change, key)
            self.revision = change.revision
            if prefix in self._listeners:
                self._call_listeners(prefix, event)
            if not watchers:
                continue
            interested = watchers.get((prefix, ""))
            if interested:
                _queue(interested, event, touched)
            namespace, slash, _ = key.partition("/")
            if slash:
                interested = watchers.get((prefix, namespace))
                if interested:
                    _queue(interested, event, touched)
        if not changes:  # A shared store has come further without changes of ours.
            self.revision = max(self.revision, self._store.revision)
        _deliver(touched)
        for callback in self._progress:
            callback(self.revision)

    def _call_listeners(self, prefix: str, event: CacheEvent) -> None:
        for listener in self._listeners[prefix]:
            try:
                listener(event)
            except Exception:  # The other listeners, watchers and changes of this commit must not suffer.
                log.exception("a listener of %s failed at revision %d", prefix, event.revision)

    def _bridge_gap(self, revision: int) -> None:
        """End all watches with 410, because the changes up to a revision are not known one by one."""
        error = errors.Expired(f"too old resource version: history begins again at {revision}")
        for _, watcher in self.watchers():
            form = watcher.representation
            watcher.deliver(frame(form.encode_event("ERROR", form.encode_status(error.status))))
            watcher.finish()
        for cache in self._caches.values():
            cache.forget_recent(revision)
        self._loaded = self.revision = max(self.revision, revision)

    def join(self, prefix: str, watcher: CacheWatcher) -> None:
        self._watchers.setdefault((prefix, watcher.namespace), set()).add(watcher)

    def leave(self, prefix: str, watcher: CacheWatcher) -> None:
        watcher.cancelled = True
        place = (prefix, watcher.namespace)
        others = self._watchers.get(place)
        if others is not None:
            others.discard(watcher)
            if not others:
                del self._watchers[place]

    def end_watches(self, prefix: str) -> None:
        """End every watch below a resource's prefix, because the resource is no longer served as it was."""
        for place, watcher in self.watchers():
            if place == prefix:
                watcher.finish()

    def watchers(self) -> list[tuple[str, CacheWatcher]]:
        return [(prefix, watcher) for (prefix, _), some in self._watchers.items() for watcher in some]


def split_key(key: str) -> tuple[str, str]:
    """Split /registry/apps/deployments/default/web into the prefix of its resource and the rest."""
    end = key.index("/", key.index("/", _FIRST_SEGMENT) + 1) + 1
    return key[:end], key[end:]


def _deliver(touched: list[CacheWatcher]) -> None:
    """Deliver the queued frames. Watchers of the same events share the bytes."""
    joined: dict[tuple[int, ...], tuple[list[bytes], bytes]] = {}
    for watcher in touched:
        queued, watcher.queued = watcher.queued, []
        if len(queued) == 1:
            watcher.deliver(queued[0])
            continue
        same = tuple(map(id, queued))
        known = joined.get(same)
        if known is None:  # The frames are kept until the end, so that no other bytes can have their ids.
            known = joined[same] = (queued, b"".join(queued))
        watcher.deliver(known[1])


def _queue(interested: set[CacheWatcher], event: CacheEvent, touched: list[CacheWatcher]) -> None:
    plain: dict[object, bytes | None] = {}  # By representation: most watchers of a resource need no call of their own.
    for watcher in tuple(interested):  # A watcher within the process may leave while it takes the event.
        try:
            if watcher.is_plain:
                name = watcher.representation.name
                framed = plain.get(name)
                if framed is None:
                    framed = plain[name] = watcher.frame_of(event)
            else:
                framed = watcher.frame_of(event)
        except Exception:  # The other watchers, and the caches, must not miss changes.
            _end_failed(watcher, event.revision)
            continue
        if framed is not None:
            if not watcher.queued:
                touched.append(watcher)
            watcher.queued.append(framed)


def _end_failed(watcher: CacheWatcher, revision: int) -> None:
    """End a watch that has missed an event: its client continues from the last one that it has."""
    log.exception("a watch failed at revision %d and ends", revision)
    watcher.finish()
