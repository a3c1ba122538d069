"""One watch of the store in, many watchers out, each event framed once for all who want it in the same form."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NotRequired, Protocol, TypedDict, Unpack

from pinnace.server.cache.watch_cache import CachedObject, CacheEvent, WatchCache, stamp
from pinnace.server.http.messages import frame
from pinnace.store import store as stores

log = logging.getLogger(__name__)

FRESHNESS_SECONDS = 3.0
"""How long a client waits that asks for a revision which is yet to come."""
_FIRST_SEGMENT = len("/registry/")


class EventRepresentation(Protocol):
    """The form in which a client wants objects: version, metadata only, or rows of a table."""

    @property
    def name(self) -> object:
        """Equal for renditions that make equal bytes, so that watchers can share them."""

    def encode_object(self, entry: CachedObject) -> bytes:
        """One object, encoded."""


def _nothing() -> None:
    """Nobody to tell."""


class WatcherOptions(TypedDict):
    namespace: str
    matches: Callable[[str, CachedObject], bool] | None
    representation: EventRepresentation
    deliver: Callable[[bytes], None]
    later: NotRequired[EventRepresentation | None]
    """The form of all events but the first, where they differ."""
    finish: NotRequired[Callable[[], None]]
    """Ends the client's watch."""


class CacheWatcher:
    """One client's watch: which objects, in which form, and where frames go."""

    __slots__ = ("cancelled", "deliver", "finish", "later", "matches", "namespace", "queued", "representation")

    def __init__(self, **options: Unpack[WatcherOptions]) -> None:
        self.namespace = options["namespace"]
        self.matches = options["matches"]
        self.representation = options["representation"]
        self.deliver = options["deliver"]
        self.later = options.get("later")
        self.finish = options.get("finish", _nothing)
        self.queued: list[bytes] = []
        self.cancelled = False

    def frame_of(self, event: CacheEvent) -> bytes | None:
        """The event as this watcher sees it: one that enters its selection is ADDED, one that leaves DELETED."""
        new, old = event.new, event.old
        if self.matches is not None:
            if new is not None and not self.matches(event.key, new):
                new = None
            if old is not None and not self.matches(event.key, old):
                old = None
        if new is not None:
            return self._framed(event, "MODIFIED" if old is not None else "ADDED", new)
        if old is None:
            return None
        if event.new is not None:  # It is still there, but no longer selected: shown as it was, at the new revision.
            old = old.at(event.revision)
        return self._framed(event, "DELETED", old)

    def _framed(self, event: CacheEvent, kind: str, entry: CachedObject) -> bytes:
        shared = (kind, self.representation.name)
        if event.frames is None:
            event.frames = {}
        framed = event.frames.get(shared)
        if framed is None:
            framed = event.frames[shared] = frame(event_line(kind, self.representation.encode_object(entry)))
        if self.later is not None:
            self.representation, self.later = self.later, None
        return framed

    def line_of(self, kind: str, entry: CachedObject) -> bytes:
        """An event of this watcher alone."""
        line = event_line(kind, self.representation.encode_object(entry))
        if self.later is not None:
            self.representation, self.later = self.later, None
        return line

    def take_headers(self) -> bool:
        """Whether what is sent next is the first, and says what only the first does. Whatever follows will not."""
        if self.later is None:
            return False
        self.representation, self.later = self.later, None
        return True


class ConvertingWatcher(CacheWatcher):
    """A watcher whose objects have to be converted elsewhere first: its events wait, in order, to be fetched."""

    __slots__ = ("_arrived", "_waiting", "is_busy")

    def __init__(self, **options: Unpack[WatcherOptions]) -> None:
        super().__init__(**options)
        self._waiting: list[CacheEvent] = []
        self._arrived = asyncio.Event()
        self.is_busy = True
        """There are events that its client has not seen."""

    def frame_of(self, event: CacheEvent) -> bytes | None:
        self._waiting.append(event)
        self._arrived.set()
        self.is_busy = True
        return None

    def frame_now(self, event: CacheEvent) -> bytes | None:
        """The event as this watcher sees it, once its objects are prepared."""
        return super().frame_of(event)

    async def fetch(self) -> list[CacheEvent]:
        """The events that came since the last time, at least one."""
        if not self._waiting:
            self.is_busy = False
            self._arrived.clear()
            await self._arrived.wait()
        fetched, self._waiting = self._waiting, []
        return fetched


