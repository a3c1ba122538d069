"""The current state of a store in memory, for every read that does not ask for the past."""

from __future__ import annotations

from pinnace.store.keys import SortedKeys, end_of
from pinnace.store.store import Compacted, FutureRevision, Record, RecordPage


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
