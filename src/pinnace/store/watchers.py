"""Live watching: hands each commit to those who wait for it, and keeps nothing for those who do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

from pinnace.store.store import Batch, Compacted, Follower, GapCallback, StoreClosed
from pinnace.store.view import StoreView

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
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "a follower of the store failed", "exception": error}
                )
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
