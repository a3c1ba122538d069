"""A store without a file: for tests, and for clusters that may be forgotten."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter

from pinnace.store.store import (
    Batch,
    Change,
    Conflict,
    Guard,
    Record,
    RecordPage,
    StoreClosed,
    check_key,
    is_expected,
)
from pinnace.store.view import StoreView, ViewedStore, cut

_REVISION = attrgetter("revision")
HISTORY_BYTES = 64 << 20
"""The values that the history keeps at most. Its oldest quarter is compacted when it grows larger."""


class MemoryStore(ViewedStore):
    """A `Store` that lives as long as its process. Every write is a commit of its own, done when put returns."""

    is_shared = False

    def __init__(self, view: StoreView | None = None, *, history_bytes: int = HISTORY_BYTES) -> None:
        super().__init__(view or StoreView({}, revision=0, compacted=0), self._history)
        self._log: Batch = []
        self._log_bytes = 0
        self._most_bytes = history_bytes
        self._closed = False

    @classmethod
    def restored(cls, records: Iterable[Record], *, revision: int) -> MemoryStore:
        """Return a store with these records at this revision. Its history begins there."""
        return cls(StoreView({record.key: record for record in records}, revision=revision, compacted=revision))

    def fork(self) -> MemoryStore:
        """Return a store with the same records at the same revision. From then on each changes on its own."""
        return MemoryStore(self._view.fork())

    async def put(self, key: str, value: bytes, *, expected: int | None, guard: Guard | None = None) -> int:
        """As `Store.put`. There is no other server."""
        self._check_open()
        check_key(key)
        current = self._view.records.get(key)
        if not is_expected(expected, current):
            raise Conflict(key, expected=expected, current=current)
        revision = self._view.revision + 1
        if current is None:
            created = revision
        else:
            key, created = current.key, current.created  # One text per key, however often it is written.
        self._view.set(Record(key, value, revision, created))
        self._commit(Change(key, revision, value, current, created))
        return revision

    async def delete(self, key: str, *, expected: int | None) -> int:
        """As `Store.delete`."""
        self._check_open()
        current = self._view.records.get(key)
        if current is None or not is_expected(expected, current):
            raise Conflict(key, expected=expected, current=current)
        revision = self._view.revision + 1
        self._view.remove(key)
        self._commit(Change(current.key, revision, None, current, 0))
        return revision

    async def compact(self, revision: int) -> None:
        """As `Store.compact`."""
        self._check_open()
        revision = min(revision, self._view.revision)
        if revision > self._view.compacted:
            self._forget(bisect_right(self._log, revision, key=_REVISION), revision)

    def _forget(self, count: int, revision: int) -> None:
        """Forget the first changes of the history, which reach up to a revision."""
        self._view.compacted = revision
        self._log_bytes -= sum(map(_size, self._log[:count]))
        del self._log[:count]

    async def check_read(self) -> None:
        """As `Store.check_read`."""
        self._check_open()

    async def check_write(self) -> None:
        """As `Store.check_write`."""
        self._check_open()

    async def close(self) -> None:
        """As `Store.close`."""
        self._closed = True
        self._watchers.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed

    async def _past_page(self, prefix: str, start: str, limit: int, revision: int) -> RecordPage:
        past: dict[str, Record | None] = {key: self._view.records[key] for key in self._view.select(prefix, start)}
        for change in reversed(self._since(revision)):
            if change.key.startswith(prefix) and change.key >= start:
                past[change.key] = change.previous
        records = {key: record for key, record in past.items() if record is not None}
        keys, remaining = cut(sorted(records), limit)
        return RecordPage([records[key] for key in keys], revision, remaining > 0, remaining)

    def _commit(self, change: Change) -> None:
        self._view.revision = change.revision
        self._log.append(change)
        self._log_bytes += _size(change)
        if self._log_bytes > self._most_bytes:
            count = len(self._log) // 4 + 1
            self._forget(count, self._log[count - 1].revision)
        self._watchers.publish([change])

    def _since(self, revision: int) -> Batch:
        return self._log[bisect_right(self._log, revision, key=_REVISION) :]

    async def _history(self, prefix: str, after: int, until: int) -> tuple[Batch, int]:
        return [change for change in self._since(after) if change.key.startswith(prefix)], until


def _size(change: Change) -> int:
    """Return the bytes of the value that a change replaces: the new value is kept anyway, as long as it is current."""
    return len(change.previous.value) if change.previous is not None else 0
