"""The current state of a store in memory, for every read that does not ask for the past."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TypeAlias

from pinnace.store.store import (
    NONE_UNREADABLE,
    Batch,
    Compacted,
    Follower,
    FutureRevision,
    GapCallback,
    ReadabilityCallback,
    Record,
    RecordPage,
    SortedKeys,
    StoreClosed,
    end_of,
)


class StoreView:
    """The current records. Their values are the objects that were put, shared with all other holders."""

    def __init__(self, records: dict[str, Record], *, revision: int, compacted: int) -> None:
        self.records = records
        self.revision = revision
        self.compacted = compacted
        self._keys = SortedKeys(list(records))

    def replace(self, records: dict[str, Record], *, revision: int) -> None:
        """Let the store hold these records and no others."""
        self.records = records
        self.revision = revision
        self._keys = SortedKeys(list(records))

    def fork(self) -> StoreView:
        """Return a view of the same records, which are shared. Its history begins at the present revision."""
        twin = StoreView({}, revision=self.revision, compacted=self.revision)
        twin.records, twin._keys = self.records.copy(), self._keys.fork()
        return twin

    def set(self, record: Record) -> None:
        """Let a key hold this record."""
        if record.key not in self.records:
            self._keys.add(record.key)
        self.records[record.key] = record

    def remove(self, key: str) -> None:
        """Let an existing key hold nothing."""
        del self.records[key]
        self._keys.remove(key)

    def select(self, prefix: str, start: str) -> list[str]:
        """Return the keys that begin with `prefix` and are not before `start`, in order."""
        return self._keys.between(max(prefix, start), end_of(prefix))

    def page(self, prefix: str, start: str, limit: int) -> RecordPage:
        """Return the current records that `Store.list` asks for."""
        keys, remaining = cut(self.select(prefix, start), limit)
        return RecordPage([self.records[key] for key in keys], self.revision, remaining > 0, remaining)

    def check_retained(self, revision: int) -> None:
        """Refuse a revision of which nothing can be said, be it forgotten or not written yet."""
        if revision < self.compacted:
            raise Compacted(revision, compacted=self.compacted)
        if revision > self.revision:
            raise FutureRevision(revision, current=self.revision)


def cut(keys: list[str], limit: int) -> tuple[list[str], int]:
    """Return the first `limit` keys (0: all of them), and how many follow."""
    if limit <= 0 or len(keys) <= limit:
        return keys, 0
    return keys[:limit], len(keys) - limit


# (prefix, after, until): matching changes with after < revision <= until, oldest first, and how far they reach.
History: TypeAlias = Callable[[str, int, int], Awaitable[tuple[Batch, int]]]


class Watchers:
    """The followers and watchers of one store.

    A watcher that is waiting gets the commit as it happens. One that is busy meanwhile reads what it missed from the
    history afterwards, so a slow reader costs no memory.
    """

    def __init__(self, view: StoreView, history: History) -> None:
        self._view = view
        self._history = history
        self._followers: list[Follower] = []
        self._gap_callbacks: list[GapCallback] = []
        self._waiting: dict[asyncio.Future[tuple[Batch, int]], tuple[str, int]] = {}
        self._closed = False

    def follow(self, follower: Follower, *, on_gap: GapCallback | None = None) -> None:
        """Call `follower` with every batch that is published from now on."""
        self._followers.append(follower)
        if on_gap is not None:
            self._gap_callbacks.append(on_gap)

    def publish(self, changes: Batch) -> None:
        """Hand out a commit that the view already shows."""
        for follower in self._followers:
            try:
                follower(changes)
            except Exception as error:  # The writers must get their answers all the same: the commit is durable.
                context = {"message": "a follower of the store failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)
        if self._waiting:
            self._wake(changes)

    def publish_gap(self, changes: Batch, revision: int) -> None:
        """Hand out the changes over a gap in history, which is known again from `revision` on. Watches end."""
        for on_gap in self._gap_callbacks:
            on_gap(revision)
        waiting, self._waiting = self._waiting, {}
        for waiter, (_, after) in waiting.items():
            if not waiter.done():
                waiter.set_exception(Compacted(after, compacted=revision))
        self.publish(changes)

    async def watch(self, prefix: str, since: int) -> AsyncIterator[Batch]:
        """As `Store.watch`."""
        seen = since
        while True:
            if self._closed:
                raise StoreClosed
            if seen < self._view.compacted:
                raise Compacted(seen, compacted=self._view.compacted)
            if seen < self._view.revision:
                changes, seen = await self._history(prefix, seen, self._view.revision)
            else:
                changes, seen = await self._next(prefix, seen)
            if changes:
                yield changes

    def close(self) -> None:
        """End every watch with `StoreClosed`."""
        self._closed = True
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(StoreClosed())

    async def _next(self, prefix: str, after: int) -> tuple[Batch, int]:
        waiter: asyncio.Future[tuple[Batch, int]] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = (prefix, after)
        try:
            return await waiter
        finally:
            self._waiting.pop(waiter, None)

    def _wake(self, changes: Batch) -> None:
        for waiter, (prefix, after) in list(self._waiting.items()):
            wanted = [change for change in changes if change.revision > after and change.key.startswith(prefix)]
            if wanted:
                del self._waiting[waiter]
                if not waiter.done():
                    waiter.set_result((wanted, changes[-1].revision))


class ViewedStore(ABC):
    """A store whose current records are in a `StoreView`. A subclass writes, and reads the past."""

    def __init__(self, view: StoreView, history: History) -> None:
        self._view = view
        self._watchers = Watchers(view, history)

    @property
    def revision(self) -> int:
        """As `Store.revision`. Other servers may have written more to a shared store: call `sync` first."""
        return self._view.revision

    @property
    def compacted(self) -> int:
        """As `Store.compacted`, as far as this server knows."""
        return self._view.compacted

    @property
    def unreadable(self) -> Mapping[str, str]:
        """As `Store.unreadable`: nothing is encrypted here."""
        return NONE_UNREADABLE

    async def get(self, key: str) -> Record | None:
        """As `Store.get`."""
        self._check_open()
        return self._view.records.get(key)

    async def list(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> RecordPage:
        """As `Store.list`."""
        self._check_open()
        view = self._view
        if not revision or revision == view.revision:
            return view.page(prefix, start, limit)
        view.check_retained(revision)
        return await self._past_page(prefix, start, limit, revision)

    def follow(
        self,
        follower: Follower,
        *,
        on_gap: GapCallback | None = None,
        on_readability: ReadabilityCallback | None = None,
    ) -> None:
        """As `Store.follow`. Every value can be read."""
        self._watchers.follow(follower, on_gap=on_gap)

    def watch(self, prefix: str, *, since: int) -> AsyncIterator[Batch]:
        """As `Store.watch`."""
        return self._watchers.watch(prefix, since)

    def size_bytes(self) -> int:
        """As `Store.size_bytes`: unknown."""
        return 0

    def is_stale(self, key: str) -> bool:
        """As `Store.is_stale`: nothing is encrypted here."""
        return False

    async def sync(self) -> None:
        """As `Store.sync`. No other server writes."""
        self._check_open()

    @abstractmethod
    def _check_open(self) -> None:
        """Raise StoreClosed if the store was closed."""

    @abstractmethod
    async def _past_page(self, prefix: str, start: str, limit: int, revision: int) -> RecordPage:
        """Return the page that `list` asks for at a retained revision that is not the current one."""
