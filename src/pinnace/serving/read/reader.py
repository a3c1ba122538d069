"""Get, list and watch. The current state comes from the watch caches, past revisions from the store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import orjson

from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.process.work_slices import SliceQueue, Slices
from pinnace.schema.text_cache import LONGEST
from pinnace.serving.cache.fanout import Fanout
from pinnace.serving.cache.item_groups import ItemGroups
from pinnace.serving.cache.representations import Representation
from pinnace.serving.cache.watch_cache import CachedObject, WatchCache, stamp
from pinnace.serving.messages import ResponseStream
from pinnace.serving.read.continue_tokens import LATEST, Extent, cut
from pinnace.serving.read.options import (
    ListOptions,
    UnreadableRevision,
    list_options,
    revision_of,
    single_revision,
    too_large_revision,
    watch_options,
)
from pinnace.serving.read.selection import ListSelection, keys_named, selection_of
from pinnace.serving.read.shard_selectors import Matches
from pinnace.serving.read.watch import Watch, WatchLimits
from pinnace.serving.request.call import Call
from pinnace.store import store as stores

WATCH_SECONDS = 1800.0
BOOKMARK_SECONDS = 60.0
_MOST_MATCHED = 500
"""More objects are tested against a selector in slices."""
_AT_ONCE = 32
"""So many objects are tested, or decoded to be sorted, between two pauses."""
_LONGEST_WATCH = 10 * 365 * 86400

Body = bytes | list[bytes]
Pieces = list[bytes]
Entries = list[CachedObject]


class ObjectReader:
    """Get, list and watch, over the watch caches of a `Fanout`."""

    def __init__(
        self,
        fanout: Fanout,
        store: stores.Store,
        *,
        slices: SliceQueue | None = None,
        computed: Mapping[str, ComputeObjects] | None = None,
        bookmark_seconds: float = BOOKMARK_SECONDS,
        watch_seconds: float = WATCH_SECONDS,
    ) -> None:
        """A watch without timeoutSeconds lasts from `watch_seconds` to twice as long, at random.

        `computed` has the resources whose objects are not stored, by plural.
        """
        self._fanout = fanout
        self._store = store
        self.slices = slices or SliceQueue()
        """The slices of large answers."""
        self._computed = computed or {}
        self._bookmark_seconds = bookmark_seconds
        self._watch_seconds = watch_seconds
        self._pages = RecentPages()
        self._groups = ItemGroups()

    def cached_object(self, call: Call) -> CachedObject:
        """Return the object that a call names. Raise NotFound."""
        entry = self._fanout.cache(call.resource.prefix).entries.get(call.key)
        if entry is None:
            if self._fanout.unreadable:
                self._fanout.refuse_unreadable(call.resource.prefix + call.key)
            raise call.not_found()
        return entry

    def _refuse_unreadable(self, call: Call) -> None:
        """Raise StorageReadError if an object that a list or a watch may contain cannot be decrypted."""
        resource, namespace = call.resource, f"{call.namespace}/" if call.namespace else ""
        qualified = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
        self._fanout.refuse_unreadable_below(resource.prefix + namespace, qualified, call.verb)

    async def fresh_object(self, call: Call) -> CachedObject:
        """Return the object that a call names, not older than the resourceVersion of its query. Raise NotFound."""
        wanted = single_revision(call)
        least = revision_of(wanted, UnreadableRevision) if wanted else 0
        if least > self._fanout.revision and not await self._fanout.has_reached(least):
            raise too_large_revision(least, self._fanout.revision)
        return self.cached_object(call)

    def computed(self, call: Call, representation: Representation) -> Awaitable[Body]:
        """Get or list objects that are not stored."""
        return read_computed(call, representation, self._computed[call.resource.plural])

    def get(self, call: Call, representation: Representation) -> NowOrLater[Body]:
        if call.request.raw_query and (wanted := single_revision(call)):
            least = revision_of(wanted, UnreadableRevision)
            if least > self._fanout.revision:
                return self._when_fresh(least, lambda: self.get(call, representation))
        entry = self.cached_object(call)
        if representation.needs_preparation and (waiting := representation.prepare((entry,))) is not None:
            return _encode_object_later(waiting, representation, entry)
        return representation.encode_object(entry)

    def recent_list(self, call: Call) -> Body | None:
        """Return the kept answer to the same list request if nothing has changed since; otherwise None."""
        if self._fanout.unreadable:
            return None
        page = self._pages.get(_page_key(call))
        return page.pieces if page is not None and page.revision == self._fanout.revision else None

    def list(self, call: Call, representation: Representation) -> NowOrLater[Body]:
        options = list_options(call)
        if self._fanout.unreadable:
            self._refuse_unreadable(call)
        cache = self._fanout.cache(call.resource.prefix)
        if representation.is_kept and options.is_of_now(self._fanout.revision):
            return self._page_of_now(call, cache, representation, options)
        chosen = selection_of(call)
        if _needs_index(cache, chosen):
            return _Later(partial(self._list_indexed, call, cache, representation))
        if options.continuation is not None:
            at = options.continuation.revision
            if at > self._fanout.revision:
                return self._when_fresh(at, lambda: self.list(call, representation))
            if at != LATEST and at < self._store.compacted:
                raise options.continuation.expired()
            if at == LATEST or at >= cache.changed:
                return self._page(
                    cache, chosen, representation, options, revision=self._fanout.revision if at == LATEST else at
                )
            return self._page_of_history(cache, chosen, representation, options, at)
        if options.revision > self._fanout.revision:
            return self._when_fresh(options.revision, lambda: self.list(call, representation))
        if options.is_exact and options.revision < cache.changed:
            return self._page_of_history(cache, chosen, representation, options, options.revision)
        revision = options.revision if options.is_exact else self._fanout.revision
        return self._page(cache, chosen, representation, options, revision=revision)

    async def _list_indexed(self, call: Call, cache: WatchCache, representation: Representation) -> Body:
        """List after the index of labels is built."""
        await self._index_labels(cache)
        answer = self.list(call, representation)
        return answer if isinstance(answer, bytes | list) else await answer

    async def _index_labels(self, cache: WatchCache) -> None:
        slices = self.slices.begin()
        for number, _ in enumerate(cache.index_labels()):
            if number % _AT_ONCE == 0:
                await slices.pause()

    async def select_for_deletion(
        self, call: Call
    ) -> tuple[dict[str, CachedObject], Callable[[Representation], Object]]:
        """Return the objects of a deletecollection by key, and a function that returns the metadata of their list."""
        options, chosen = list_options(call), selection_of(call)
        if self._fanout.unreadable:
            self._refuse_unreadable(call)
        cache = self._fanout.cache(call.resource.prefix)
        if _needs_index(cache, chosen):
            await self._index_labels(cache)
        now = self._fanout.revision
        if options.revision > now:
            raise too_large_revision(options.revision, now)
        # Kubernetes reads the objects in pages, and a page at a revision is exact.
        is_exact = options.revision and call.text("resourceVersionMatch") != "NotOlderThan"
        at = options.revision if is_exact else now
        if at < cache.changed:
            entries = await self._entries_at(cache, chosen, options, at)
        else:
            await chosen.prepare_all(cache)
            entries = {key: cache.entries[key] for key in _candidates(cache, chosen, options)}
        selected, slices = list(entries), self.slices.begin()
        if (matches := chosen.matches) is not None:
            selected = []
            for number, (key, entry) in enumerate(entries.items()):
                if number % _AT_ONCE == 0:
                    await slices.pause()
                if matches(key, entry):
                    selected.append(key)
        keys, extent = cut(selected, options.limit, is_all=chosen.matches is None)

        def metadata(form: Representation) -> Object:
            return _with_shards(extent, chosen, form).metadata(at)

        return {key: entries[key] for key in keys}, metadata

    def watch(self, call: Call, representation: Representation) -> Callable[[ResponseStream], NowOrLater[None]]:
        """Return the function that runs the watch on its stream. Raise an ApiError for bad options."""
        plan = watch_options(call)
        if self._fanout.unreadable:
            self._refuse_unreadable(call)
        chosen = selection_of(call)
        cache = self._fanout.cache(call.resource.prefix)
        requested = call.number("timeoutSeconds") or 0
        least = self._watch_seconds
        seconds = float(min(requested, _LONGEST_WATCH)) if requested > 0 else random.uniform(least, 2 * least)
        limits = WatchLimits(seconds, self._bookmark_seconds, self.slices)
        return Watch(self._fanout, self._store, cache, chosen, representation, plan, limits).start

    # One page.

    def _page_of_now(
        self, call: Call, cache: WatchCache, representation: Representation, options: ListOptions
    ) -> NowOrLater[Body]:
        page = self._pages.get(_page_key(call))
        if page is None or page.changed != cache.changed:
            chosen = selection_of(call)
            if _needs_index(cache, chosen):
                return _Later(partial(self._list_indexed, call, cache, representation))
            if chosen.matches is not None and len(cache.entries) > _MOST_MATCHED:
                return _Later(partial(self._page_of_many, call, cache, chosen, representation, options))
            entries, extent = _select_now(cache, chosen, options)
            extent = _with_shards(extent, chosen, representation)
            if cache.bytes > representation.most_bytes and _is_large(representation, entries):
                return _Later(partial(self._page_of_groups, call, representation, entries, extent, cache.changed))
            items = [representation.encode_items(entries, lead=b"", end=representation.list_end)]
            page = self._keep(call, RecentPage(items, extent, cache.changed))
        return self._wrap(page, representation, self._fanout.revision)

    def _wrap(self, page: RecentPage, representation: Representation, revision: int) -> Pieces:
        if page.revision != revision:
            page.revision, page.pieces = (
                revision,
                [representation.begin_list(page.extent.metadata(revision), page.size), *page.items],
            )
        return page.pieces

    async def _page_of_many(
        self,
        call: Call,
        cache: WatchCache,
        chosen: ListSelection,
        representation: Representation,
        options: ListOptions,
    ) -> Body:
        """Return a page of the state at the time of the call, selected in slices."""
        now, changed = self._fanout.revision, cache.changed
        entries, extent = await _select_in_slices(cache, chosen, options, self.slices.begin())
        extent = _with_shards(extent, chosen, representation)
        if _is_large(representation, entries):
            return await self._page_of_groups(call, representation, entries, extent, changed, now)
        items = [representation.encode_items(entries, lead=b"", end=representation.list_end)]
        return self._wrap(self._keep(call, RecentPage(items, extent, changed)), representation, now)

    async def _page_of_groups(
        self,
        call: Call,
        representation: Representation,
        entries: Entries,
        extent: Extent,
        changed: int,
        now: int = 0,
    ) -> Body:
        """Return a page of these objects, encoded in slices."""
        now = now or self._fanout.revision
        if representation.needs_preparation and (waiting := representation.prepare(entries)) is not None:
            await waiting
        items = await self._groups.encode(representation, entries, self.slices.begin())
        items.append(representation.list_end)
        return self._wrap(self._keep(call, RecentPage(items, extent, changed)), representation, now)

    def _keep(self, call: Call, page: RecentPage) -> RecentPage:
        if len(call.request.raw_query) + len(call.request.head.accept) <= LONGEST:
            key = _page_key(call)
            self._pages.keep(key, page)
            if self._pages.is_large(page):
                asyncio.get_running_loop().call_later(LARGE_SECONDS, self._pages.drop, key, page)
        return page

    def _page(
        self,
        cache: WatchCache,
        chosen: ListSelection,
        representation: Representation,
        options: ListOptions,
        *,
        revision: int,
    ) -> NowOrLater[Body]:
        if chosen.prepare is not None:
            candidates = _candidates(cache, chosen, options)
            waiting = chosen.prepare([cache.entries[key] for key in candidates])
            if waiting is not None:
                return self._page_later(waiting, cache, chosen, representation, options, revision=revision)
        if chosen.matches is not None and len(cache.entries) > _MOST_MATCHED:
            return _Later(partial(self._page_in_slices, cache, chosen, representation, options, revision))
        entries, extent = _select_now(cache, chosen, options)
        extent = _with_shards(extent, chosen, representation)
        return self.encode_list(representation, entries, extent.metadata(revision))

    async def _page_in_slices(
        self,
        cache: WatchCache,
        chosen: ListSelection,
        representation: Representation,
        options: ListOptions,
        revision: int,
    ) -> Body:
        entries, extent = await _select_in_slices(cache, chosen, options, self.slices.begin())
        extent = _with_shards(extent, chosen, representation)
        body = self.encode_list(representation, entries, extent.metadata(revision))
        return body if isinstance(body, bytes | list) else await body

    async def _page_later(
        self,
        waiting: Awaitable[None],
        cache: WatchCache,
        chosen: ListSelection,
        representation: Representation,
        options: ListOptions,
        *,
        revision: int,
    ) -> Body:
        """Wait for the conversion, then make the page. Objects that arrived meanwhile may need it too."""
        await waiting
        page = self._page(cache, chosen, representation, options, revision=max(revision, self._fanout.revision))
        return page if isinstance(page, bytes | list) else await page

    async def _page_of_history(
        self,
        cache: WatchCache,
        chosen: ListSelection,
        representation: Representation,
        options: ListOptions,
        revision: int,
    ) -> Body:
        entries = await self._entries_at(cache, chosen, options, revision)
        if chosen.matches is None:
            selected, extent = _select(list(entries), entries, None, options.limit)
        else:
            selected, extent = await _match_in_slices(entries, chosen.matches, options.limit, self.slices.begin())
        extent = _with_shards(extent, chosen, representation)
        body = self.encode_list(representation, selected, extent.metadata(revision))
        return body if isinstance(body, bytes | list) else await body

    async def _entries_at(
        self, cache: WatchCache, chosen: ListSelection, options: ListOptions, revision: int
    ) -> dict[str, CachedObject]:
        """Return the objects of a past revision from which to select, converted if the selectors need it."""
        after = options.continuation.after if options.continuation else ""
        prefix = f"{cache.prefix}{chosen.namespace}/" if chosen.namespace else cache.prefix
        start = f"{cache.prefix}{after}\0" if after else ""
        try:
            page = await self._store.list(prefix, start=start, revision=revision)
        except stores.Compacted:
            if options.continuation is not None:
                raise options.continuation.expired() from None
            raise errors.Expired("The resourceVersion for the provided list is too old.") from None
        cut = len(cache.prefix)
        entries: dict[str, CachedObject] = {}
        slices = self.slices.begin()
        for number, record in enumerate(page.records):
            if number % _AT_ONCE == 0:
                await slices.pause()
            entries[record.key[cut:]] = CachedObject(stamp(record.value, record.revision), record.revision)
        if chosen.prepare is not None and (waiting := chosen.prepare(entries.values())) is not None:
            await waiting
        return entries

    async def _when_fresh(self, revision: int, read: Callable[[], NowOrLater[Body]]) -> Body:
        """Wait a little until this server has reached a revision that the client has already seen."""
        if not await self._fanout.has_reached(revision):
            raise too_large_revision(revision, self._fanout.revision)
        answer = read()
        return answer if isinstance(answer, bytes | list) else await answer

    def encode_list(self, representation: Representation, entries: Entries, metadata: Object) -> NowOrLater[Body]:
        """Return a list of these objects. Large ones are encoded in slices."""
        waiting = representation.prepare(entries) if representation.needs_preparation else None
        if waiting is not None or _is_large(representation, entries):
            return _Later(partial(self._encode_in_slices, waiting, representation, entries, metadata))
        return representation.encode_list(entries, metadata=metadata)

    async def _encode_in_slices(
        self,
        waiting: Awaitable[None] | None,
        representation: Representation,
        entries: Entries,
        metadata: Object,
    ) -> Body:
        if waiting is not None:
            await waiting
        if not _is_large(representation, entries):
            return representation.encode_list(entries, metadata=metadata)
        slices = self.slices.begin()
        if (order := representation.order) is not None:
            entries = await _sort_in_slices(entries, order, slices)
        groups = await self._groups.encode(representation, entries, slices)
        groups.append(representation.list_end)
        return [representation.begin_list(metadata, sum(map(len, groups))), *groups]


class _Later:
    """Work that begins when it is awaited, and need not be."""

    __slots__ = ("_begin",)

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, Body]]) -> None:
        self._begin = begin

    def __await__(self) -> Generator[Any, Any, Body]:
        return self._begin().__await__()


def _with_shards(extent: Extent, chosen: ListSelection, representation: Representation) -> Extent:
    """Let the metadata of a list repeat the shard selector."""
    if chosen.shards is None or not representation.has_shard_info:
        return extent
    return extent._replace(shards=str(chosen.shards))


def _page_key(call: Call) -> PageKey:
    request = call.request
    return call.resource, call.namespace, request.raw_query, request.head.accept


def _candidates(cache: WatchCache, chosen: ListSelection, options: ListOptions) -> list[str]:
    """Return the keys of the objects from which to select."""
    after = options.continuation.after if options.continuation else ""
    if chosen.name:
        return [key for key in keys_named(cache, chosen) if key > after]
    if chosen.labels:
        return cache.keys_with_labels(chosen.labels, chosen.namespace, after=after)
    return cache.keys_of(chosen.namespace, after=after)


def _needs_index(cache: WatchCache, chosen: ListSelection) -> bool:
    """Whether the index of labels must be built first, in slices."""
    return bool(chosen.labels) and not chosen.name and cache.lacks_index and len(cache.entries) > _MOST_MATCHED


def _select_now(cache: WatchCache, chosen: ListSelection, options: ListOptions) -> tuple[list[CachedObject], Extent]:
    """Return the objects of one page of the current state."""
    return _select(_candidates(cache, chosen, options), cache.entries, chosen.matches, options.limit)


async def _select_in_slices(
    cache: WatchCache, chosen: ListSelection, options: ListOptions, slices: Slices
) -> tuple[list[CachedObject], Extent]:
    """Return the objects of one page of the state at the time of the call. Other requests are handled in between."""
    entries = {key: cache.entries[key] for key in _candidates(cache, chosen, options)}
    assert chosen.matches is not None, "without a selector there is nothing to test"
    return await _match_in_slices(entries, chosen.matches, options.limit, slices)


async def _match_in_slices(
    entries: dict[str, CachedObject], matches: Matches, limit: int, slices: Slices
) -> tuple[list[CachedObject], Extent]:
    matching: list[CachedObject] = []
    last = ""
    for number, (key, entry) in enumerate(entries.items()):
        if number % _AT_ONCE == 0:
            await slices.pause()
        if not matches(key, entry):
            continue
        if limit and len(matching) == limit:
            return matching, Extent(last)
        matching.append(entry)
        last = key
    return matching, Extent()


def _select(
    keys: list[str], entries: dict[str, CachedObject], matches: Matches | None, limit: int
) -> tuple[list[CachedObject], Extent]:
    """Return the selected objects up to the limit, and the extent of the page."""
    if matches is None:
        keys, extent = cut(keys, limit, is_all=True)
        return [entries[key] for key in keys], extent
    matching = ((key, entry) for key in keys if matches(key, entry := entries[key]))
    if not limit:
        return [entry for _, entry in matching], Extent()
    page = list(islice(matching, limit + 1))
    extent = Extent(page[limit - 1][0]) if len(page) > limit else Extent()
    return [entry for _, entry in page[:limit]], extent


async def _sort_in_slices(
    entries: list[CachedObject], order: Callable[[CachedObject], Any], slices: Slices
) -> list[CachedObject]:
    keys = []
    for number, entry in enumerate(entries):
        if number % _AT_ONCE == 0:
            await slices.pause()
        keys.append(order(entry))
    return [entries[number] for number in sorted(range(len(entries)), key=keys.__getitem__)]


def _is_large(representation: Representation, entries: list[CachedObject]) -> bool:
    """Whether a list of these objects is encoded in slices."""
    return (
        len(entries) > representation.most_at_once
        or sum(len(entry.stored or entry.body) for entry in entries) > representation.most_bytes
    )


async def _encode_object_later(waiting: Awaitable[None], representation: Representation, entry: CachedObject) -> Body:
    await waiting
    return representation.encode_object(entry)


ComputeObjects = Callable[[], Awaitable[list[Object]]]
"""Returns all objects of a resource."""


async def read_computed(call: Call, representation: Representation, compute: ComputeObjects) -> bytes | list[bytes]:
    """Answer a get or list. Such objects and lists have no resourceVersion, and lists have no pages and no shards."""
    call.takes_shards = False
    chosen = selection_of(call)
    entries = {obj["metadata"]["name"]: CachedObject(orjson.dumps(obj), 0) for obj in await compute()}
    if call.verb == "get":
        if call.name not in entries:
            raise errors.NotFound(group=call.resource.group, plural=call.resource.singular, name=call.name)
        return representation.encode_object(entries[call.name])
    matches = chosen.matches
    matching = [entry for name, entry in entries.items() if matches is None or matches(name, entry)]
    return representation.encode_list(matching, metadata={})


MOST_BYTES = 8 << 20
"""The total size of the kept pages. One page that is larger is kept alone, for a while."""
LARGE_BYTES = 1 << 20
LARGE_SECONDS = 30.0
"""A page of more than `LARGE_BYTES` is kept for this long: as long as a client that reads nothing is served."""
MOST_PAGES = 512
"""The number of kept pages: an empty one needs memory too."""

PageKey = tuple[object, ...]
"""Everything in a request that the answer depends on."""


@dataclass(slots=True)
class RecentPage:
    """One page of a list."""

    items: list[bytes]
    """The encoded items, and the end of the list."""
    extent: Extent
    changed: int
    """The revision of the last change of the resource: a later change makes the page stale."""
    revision: int = 0
    """The revision at which `pieces` was made."""
    pieces: list[bytes] = field(default_factory=list)
    """The whole answer. It is shared: do not change it."""

    @property
    def size(self) -> int:
        return sum(map(len, self.items))


class RecentPages:
    """Pages by key. The oldest is dropped when the total is too large."""

    def __init__(self, *, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._known: dict[PageKey, RecentPage] = {}
        self.get = self._known.get
        """Return the kept page, which may be stale, or None."""

    def keep(self, place: PageKey, page: RecentPage) -> None:
        self._forget(place)
        self._known[place] = page
        self._bytes += page.size
        while len(self._known) > 1 and (self._bytes > self._most_bytes or len(self._known) > MOST_PAGES):
            self._forget(next(iter(self._known)))

    def is_large(self, page: RecentPage) -> bool:
        """Whether the page must be dropped after `LARGE_SECONDS`."""
        return page.size > LARGE_BYTES

    def drop(self, place: PageKey, page: RecentPage) -> None:
        """Forget the page, unless a newer one has its place."""
        if self._known.get(place) is page:
            self._forget(place)

    def _forget(self, place: PageKey) -> None:
        gone = self._known.pop(place, None)
        if gone is not None:
            self._bytes -= gone.size
