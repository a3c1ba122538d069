"""The past, read from the file on a thread and a connection of its own, so that it never holds up a write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar, cast

import apsw

from pinnace.store.sqlite.pragmas import OF_READER, set_pragmas
from pinnace.store.sqlite.writer import checksum
from pinnace.store.store import Batch, Change, Compacted, Damaged, Record, RecordPage, end_of
from pinnace.store.view import cut

_CHANGES_PER_BATCH = 500
_BYTES_PER_BATCH = 8 * 1024 * 1024
_CHANGES = """
SELECT change.revision, change.key, change.created, change.previous, change.checksum, change.value,
    previous.created, previous.previous, previous.checksum, previous.value
FROM changes AS change LEFT JOIN changes AS previous ON previous.revision = change.previous
WHERE change.revision > ? AND change.revision <= ? AND change.key >= ? AND (?4 IS NULL OR change.key < ?4)
ORDER BY change.revision LIMIT ?
"""
_REPLACED = """
SELECT key, previous FROM changes
WHERE revision > ? AND revision <= ? AND key >= ? AND (?4 IS NULL OR key < ?4) ORDER BY revision DESC
"""
_NEVER_COMPACTED = 1 << 62
_RECORD = "SELECT created, previous, checksum, value FROM changes WHERE revision = ?"

_Answer = TypeVar("_Answer")
_Row = tuple[int, str, int, int | None, int, bytes | None, int, int | None, int, bytes]


class SqliteHistory:
    """Reads old changes and old states of a file that the writer thread writes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pinnace history")
        self._connection: apsw.Connection | None = None

    async def changes(self, prefix: str, after: int, until: int) -> tuple[Batch, int]:
        """Return the next matching changes with after < revision <= until, and the revision that they reach."""
        return await self._on_thread(lambda: self._changes(prefix, after, until))

    async def page(
        self, prefix: str, start: str, limit: int, *, revision: int, now: int, records: list[Record]
    ) -> RecordPage:
        """Return a page as of `revision`, given all matching `records` as of the later revision `now`.

        It takes as long as there are changes between the two.
        """
        return await self._on_thread(lambda: self._page(prefix, start, limit, revision, now, records))

    async def check(self) -> None:
        """Read a little from the file. Raises apsw.Error if that fails."""
        await self._on_thread(self._check)

    async def close(self) -> None:
        """Close the connection, after the reads under way."""
        await self._on_thread(self._disconnect)
        self._thread.shutdown()

    async def _on_thread(self, read: Callable[[], _Answer]) -> _Answer:
        return await asyncio.get_running_loop().run_in_executor(self._thread, read)

    def _check(self) -> None:
        with self._snapshot(_NEVER_COMPACTED):
            pass

    def _changes(self, prefix: str, after: int, until: int) -> tuple[Batch, int]:
        changes: Batch = []
        size = 0
        with self._snapshot(after) as connection:
            for row in connection.execute(_CHANGES, (after, until, prefix, end_of(prefix), _CHANGES_PER_BATCH)):
                revision, key, created, replaced, expected, value, *was = cast(_Row, row)
                _check(expected, revision, key, created, replaced, value)
                previous = None if replaced is None else _record(key, replaced, was)
                changes.append(Change(key, revision, value, previous, created))
                size += len(value or b"") + (len(previous.value) if previous else 0)
                if size > _BYTES_PER_BATCH:
                    return changes, revision
        return changes, changes[-1].revision if len(changes) == _CHANGES_PER_BATCH else until

    def _page(self, prefix: str, start: str, limit: int, revision: int, now: int, records: list[Record]) -> RecordPage:
        # From now back to then: whatever changed since is put back to what its earliest change replaced.
        past: dict[str, Record | int | None] = {record.key: record for record in records}
        with self._snapshot(revision) as connection:
            rows = connection.execute(_REPLACED, (revision, now, max(prefix, start), end_of(prefix)))
            past.update(cast(Iterator[tuple[str, int | None]], rows))
            keys, remaining = cut(sorted(key for key, held in past.items() if held is not None), limit)
            fetched = [_fetch(connection, key, past[key]) for key in keys]
        return RecordPage(fetched, revision, remaining > 0, remaining)

    @contextmanager
    def _snapshot(self, since: int) -> Iterator[apsw.Connection]:
        """Open one state of the file that still has every change after `since`."""
        if self._connection is None:
            self._connection = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READWRITE)
            self._connection.set_busy_timeout(5000)
            set_pragmas(self._connection, OF_READER)
        connection = self._connection
        connection.execute("BEGIN")
        try:
            compacted = cast(int, connection.execute("SELECT revision FROM compaction").get)
            if since < compacted:
                raise Compacted(since, compacted=compacted)
            yield connection
        finally:
            connection.execute("ROLLBACK")

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()


def _fetch(connection: apsw.Connection, key: str, held: Record | int | None) -> Record:
    if isinstance(held, Record):
        return held
    revision = cast(int, held)
    return _record(key, revision, cast(Sequence[object], connection.execute(_RECORD, (revision,)).fetchone()))


def _record(key: str, revision: int, columns: Sequence[object]) -> Record:
    created, previous, expected, value = cast(tuple[int, int | None, int, bytes], columns)
    _check(expected, revision, key, created, previous, value)
    return Record(key, value, revision, created)


def _check(expected: int, revision: int, key: str, created: int, previous: int | None, value: bytes | None) -> None:
    if checksum(revision, key, created, previous, value) != expected:
        raise Damaged(
            f"the change of {key!r} at revision {revision} fails its checksum; restore the file from a backup"
        )
