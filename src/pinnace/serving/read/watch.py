"""One watch, from its first event to its end: current objects, past changes, then live changes and bookmarks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

from pinnace.model import errors
from pinnace.model.objects import Object, ObjectEvent
from pinnace.model.shards import ShardSelector
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.process.tasks import Tasks
from pinnace.process.work_slices import DECODING, SliceQueue, in_turns
from pinnace.serving.cache.fanout import (
    CacheWatcher,
    ConvertingWatcher,
    EncodingWatcher,
    Fanout,
    ObjectWatcher,
    WatcherOptions,
)
from pinnace.serving.cache.protobuf_representation import ProtobufRepresentation
from pinnace.serving.cache.representations import ObjectRepresentation, Representation, TableRepresentation
from pinnace.serving.cache.watch_cache import CachedObject, CacheEvent, WatchCache, restamp, stamp
from pinnace.serving.messages import ResponseStream, frame
from pinnace.serving.read.options import WatchOptions, too_large_revision
from pinnace.serving.read.selection import ListSelection, keys_named
from pinnace.serving.read.shard_selectors import Matches, in_shards
from pinnace.store import store as stores

log = logging.getLogger(__name__)

MAX_BUFFERED = 8 << 20
"""A watch whose client has more than this unread is ended; the client can resume."""
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


MOST_AT_ONCE = 256
"""More initial objects are sent in slices, no faster than the client reads."""
MOST_BYTES_AT_ONCE = 1024 * 1024
"""The same in bytes: a client that reads nothing keeps all that was sent at once, in a copy of its own."""
CHUNK = 256 * 1024
"""The size of these slices."""


@runtime_checkable
class ObjectStream(Protocol):
    """A stream whose reader, in this process, also takes events that are not framed."""

    def write_object(self, event: ObjectEvent) -> None: ...


class WatchLimits(NamedTuple):
    """How many seconds a watch lasts, how many pass between its bookmarks, and how large watches share the loop."""

    total: float
    between_bookmarks: float
    slices: SliceQueue


class Watch:
    """One watch from its first event to its end."""

    def __init__(
        self,
        fanout: Fanout,
        store: stores.Store,
        cache: WatchCache,
        chosen: ListSelection,
        representation: Representation,
        options: WatchOptions,
        limits: WatchLimits,
    ) -> None:
        self._fanout = fanout
        self._store = store
        self._cache = cache
        self._chosen = chosen
        self._representation = representation
        self._options = options
        self._limits = limits
        self._tasks = Tasks()
        self._allowed = MAX_BUFFERED
        self._timers: list[asyncio.TimerHandle] = []
        self._seen = 0
        self._began = 0
        """The revision before the first change that is sent."""

    def _make_watcher(self, stream: ResponseStream) -> CacheWatcher:
        representation, chosen = self._representation, self._chosen
        options = WatcherOptions(
            namespace=chosen.namespace,
            matches=chosen.matches if chosen.shards is None else self._count_outside(chosen.shards),
            representation=representation,
            later=representation.without_headers() if isinstance(representation, TableRepresentation) else None,
            deliver=self._deliver,
            finish=stream.finish,
        )
        if isinstance(representation, ProtobufRepresentation) and chosen.prepare is None:
            return EncodingWatcher(self._tasks, **options)
        if representation.needs_preparation or chosen.prepare is not None:
            return ConvertingWatcher(**options)
        is_stored = isinstance(representation, ObjectRepresentation) and representation.is_stored
        if is_stored and isinstance(stream, ObjectStream):
            return ObjectWatcher(partial(self._deliver_object, stream.write_object), **options)
        return CacheWatcher(**options)

    def _count_outside(self, shards: ShardSelector) -> Matches:
        """Return the test of the watch's objects, which counts those that are outside of its shards."""
        prefix, counts = self._cache.prefix, self._fanout.outside_shards
        matches, is_inside = self._chosen.matches, in_shards(shards, None)

        def count(key: str, entry: CachedObject) -> bool:
            if not is_inside(key, entry):
                counts[prefix] += 1
                return False
            return matches is None or matches(key, entry)

        return count

    def start(self, stream: ResponseStream) -> NowOrLater[None]:
        self._stream = stream
        self._watcher = self._make_watcher(stream)
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + self._limits.total
        stream.on_close(self._end)
        if self._options.least > self._fanout.revision:
            return self._begin_when_fresh()
        return self._begin()

    async def _begin_when_fresh(self) -> None:
        """Wait a little for a revision that this server has not reached, then begin."""
        least = self._options.least
        if not await self._fanout.has_reached(least):
            self._fail(too_large_revision(least, self._fanout.revision))
            return
        waiting = self._begin()
        await (self._wait_for_end() if waiting is None else waiting)

    def _begin(self) -> NowOrLater[None]:
        # The timeout counts from the start, but does not end `_begin_when_fresh`: that must send its error.
        self._timers.append(asyncio.get_running_loop().call_at(self._deadline, self._stream.finish))
        since = self._options.since
        if isinstance(self._watcher, ConvertingWatcher):
            return self._follow_late(self._watcher, since)
        if since is None:
            keys = self._initial_keys()
            entries = self._cache.entries
            most_bytes = min(MOST_BYTES_AT_ONCE, self._representation.most_bytes)
            if len(keys) > MOST_AT_ONCE or sum(len(entries[key].body) for key in keys) > most_bytes:
                return self._begin_in_slices(keys)
            self._send_initial(self._select(keys))
        elif since < self._cache.recent_since or since > self._fanout.revision:
            return self._catch_up(since)
        else:
            self._send_events(self._recent(since))
        self._join()
        return None

    def _join(self) -> None:
        """Join the live watchers, and send bookmarks if requested."""
        if self._stream.closed:
            return
        self._allowed = MAX_BUFFERED + self._stream.buffered  # The initial objects do not count.
        self._fanout.join(self._cache.prefix, self._watcher)
        if self._chosen.shards is not None:
            self._fanout.shard_watches[self._cache.prefix] += 1
            self._stream.on_close(lambda: self._fanout.shard_watches.subtract((self._cache.prefix,)))
        if self._options.bookmarks:
            since = self._options.since
            self._began = self._fanout.revision if since is None else since
            self._schedule_bookmark()

    def _initial_keys(self) -> list[str]:
        """Return the keys of the objects from which the initial ones are selected."""
        if not self._options.initial_events:
            return []
        if self._chosen.name:
            return keys_named(self._cache, self._chosen)
        return self._cache.keys_of(self._chosen.namespace)

    def _select(self, keys: list[str]) -> list[CachedObject]:
        entries, matches = self._cache.entries, self._watcher.matches
        return [entries[key] for key in keys if matches is None or matches(key, entries[key])]

    def _send_initial(self, entries: list[CachedObject]) -> None:
        lines = [self._watcher.line_of("ADDED", entry) for entry in entries]
        lines += self._end_of_initial(self._revision)
        if lines:
            self._stream.write(frame(b"".join(lines)))

    def _end_of_initial(self, revision: int) -> list[bytes]:
        if not self._options.marks_end_of_initial:
            return []
        return [self._bookmark_line(revision, {"annotations": {INITIAL_EVENTS_END: "true"}})]

    async def _begin_in_slices(self, keys: list[str]) -> None:
        """Send the state at the time of the call, then the changes since, then join the live watchers."""
        revision, entries = self._fanout.revision, self._cache.entries
        await self._send_in_slices(zip(keys, [entries[key] for key in keys], strict=True), revision)
        if self._stream.closed:
            return
        if revision < self._cache.recent_since:
            await self._catch_up(revision)
            return
        self._send_events(self._recent(revision))
        self._join()
        await self._wait_for_end()

    async def _send_in_slices(self, candidates: Iterable[tuple[str, CachedObject]], revision: int) -> None:
        """Send initial objects. A client that reads slowly needs memory for one slice only."""
        slices, watcher = self._limits.slices.begin(), self._watcher
        matches = watcher.matches
        lines: list[bytes] = []
        size = 0
        for key, entry in candidates:
            await slices.pause()
            if matches is None or matches(key, entry):
                if isinstance(watcher, EncodingWatcher):
                    await watcher.prepare_initial(entry)
                line = watcher.line_of("ADDED", entry)
                lines.append(line)
                size += len(line)
            if size > CHUNK:
                self._stream.write(frame(b"".join(lines)))
                lines, size = [], 0
                await self._stream.drain()
                if self._stream.closed:
                    return
        lines += self._end_of_initial(revision)
        if lines:
            self._stream.write(frame(b"".join(lines)))
            await self._stream.drain()

    def _recent(self, since: int) -> list[CacheEvent]:
        """Return the changes after a revision from the watch cache."""
        events = list(self._cache.since(since))
        if isinstance(self._representation, TableRepresentation):
            # Rows have ages: frames that were made earlier are stale.
            return [CacheEvent(event.key, event.revision, event.new, event.old) for event in events]
        return events

    def _send_events(self, events: list[CacheEvent]) -> None:
        namespace = self._chosen.namespace
        for event in events:
            if namespace and event.key.partition("/")[0] != namespace:
                continue
            framed = self._watcher.frame_of(event)
            if framed is not None:
                self._stream.write(framed)  # Not joined: the watches that resume share the frames.

    async def _catch_up(self, since: int) -> None:
        """Read the store's history until the watch cache continues from there, then join the live watchers."""
        try:
            async for changes in self._store.watch(self._cache.prefix, since=since):
                cut = len(self._cache.prefix)
                async for some in in_turns(changes, cost=DECODING):
                    self._send_events([_past_event(change, change.key[cut:]) for change in some])
                since = changes[-1].revision
                if since >= self._cache.recent_since:
                    break
                await self._stream.drain()
        except (stores.Compacted, stores.Damaged) as error:
            self._fail_without_history(since or 0, error)
            return
        self._send_events(self._recent(since))
        self._join()
        await self._wait_for_end()

    async def _wait_for_end(self) -> None:
        """Wait until the stream closes: the body lasts only as long as the coroutine."""
        ended = asyncio.Event()
        self._stream.on_close(ended.set)
        await ended.wait()

    async def _follow_late(self, watcher: ConvertingWatcher, since: int | None) -> None:
        """Run a watch whose objects are converted before they are sent. Joins first, so that no change is missed."""
        self._join()
        self._seen = self._fanout.revision
        try:
            if since is None:
                await self._chosen.prepare_all(self._cache)
                keys = self._initial_keys()
                initial = self._select(keys)
                await self._prepare(initial)
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
        except (stores.Compacted, stores.Damaged) as error:
            self._fail_without_history(since or 0, error)
        except errors.ApiError as error:
            self._fail(error)

    async def _send_late(self, watcher: ConvertingWatcher, events: list[CacheEvent]) -> None:
        namespace = self._chosen.namespace
        wanted = [candidate for candidate in events if not namespace or candidate.key.partition("/")[0] == namespace]
        await self._prepare([entry for event in wanted for entry in (event.new, event.old) if entry is not None])
        frames = [framed for event in wanted if (framed := watcher.frame_now(event)) is not None]
        if events:
            self._seen = max(self._seen, events[-1].revision)
        if frames:
            self._deliver(b"".join(frames))

    async def _prepare(self, entries: list[CachedObject]) -> None:
        for prepare in (self._representation.prepare, self._chosen.prepare):
            if prepare is not None and (waiting := prepare(entries)) is not None:
                await waiting

    def _fail_without_history(self, since: int, error: stores.Compacted | stores.Damaged) -> None:
        """End a watch whose history is forgotten or damaged: a client that lists again needs none."""
        reached = f" ({error.compacted})" if isinstance(error, stores.Compacted) else ""
        if not reached:
            log.error("a watch after revision %d ends, its history cannot be read: %s", since, error)
        self._fail(errors.Expired(f"too old resource version: {since}{reached}"))

    def _fail(self, error: errors.ApiError) -> None:
        form = self._representation
        self._stream.write(frame(form.encode_event("ERROR", form.encode_status(error.status))))
        self._stream.finish()

    def _deliver_object(self, write: Callable[[ObjectEvent], None], event: ObjectEvent) -> None:
        write(event)
        if self._stream.buffered > self._allowed:
            self._terminate()

    def _deliver(self, chunk: bytes) -> None:
        self._stream.write(chunk)
        if self._stream.buffered > self._allowed:
            self._terminate()

    def _terminate(self) -> None:
        """End the watch of a client that reads too slowly."""
        if not self._stream.closed:
            self._fanout.terminated[self._cache.prefix] += 1
        self._stream.finish()
        self._end()

    def _schedule_bookmark(self) -> None:
        loop = asyncio.get_running_loop()
        left = self._deadline - loop.time()
        # The last bookmark is sent two seconds before the end; none follows it.
        pause = self._limits.between_bookmarks
        delay = min(pause, left - 2) if left > 2 else pause
        if delay < left:
            self._timers = [timer for timer in self._timers if not timer.cancelled()][:1]
            self._timers.append(loop.call_later(delay, self._send_bookmark))

    def _send_bookmark(self) -> None:
        if self._revision > self._began:  # No bookmark without progress.
            self._stream.write(frame(self._bookmark_line(self._revision, {})))
        self._schedule_bookmark()

    @property
    def _revision(self) -> int:
        """The revision up to which the client has all changes."""
        if isinstance(self._watcher, EncodingWatcher) and self._watcher.first_waiting is not None:
            return self._watcher.first_waiting - 1
        is_behind = isinstance(self._watcher, ConvertingWatcher) and self._watcher.is_busy
        return self._seen if is_behind else self._fanout.revision

    def _bookmark_line(self, revision: int, more: Object) -> bytes:
        metadata = {"resourceVersion": str(revision), **more}
        representation = self._representation
        if isinstance(representation, TableRepresentation) and not self._watcher.take_headers():
            representation = representation.without_headers()
        return representation.encode_event("BOOKMARK", representation.encode_bookmark(metadata))

    def _end(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._tasks.cancel()
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
