"""The reads that all stores share: the current state from the view, the past from the medium of each store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator

from pinnace.store.store import Batch, Follower, GapCallback, Record, RecordPage
from pinnace.store.view import StoreView
from pinnace.store.watchers import History, Watchers


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

    def follow(self, follower: Follower, *, on_gap: GapCallback | None = None) -> None:
        """As `Store.follow`."""
        self._watchers.follow(follower, on_gap=on_gap)

    def watch(self, prefix: str, *, since: int) -> AsyncIterator[Batch]:
        """As `Store.watch`."""
        return self._watchers.watch(prefix, since)

    async def sync(self) -> None:
        """As `Store.sync`. No other server writes."""
        self._check_open()

    @abstractmethod
    def _check_open(self) -> None:
        """Raise StoreClosed if the store was closed."""

    @abstractmethod
    async def _past_page(self, prefix: str, start: str, limit: int, revision: int) -> RecordPage:
        """Return the page that `list` asks for at a retained revision that is not the current one."""
