"""Reading objects: one, a list with its pages, and a watch that goes on. Served from memory; history from the store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import islice

import orjson

from pinnace.model import causes, errors
from pinnace.model.objects import Object
from pinnace.server.calls import Call
from pinnace.server.continuation import LATEST, Continuation, Extent, cut
from pinnace.server.fanout import Fanout, LateWatcher, Watcher, event_line
from pinnace.server.messages import Sink, frame
from pinnace.server.recent_pages import Joined, RecentPages
from pinnace.server.renditions import Form, Plain, Rows
from pinnace.server.selection import Matches, Selection, selection_of
from pinnace.server.shelves import Entry, Event, Shelf, restamp, stamp
from pinnace.store import store as stores

MAX_BUFFERED = 8 << 20
"""A watcher that lets more than this pile up is cut off; it can come back and resume."""
WATCH_SECONDS = 1800.0
BOOKMARK_SECONDS = 60.0
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_MATCHES = ("Exact", "NotOlderThan")
_FRESHNESS_SECONDS = 3.0
_MOST_DIGITS = 19
_LONGEST_WATCH = 10 * 365 * 86400

Body = bytes | list[bytes]


@dataclass(frozen=True, slots=True)
class ListOptions:
    limit: int
    continuation: Continuation | None
    revision: int
    is_exact: bool

    def is_of_now(self, revision: int) -> bool:
        """The first page of what is there, which has come to this revision."""
        return self.continuation is None and not self.is_exact and self.revision <= revision


class Reader:
    """Get, list and watch, over the shelves of a `Fanout`."""

    def __init__(
        self,
        fanout: Fanout,
        store: stores.Store,
        *,
        bookmark_seconds: float = BOOKMARK_SECONDS,
        watch_seconds: float = WATCH_SECONDS,
    ) -> None:
        """`watch_seconds` is how long a watch lasts at least whose client does not say; at most twice as long."""
        self._fanout = fanout
        self._store = store
        self._bookmark_seconds = bookmark_seconds
        self._watch_seconds = watch_seconds
        self._pages = RecentPages()

    def entry(self, call: Call) -> Entry:
        """The object that a call names, as it is now."""
        entry = self._fanout.shelf(call.resource.prefix).entries.get(call.key)
        if entry is None:
            raise call.not_found()
        return entry

    def get(self, call: Call, form: Form) -> Body | Awaitable[Body]:
        wanted = call.text("resourceVersion")
        if wanted:
            self._check_not_ahead(_revision(wanted, _Unreadable))
        entry = self.entry(call)
        waiting = form.prepare((entry,)) if form.waits else None
        return form.one(entry) if waiting is None else _one_later(waiting, form, entry)

    def list(self, call: Call, form: Form) -> Body | Awaitable[Body]:
        options = list_options(call)
        shelf = self._fanout.shelf(call.resource.prefix)
        # Lists that wait for a conversion, and rows, which tell ages, are made anew each time.
        if isinstance(form, Plain) and not form.waits and options.is_of_now(self._fanout.revision):
            return self._page_of_now(call, shelf, form, options)
        chosen = selection_of(call)
        if options.continuation is not None:
            at = options.continuation.revision
            if at > self._fanout.revision:
                raise too_large_revision(at, self._fanout.revision)
            if at != LATEST and at < self._store.compacted:
                raise options.continuation.expired()
            if at == LATEST or at >= shelf.changed:
                return self._page(shelf, chosen, form, options, revision=self._fanout.revision if at == LATEST else at)
            return self._page_of_history(shelf, chosen, form, options, at)
        if options.revision > self._fanout.revision:
            return self._when_fresh(call, form, options.revision)
        if options.is_exact and options.revision < shelf.changed:
            return self._page_of_history(shelf, chosen, form, options, options.revision)
        revision = options.revision if options.is_exact else self._fanout.revision
        return self._page(shelf, chosen, form, options, revision=revision)

    def watch(self, call: Call, form: Form) -> Callable[[Sink], Awaitable[None] | None]:
        """What to do with the stream once its head is sent. Bad options are refused here, before that."""
        plan = watch_options(call)
        chosen = selection_of(call)
        shelf = self._fanout.shelf(call.resource.prefix)
        asked = call.number("timeoutSeconds") or 0
        least = self._watch_seconds
        seconds = float(min(asked, _LONGEST_WATCH)) if asked > 0 else random.uniform(least, 2 * least)
        watch = _Watch(self._fanout, self._store, shelf, chosen, form, plan, seconds, self._bookmark_seconds)
        return watch.start

    # One page.

    def _page_of_now(self, call: Call, shelf: Shelf, form: Plain, options: ListOptions) -> Body:
        place = (form, call.namespace, call.name, call.request.raw_query)
        page = self._pages.find(place, shelf.changed)
        if page is None:
            entries, extent = _gathered(shelf, selection_of(call), options)
            page = Joined(form.joined(entries), extent, shelf.changed)
            self._pages.keep(place, page)
        return form.listing(page.items, metadata=page.extent.metadata(self._fanout.revision))

    def _page(
        self, shelf: Shelf, chosen: Selection, form: Form, options: ListOptions, *, revision: int
    ) -> Body | Awaitable[Body]:
        if chosen.prepare is not None:
            candidates = _candidates(shelf, chosen, options)
            waiting = chosen.prepare([shelf.entries[key] for key in candidates])
            if waiting is not None:
                return self._page_later(waiting, shelf, chosen, form, options, revision=revision)
        entries, extent = _gathered(shelf, chosen, options)
        return _many(form, entries, extent.metadata(revision))

    async def _page_later(
        self,
        waiting: Awaitable[None],
        shelf: Shelf,
        chosen: Selection,
        form: Form,
        options: ListOptions,
        *,
        revision: int,
    ) -> Body:
        """What has come meanwhile may have to be prepared, too."""
        await waiting
        page = self._page(shelf, chosen, form, options, revision=max(revision, self._fanout.revision))
        return page if isinstance(page, bytes | list) else await page

    async def _page_of_history(
        self, shelf: Shelf, chosen: Selection, form: Form, options: ListOptions, revision: int
    ) -> Body:
        after = options.continuation.after if options.continuation else ""
        prefix = f"{shelf.prefix}{chosen.namespace}/" if chosen.namespace else shelf.prefix
        start = f"{shelf.prefix}{after}\0" if after else ""
        try:
            page = await self._store.list(prefix, start=start, revision=revision)
        except stores.Compacted:
            if options.continuation is not None:
                raise options.continuation.expired() from None
            raise errors.Expired("The resourceVersion for the provided list is too old.") from None
        cut = len(shelf.prefix)
        entries = {r.key[cut:]: Entry(stamp(r.value, r.revision), r.revision) for r in page.records}
        if chosen.prepare is not None and (waiting := chosen.prepare(entries.values())) is not None:
            await waiting
        found, extent = _selected(list(entries), entries, chosen.matches, options.limit)
        shown = _many(form, found, extent.metadata(revision))
        return shown if isinstance(shown, bytes | list) else await shown

    async def _when_fresh(self, call: Call, form: Form, revision: int) -> Body:
        """A client that has seen a later revision than this server waits a little for it."""
        fresh = asyncio.get_running_loop().create_future()
        shelf_watcher = _Alarm(self._fanout, revision, fresh)
        try:
            async with asyncio.timeout(_FRESHNESS_SECONDS):
                await fresh
        except TimeoutError:
            raise too_large_revision(revision, self._fanout.revision) from None
        finally:
            shelf_watcher.cancel()
        found = self.list(call, form)
        return found if isinstance(found, bytes | list) else await found

    def _check_not_ahead(self, revision: int) -> None:
        if revision > self._fanout.revision:
            raise too_large_revision(revision, self._fanout.revision)


class _Alarm:
    """Resolves a future when the fanout reaches a revision."""

    def __init__(self, fanout: Fanout, revision: int, reached: asyncio.Future[None]) -> None:
        self._fanout, self._revision, self._reached = fanout, revision, reached
        fanout.on_progress(self._progress)

    def _progress(self, revision: int) -> None:
        if revision >= self._revision and not self._reached.done():
            self._reached.set_result(None)

    def cancel(self) -> None:
        self._fanout.forget_progress(self._progress)


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """Where a watch begins: with the present state or behind a revision; and what it wants told."""

    since: int | None
    """None: begin now."""
    initial_events: bool
    marks_end_of_initial: bool
    bookmarks: bool


class _Watch:
    """One watch from its first event to its end."""

    def __init__(
        self,
        fanout: Fanout,
        store: stores.Store,
        shelf: Shelf,
        chosen: Selection,
        form: Form,
        options: WatchOptions,
        seconds: float,
        bookmark_seconds: float,
    ) -> None:
        self._fanout = fanout
        self._store = store
        self._shelf = shelf
        self._chosen = chosen
        self._form = form
        self._options = options
        self._seconds = seconds
        self._bookmark_seconds = bookmark_seconds
        self._allowed = MAX_BUFFERED
        self._timers: list[asyncio.TimerHandle] = []
        self._seen = 0
        self._watcher = (LateWatcher if form.waits or chosen.prepare is not None else Watcher)(
            namespace=chosen.namespace,
            matches=chosen.matches,
            rendition=form,
            later=form.without_headers() if isinstance(form, Rows) else None,
            deliver=self._deliver,
            finish=lambda: self._sink.finish(),
        )

    def start(self, sink: Sink) -> Awaitable[None] | None:
        self._sink = sink
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + self._seconds
        sink.on_close(self._end)
        self._timers.append(loop.call_later(self._seconds, sink.finish))
        since = self._options.since
        if isinstance(self._watcher, LateWatcher):
            return self._follow_late(self._watcher, since)
        if since is None:
            self._send_initial(self._initial())
        elif since < self._shelf.recent_since or since > self._fanout.revision:
            return self._catch_up(since)
        else:
            self._send_events(list(self._shelf.since(since)))
        self._join()
        return None

    def _join(self) -> None:
        """From here on the client gets every change as it is made, and bookmarks, which say that it has."""
        if self._sink.closed:
            return
        self._allowed = MAX_BUFFERED + self._sink.buffered  # What it asked for at the start is not held against it.
        self._fanout.join(self._shelf.prefix, self._watcher)
        if self._options.bookmarks:
            self._schedule_bookmark()

    def _initial(self) -> list[Entry]:
        if not self._options.initial_events:
            return []
        entries, matches = self._shelf.entries, self._chosen.matches
        keys = (
            _keys_named(self._shelf, self._chosen) if self._chosen.name else self._shelf.keys_of(self._chosen.namespace)
        )
        return [entries[key] for key in keys if matches is None or matches(key, entries[key])]

    def _send_initial(self, entries: list[Entry]) -> None:
        lines = [self._watcher.line_of("ADDED", entry) for entry in entries]
        if self._options.marks_end_of_initial:
            annotations = {INITIAL_EVENTS_END: "true"}
            lines.append(self._bookmark_line({"annotations": annotations}))
        if lines:
            self._sink.write(frame(b"".join(lines)))

    def _send_events(self, events: list[Event]) -> None:
        namespace = self._chosen.namespace
        frames = []
        for event in events:
            if namespace and event.key.partition("/")[0] != namespace:
                continue
            framed = self._watcher.frame_of(event)
            if framed is not None:
                frames.append(framed)
        if frames:
            self._sink.write(b"".join(frames))

    async def _catch_up(self, since: int) -> None:
        """Read from the store's history until memory goes on from there, then join the live watchers."""
        try:
            async for changes in self._store.watch(self._shelf.prefix, since=since):
                cut = len(self._shelf.prefix)
                self._send_events([_past_event(change, change.key[cut:]) for change in changes])
                since = changes[-1].revision
                if since >= self._shelf.recent_since:
                    break
                await self._sink.drained()
        except stores.Compacted as problem:
            self._fail(errors.Expired(f"too old resource version: {since} ({problem.compacted})"))
            return
        self._send_events(list(self._shelf.since(since)))
        self._join()
        ended = asyncio.Event()
        self._sink.on_close(ended.set)
        await ended.wait()

    async def _follow_late(self, watcher: LateWatcher, since: int | None) -> None:
        """As `start`, but each object is converted before it is sent. Joins first: what happens meanwhile waits."""
        self._join()
        self._seen = self._fanout.revision
        try:
            if since is None:
                await self._chosen.prepare_all(self._shelf)
                initial = self._initial()
                await self._prepared(initial)
                self._send_initial(initial)
            elif since < self._shelf.recent_since or since > self._fanout.revision:
                async for changes in self._store.watch(self._shelf.prefix, since=since):
                    cut = len(self._shelf.prefix)
                    await self._send_late(watcher, [_past_event(change, change.key[cut:]) for change in changes])
                    if changes[-1].revision >= self._seen:
                        break
            else:
                await self._send_late(watcher, list(self._shelf.since(since)))
            while not self._sink.closed:
                events = await watcher.fetch()
                await self._send_late(watcher, [event for event in events if event.revision > self._seen])
        except stores.Compacted as problem:
            self._fail(errors.Expired(f"too old resource version: {since} ({problem.compacted})"))
        except errors.ApiError as refusal:
            self._fail(refusal)

    async def _send_late(self, watcher: LateWatcher, events: list[Event]) -> None:
        namespace = self._chosen.namespace
        wanted = [one for one in events if not namespace or one.key.partition("/")[0] == namespace]
        await self._prepared([entry for event in wanted for entry in (event.new, event.old) if entry is not None])
        frames = [framed for event in wanted if (framed := watcher.frame_now(event)) is not None]
        if events:
            self._seen = max(self._seen, events[-1].revision)
        if frames:
            self._deliver(b"".join(frames))

    async def _prepared(self, entries: list[Entry]) -> None:
        for prepare in (self._form.prepare, self._chosen.prepare):
            if prepare is not None and (waiting := prepare(entries)) is not None:
                await waiting

    def _fail(self, refusal: errors.ApiError) -> None:
        self._sink.write(frame(event_line("ERROR", orjson.dumps(refusal.status))))
        self._sink.finish()

    def _deliver(self, chunk: bytes) -> None:
        self._sink.write(chunk)
        if self._sink.buffered > self._allowed:
            self._sink.finish()
            self._end()

    def _schedule_bookmark(self) -> None:
        loop = asyncio.get_running_loop()
        left = self._deadline - loop.time()
        delay = min(self._bookmark_seconds, left - 2) if left > 2 else min(self._bookmark_seconds, left / 2)
        if delay > 0.05 or self._bookmark_seconds < left:
            self._timers = [timer for timer in self._timers if not timer.cancelled()][:1]
            self._timers.append(loop.call_later(delay, self._send_bookmark))

    def _send_bookmark(self) -> None:
        self._sink.write(frame(self._bookmark_line({})))
        self._schedule_bookmark()

    def _bookmark_line(self, more: Object) -> bytes:
        is_behind = isinstance(self._watcher, LateWatcher) and self._watcher.is_busy
        revision = self._seen if is_behind else self._fanout.revision
        metadata = {"resourceVersion": str(revision), "creationTimestamp": None, **more}
        return event_line("BOOKMARK", self._form.bookmark(metadata))

    def _end(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._fanout.leave(self._shelf.prefix, self._watcher)


def list_options(call: Call) -> ListOptions:
    limit = max(0, call.number("limit") or 0)
    call.number("timeoutSeconds")  # A list is over before any time is; but it must be one.
    token, wanted, match = call.text("continue"), call.text("resourceVersion"), call.text("resourceVersionMatch")
    faults = []
    if call.text("sendInitialEvents"):
        faults.append(causes.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if match:
        if token:
            faults.append(
                causes.forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided")
            )
        if not wanted:
            faults.append(
                causes.forbidden(
                    "resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"
                )
            )
        if match not in _MATCHES:
            faults.append(causes.not_supported("resourceVersionMatch", match, [*_MATCHES, ""]))
        if match == "Exact" and wanted == "0":
            faults.append(
                causes.forbidden(
                    "resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
                )
            )
    _refuse(faults)
    if token:
        continuation = Continuation.decode(token)
        if wanted and wanted != "0":
            raise errors.BadRequest("specifying resource version is not allowed when using continue")
        return ListOptions(limit, continuation, 0, is_exact=False)
    revision = _revision(wanted, _BadRevision) if wanted else 0
    is_exact = match == "Exact" or (not match and limit > 0 and revision > 0)
    return ListOptions(limit, None, revision, is_exact=is_exact)


def watch_options(call: Call) -> WatchOptions:
    wanted, match, initial = (
        call.text("resourceVersion"),
        call.text("resourceVersionMatch"),
        call.text("sendInitialEvents"),
    )
    bookmarks = call.flag("allowWatchBookmarks")
    faults = []
    if initial and match != "NotOlderThan":
        faults.append(
            causes.forbidden(
                "resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            )
        )
    if match and not initial:
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        faults.append(causes.forbidden("resourceVersionMatch", why))
    if match and match != "NotOlderThan":
        faults.append(causes.not_supported("resourceVersionMatch", match, ["NotOlderThan"]))
    _refuse(faults)
    revision = _revision(wanted, _Unreadable) if wanted else 0
    if initial:
        told = call.flag("sendInitialEvents")
        if told:
            return WatchOptions(None, initial_events=True, marks_end_of_initial=bookmarks, bookmarks=bookmarks)
        since = revision or None
        return WatchOptions(since, initial_events=False, marks_end_of_initial=False, bookmarks=bookmarks)
    if revision == 0:
        return WatchOptions(None, initial_events=True, marks_end_of_initial=False, bookmarks=bookmarks)
    return WatchOptions(revision, initial_events=False, marks_end_of_initial=False, bookmarks=bookmarks)


def too_large_revision(wanted: int, current: int) -> errors.Timeout:
    error = errors.Timeout(f"Too large resource version: {wanted}, current: {current}", retry_after=1)
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    error.details = {"causes": [cause], "retryAfterSeconds": 1}
    return error


def _refuse(faults: list[causes.Cause]) -> None:
    if faults:
        raise errors.Invalid(faults, group="meta.k8s.io", kind="ListOptions", name="")


class _BadRevision(errors.BadRequest):
    def __init__(self, fault: str) -> None:
        super().__init__(f"invalid resource version: {fault}")


class _Unreadable(errors.ApiError):
    """The same outside of lists, where Kubernetes blames itself."""

    code, reason = 500, ""


def _revision(text: str, refusal: type[_BadRevision] | type[_Unreadable]) -> int:
    why = "invalid syntax" if not text.isascii() or not text.isdigit() else ""
    if not why and len(text.lstrip("0")) > _MOST_DIGITS:
        why = "value out of range"
    if why:
        shown = orjson.dumps(text).decode()
        raise refusal(f"resourceVersion: Invalid value: {shown}: strconv.ParseUint: parsing {shown}: {why}")
    return int(text)


def _keys_named(shelf: Shelf, chosen: Selection) -> list[str]:
    """The keys that a name can stand for: one, or one in each namespace."""
    if chosen.namespace:
        candidates = [f"{chosen.namespace}/{chosen.name}"]
    elif chosen.name in shelf.entries:
        candidates = [chosen.name]
    else:
        ending = f"/{chosen.name}"
        candidates = [key for key in shelf.keys_of() if key.endswith(ending)]
    return [key for key in candidates if key in shelf.entries]


def _candidates(shelf: Shelf, chosen: Selection, options: ListOptions) -> list[str]:
    """The keys of the objects among which to look."""
    after = options.continuation.after if options.continuation else ""
    if chosen.name:
        return [key for key in _keys_named(shelf, chosen) if key > after]
    if chosen.labels:
        return shelf.keys_labelled(chosen.labels, chosen.namespace, after=after)
    return shelf.keys_of(chosen.namespace, after=after)


def _gathered(shelf: Shelf, chosen: Selection, options: ListOptions) -> tuple[list[Entry], Extent]:
    """The objects of one page as they are now."""
    return _selected(_candidates(shelf, chosen, options), shelf.entries, chosen.matches, options.limit)


def _selected(
    keys: list[str], entries: dict[str, Entry], matches: Matches | None, limit: int
) -> tuple[list[Entry], Extent]:
    """The first of these objects up to the limit."""
    if matches is None:
        keys, extent = cut(keys, limit, is_all=True)
        return [entries[key] for key in keys], extent
    found = ((key, entry) for key in keys if matches(key, entry := entries[key]))
    if not limit:
        return [entry for _, entry in found], Extent()
    page = list(islice(found, limit + 1))
    extent = Extent(page[limit - 1][0]) if len(page) > limit else Extent()
    return [entry for _, entry in page[:limit]], extent


def _many(form: Form, entries: list[Entry], metadata: Object) -> Body | Awaitable[Body]:
    waiting = form.prepare(entries) if form.waits else None
    return form.many(entries, metadata=metadata) if waiting is None else _many_later(waiting, form, entries, metadata)


async def _many_later(waiting: Awaitable[None], form: Form, entries: list[Entry], metadata: Object) -> Body:
    await waiting
    return form.many(entries, metadata=metadata)


async def _one_later(waiting: Awaitable[None], form: Form, entry: Entry) -> Body:
    await waiting
    return form.one(entry)


def _past_event(change: stores.Change, key: str) -> Event:
    previous, old = change.previous, None
    if previous is not None:
        old = Entry(stamp(previous.value, previous.revision), previous.revision)
    if change.value is None:
        if old is not None:
            old = Entry(restamp(old.body, change.revision), change.revision)
        return Event(key, change.revision, None, old)
    return Event(key, change.revision, Entry(stamp(change.value, change.revision), change.revision), old)