def event_line(kind: str, body: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), body)


class Fanout:
    """Every shelf of the server and every watcher of it. Fed by `follow`, on the event loop, in commit order."""

    def __init__(self, store: stores.Store) -> None:
        self._store = store
        self._caches: dict[str, WatchCache] = {}
        self._watchers: dict[tuple[str, str], set[CacheWatcher]] = {}
        self._listeners: dict[str, list[Callable[[CacheEvent], None]]] = {}
        self._progress: list[Callable[[int], None]] = []
        self.revision = 0
        self._loaded = 0
        self.is_loaded = False

    def on_progress(self, callback: Callable[[int], None]) -> None:
        """Call back with the newest revision after every commit."""
        self._progress.append(callback)

    def forget_progress(self, callback: Callable[[int], None]) -> None:
        self._progress.remove(callback)

    async def has_reached(self, revision: int) -> bool:
        """Whether everything up to a revision is here: a client that has seen a later one waits a little for it."""
        reached = asyncio.get_running_loop().create_future()

        def look(now: int) -> None:
            if now >= revision and not reached.done():
                reached.set_result(None)

        self.on_progress(look)
        try:
            look(self.revision)
            async with asyncio.timeout(FRESHNESS_SECONDS):
                await reached
        except TimeoutError:
            return False
        finally:
            self.forget_progress(look)
        return True

    def on_change(self, prefix: str, callback: Callable[[CacheEvent], None]) -> None:
        """Call back with every change below a resource's prefix, before its writer gets an answer. It must not fail."""
        self._listeners.setdefault(prefix, []).append(callback)

    async def load(self) -> None:
        """Read everything that is stored, then follow the store."""
        self._store.follow(self.follow)
        page = await self._store.list("/registry/")
        self.revision = self._loaded = max(self.revision, page.revision)
        for record in page.records:
            prefix, key = split_key(record.key)
            cache = self.cache(prefix)
            known = cache.entries.get(key)
            if known is None or known.revision < record.revision:
                cache.load(key, CachedObject(stamp(record.value, record.revision), record.revision))
        for cache in self._caches.values():  # Those that were followed before they were loaded know no more either.
            cache.recent_since = max(cache.recent_since, page.revision)
            cache.changed = max(cache.changed, page.revision)
        self.is_loaded = True

    def cache(self, prefix: str) -> WatchCache:
        found = self._caches.get(prefix)
        if found is None:
            found = self._caches[prefix] = WatchCache(prefix, revision=self._loaded)
        return found

    def counts(self) -> dict[str, int]:
        return {prefix: len(cache.entries) for prefix, cache in self._caches.items()}

    def follow(self, changes: list[stores.Change]) -> None:
        touched: list[CacheWatcher] = []
        watchers = self._watchers
        for change in changes:
            prefix, key = split_key(change.key)
            event = self.cache(prefix).apply(change, key)
            self.revision = change.revision
            if prefix in self._listeners:
                for listener in self._listeners[prefix]:
                    try:
                        listener(event)
                    except Exception:  # The other listeners, watchers and changes of this commit must not suffer.
                        log.exception("a listener of %s failed at revision %d", prefix, change.revision)
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
        for watcher in touched:
            chunk = watcher.queued[0] if len(watcher.queued) == 1 else b"".join(watcher.queued)
            watcher.queued = []
            watcher.deliver(chunk)
        for told in self._progress:
            told(self.revision)

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
        """End every watch below a resource's prefix: what it serves is no longer what they asked for."""
        for place, watcher in self.watchers():
            if place == prefix:
                watcher.finish()

    def watchers(self) -> list[tuple[str, CacheWatcher]]:
        return [(prefix, watcher) for (prefix, _), some in self._watchers.items() for watcher in some]


def split_key(key: str) -> tuple[str, str]:
    """/registry/apps/deployments/default/web → its resource's prefix, and the rest."""
    end = key.index("/", key.index("/", _FIRST_SEGMENT) + 1) + 1
    return key[:end], key[end:]


def _queue(interested: set[CacheWatcher], event: CacheEvent, touched: list[CacheWatcher]) -> None:
    for watcher in interested:
        framed = watcher.frame_of(event)
        if framed is not None:
            if not watcher.queued:
                touched.append(watcher)
            watcher.queued.append(framed)
