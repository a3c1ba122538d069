"""One watch, from its first event to its end: what is there, what has changed since, and what changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import orjson

from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.server.cache.fanout import CacheWatcher, ConvertingWatcher, Fanout, event_line
from pinnace.server.cache.representations import Representation, TableRepresentation
from pinnace.server.cache.watch_cache import CachedObject, CacheEvent, WatchCache, restamp, stamp
from pinnace.server.http.messages import ResponseStream, frame
from pinnace.server.read.options import WatchOptions, too_large_revision
from pinnace.server.read.selection import ObjectSelection, keys_named
from pinnace.store import store as stores

MAX_BUFFERED = 8 << 20
"""A watcher that lets more than this pile up is cut off; it can come back and resume."""
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Watch:
    """One watch from its first event to its end."""

    def __init__(
        self,
        fanout: Fanout,
        store: stores.Store,
        cache: WatchCache,
        chosen: ObjectSelection,
        representation: Representation,
        options: WatchOptions,
        seconds: float,
        bookmark_seconds: float,
    ) -> None:
        self._fanout = fanout
        self._store = store
        self._cache = cache
        self._chosen = chosen
        self._representation = representation
        self._options = options
        self._seconds = seconds
        self._bookmark_seconds = bookmark_seconds
        self._allowed = MAX_BUFFERED
        self._timers: list[asyncio.TimerHandle] = []
        self._seen = 0
        self._began = 0
        """The revision that its client knew before the first change that it is told."""
        self._watcher = (
            ConvertingWatcher if representation.needs_preparation or chosen.prepare is not None else CacheWatcher
        )(
            namespace=chosen.namespace,
            matches=chosen.matches,
            representation=representation,
            later=representation.without_headers() if isinstance(representation, TableRepresentation) else None,
            deliver=self._deliver,
            finish=lambda: self._stream.finish(),
        )

    def start(self, stream: ResponseStream) -> Awaitable[None] | None:
        self._stream = stream
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + self._seconds
        stream.on_close(self._end)
        if self._options.least > self._fanout.revision:
            return self._begin_when_fresh()
        return self._begin()

    async def _begin_when_fresh(self) -> None:
        """A client that asks for a state which is yet to come waits a little for it."""
        least = self._options.least
        if not await self._fanout.has_reached(least):
            self._fail(too_large_revision(least, self._fanout.revision))
            return
        waiting = self._begin()
        await (self._ended() if waiting is None else waiting)

    def _begin(self) -> Awaitable[None] | None:
        # Its time runs from the start, but does not end a wait: whoever waits in vain is told so.
        self._timers.append(asyncio.get_running_loop().call_at(self._deadline, self._stream.finish))
        since = self._options.since
        if isinstance(self._watcher, ConvertingWatcher):
            return self._follow_late(self._watcher, since)
        if since is None:
            self._send_initial(self._initial())
        elif since < self._cache.recent_since or since > self._fanout.revision:
            return self._catch_up(since)
        else:
            self._send_events(self._recent(since))
        self._join()
        return None

    def _join(self) -> None:
        """From here on the client gets every change as it is made, and bookmarks, which say that it has."""
        if self._stream.closed:
            return
        self._allowed = MAX_BUFFERED + self._stream.buffered  # What it asked for at the start is not held against it.
        self._fanout.join(self._cache.prefix, self._watcher)
        if self._options.bookmarks:
            since = self._options.since
            self._began = self._fanout.revision if since is None else since
            self._schedule_bookmark()

    def _initial(self) -> list[CachedObject]:
        if not self._options.initial_events:
            return []
        entries, matches = self._cache.entries, self._chosen.matches
        keys = (
            keys_named(self._cache, self._chosen) if self._chosen.name else self._cache.keys_of(self._chosen.namespace)
        )
        return [entries[key] for key in keys if matches is None or matches(key, entries[key])]

    def _send_initial(self, entries: list[CachedObject]) -> None:
        lines = [self._watcher.line_of("ADDED", entry) for entry in entries]
        if self._options.marks_end_of_initial:
            annotations = {INITIAL_EVENTS_END: "true"}
            lines.append(self._bookmark_line({"annotations": annotations}))
        if lines:
            self._stream.write(frame(b"".join(lines)))

    def _recent(self, since: int) -> list[CacheEvent]:
        """What has changed behind a revision, from memory."""
        events = list(self._cache.since(since))
        if isinstance(
            self._representation, TableRepresentation
        ):  # TableRepresentation tell ages: those that were made of an event once are old by now.
            return [CacheEvent(event.key, event.revision, event.new, event.old) for event in events]
        return events

    def _send_events(self, events: list[CacheEvent]) -> None:
        namespace = self._chosen.namespace
        frames = []
        for event in events:
            if namespace and event.key.partition("/")[0] != namespace:
                continue
            framed = self._watcher.frame_of(event)
            if framed is not None:
                frames.append(framed)
        if frames:
            self._stream.write(b"".join(frames))

    async def _catch_up(self, since: int) -> None:
        """Read from the store's history until memory goes on from there, then join the live watchers."""
        try:
            async for changes in self._store.watch(self._cache.prefix, since=since):
                cut = len(self._cache.prefix)
                self._send_events([_past_event(change, change.key[cut:]) for change in changes])
                since = changes[-1].revision
                if since >= self._cache.recent_since:
                    break
                await self._stream.drain()
        except stores.Compacted as error:
            self._fail(errors.Expired(f"too old resource version: {since} ({error.compacted})"))
            return
        self._send_events(self._recent(since))
        self._join()
        await self._ended()

    async def _ended(self) -> None:
        """The stream of a coroutine lasts as long as that: until its client or its time has gone."""
        ended = asyncio.Event()
        self._stream.on_close(ended.set)
        await ended.wait()

    async def _follow_late(self, watcher: ConvertingWatcher, since: int | None) -> None:
        """As `start`, but each object is converted before it is sent. Joins first: what happens meanwhile waits."""
        self._join()
        self._seen = self._fanout.revision
        try:
            if since is None:
                await self._chosen.prepare_all(self._cache)
                initial = self._initial()
                await self._prepared(initial)
                self._send_initial(initial)
            elif since < self._cache.recent_since or since > self._fanout.revision:
                async for changes in self._store.watch(self._cache.prefix, since=since):
                    cut = len(self._cache.prefix)
                    await self._send_late(watcher, [_past_event(change, change.key[cut:]) for change in changes])
                    if changes[-1].revision >= self._seen:
                        break
            else:
                await self._send_late(watcher, self._recent(since))
            while not self._stream.closed:
                events = await watcher.fetch()
                await self._send_late(watcher, [event for event in events if event.revision > self._seen])
        except stores.Compacted as error:
            self._fail(errors.Expired(f"too old resource version: {since} ({error.compacted})"))
        except errors.ApiError as refusal:
            self._fail(refusal)

    async def _send_late(self, watcher: ConvertingWatcher, events: list[CacheEvent]) -> None:
        namespace = self._chosen.namespace
        wanted = [one for one in events if not namespace or one.key.partition("/")[0] == namespace]
        await self._prepared([entry for event in wanted for entry in (event.new, event.old) if entry is not None])
        frames = [framed for event in wanted if (framed := watcher.frame_now(event)) is not None]
        if events:
            self._seen = max(self._seen, events[-1].revision)
        if frames:
            self._deliver(b"".join(frames))

    async def _prepared(self, entries: list[CachedObject]) -> None:
        for prepare in (self._representation.prepare, self._chosen.prepare):
            if prepare is not None and (waiting := prepare(entries)) is not None:
                await waiting

    def _fail(self, refusal: errors.ApiError) -> None:
        self._stream.write(frame(event_line("ERROR", orjson.dumps(refusal.status))))
        self._stream.finish()

    def _deliver(self, chunk: bytes) -> None:
        self._stream.write(chunk)
        if self._stream.buffered > self._allowed:
            self._stream.finish()
            self._end()

    def _schedule_bookmark(self) -> None:
        loop = asyncio.get_running_loop()
        left = self._deadline - loop.time()
        # The last one comes two seconds before the end, once: a watch that has less left gets no more of them.
        delay = min(self._bookmark_seconds, left - 2) if left > 2 else self._bookmark_seconds
        if delay < left:
            self._timers = [timer for timer in self._timers if not timer.cancelled()][:1]
            self._timers.append(loop.call_later(delay, self._send_bookmark))

    def _send_bookmark(self) -> None:
        if self._revision > self._began:  # A watch that has got nowhere has nothing to tell.
            self._stream.write(frame(self._bookmark_line({})))
        self._schedule_bookmark()

    @property
    def _revision(self) -> int:
        """How far its client is."""
        is_behind = isinstance(self._watcher, ConvertingWatcher) and self._watcher.is_busy
        return self._seen if is_behind else self._fanout.revision

    def _bookmark_line(self, more: Object) -> bytes:
        metadata = {"resourceVersion": str(self._revision), **more}
        representation = self._representation
        if isinstance(representation, TableRepresentation) and not self._watcher.take_headers():
            representation = representation.without_headers()
        return event_line("BOOKMARK", representation.encode_bookmark(metadata))

    def _end(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._fanout.leave(self._cache.prefix, self._watcher)


def _past_event(change: stores.Change, key: str) -> CacheEvent:
    previous, old = change.previous, None
    if previous is not None:
        old = CachedObject(stamp(previous.value, previous.revision), previous.revision)
    if change.value is None:
        if old is not None:
            old = CachedObject(restamp(old.body, change.revision), change.revision)
        return CacheEvent(key, change.revision, None, old)
    return CacheEvent(key, change.revision, CachedObject(stamp(change.value, change.revision), change.revision), old)
