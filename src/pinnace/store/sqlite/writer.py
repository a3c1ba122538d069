"""The one thread that writes the file: everything that waits becomes one transaction, and one message back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Semaphore, Thread
from typing import TypeAlias, cast
from zlib import crc32

import apsw

from pinnace.store.sqlite.file import has_room, is_full
from pinnace.store.sqlite.pragmas import OF_WRITER, set_pragmas
from pinnace.store.store import Change, Record, StoreClosed, WriteFailed

# The change to write, the record afterwards, and the future of the caller.
Write: TypeAlias = tuple[Change, Record | None, asyncio.Future[int]]
Writes: TypeAlias = list[Write]

_ROWS_PER_STATEMENT = 64
_REVISIONS_PER_SLICE = 1000
_PAGES_PER_SLICE = 512
_SPARE_PAGES = 256


@dataclass(frozen=True, slots=True)
class _Compaction:
    goal: int
    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class _Check:
    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class _Stop:
    done: asyncio.Future[None]


class SqliteWriter:
    """Commits what is submitted, in order, off the event loop.

    `acknowledge` is called on the thread with the last revision of every transaction that is durable, then
    `settle` is called on the loop with the writes of every transaction that is durable. When a transaction fails,
    `fail` is called on the loop with everything that was submitted and not settled: later writes may have been decided
    on top of those that failed, so all of them fail, and the writer starts afresh.
    """

    def __init__(
        self,
        path: Path,
        acknowledge: Callable[[int], None],
        *,
        settle: Callable[[Writes], None],
        fail: Callable[[Writes, WriteFailed], None],
    ) -> None:
        self._path = path
        self._acknowledge = acknowledge
        self._settle = settle
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[Writes | _Compaction | _Check | _Stop] = SimpleQueue()
        self._compactions: deque[_Compaction] = deque()
        self._failure_handled = Semaphore(0)
        self._connection = _connect(path)
        # A daemon: a program that forgets to close its store must still be able to end.
        self._thread = Thread(target=self._run, name=f"pinnace store {path.name}", daemon=True)
        self._thread.start()

    def submit(self, writes: Writes) -> None:
        """Queue writes; `settle` or `fail` will be called with each of them."""
        self._queue.put(writes)

    async def compact(self, revision: int) -> None:
        """Remove what was superseded up to `revision`, in slices between which writes go on."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._queue.put(_Compaction(revision, done))
        await done

    def check(self) -> asyncio.Future[None]:
        """Commit a change that leaves nothing behind; the future fails with WriteFailed if that fails."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._queue.put(_Check(done))
        return done

    async def close(self) -> None:
        """Commit what is queued, then end the thread and close the file."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._queue.put(_Stop(done))
        await done
        self._thread.join()

    def _run(self) -> None:
        stop: _Stop | None = None
        while stop is None:
            writes, stop = self._take()
            if writes:
                self._commit(writes)
            if stop is None and self._compactions:
                self._compact_slice(self._compactions[0])
        for compaction in self._compactions:
            self._tell(_reject, compaction.done, StoreClosed())
        with suppress(apsw.Error):  # Only the clean-up can fail; every answered write is in the log.
            self._connection.close()
        self._tell(_resolve, stop.done)

    def _take(self) -> tuple[Writes, _Stop | None]:
        """Take all waiting writes; block only if there are none and nothing else to do."""
        writes: Writes = []
        try:
            item = self._queue.get(block=not self._compactions)
            while True:
                match item:
                    case _Stop():
                        return writes, item
                    case _Compaction():
                        self._compactions.append(item)
                    case _Check():
                        self._commit_check(item)
                    case _:
                        writes += item
                item = self._queue.get_nowait()
        except Empty:
            return writes, None

    def _commit(self, writes: Writes) -> None:
        # Every statement gives up Python's lock and must win it back: the fewer the better. Few writes are a single
        # statement with many rows, which is its own transaction.
        try:
            if len(writes) <= _ROWS_PER_STATEMENT:
                self._insert(writes)
            else:
                self._connection.execute("BEGIN IMMEDIATE")
                for first in range(0, len(writes), _ROWS_PER_STATEMENT):
                    self._insert(writes[first : first + _ROWS_PER_STATEMENT])
                self._connection.execute("COMMIT")
        except Exception as error:
            self._roll_back()
            if self._tell(self._fail_all, writes, self._failure(error)):
                self._failure_handled.acquire()
        else:
            self._acknowledge(writes[-1][0].revision)
            self._tell(self._settle, writes)

    def _commit_check(self, check: _Check) -> None:
        try:
            self._connection.execute(_WRITE_NOTHING).fetchall()
        except Exception as error:
            self._roll_back()
            self._tell(_reject, check.done, self._failure(error))
        else:
            self._tell(_resolve, check.done)

    def _insert(self, writes: Writes) -> None:
        bindings: list[apsw.SQLiteValue] = []
        for change, _, _ in writes:
            key, value, previous = change.key, change.value, change.previous
            was = None if previous is None else previous.revision
            revision, created = change.revision, change.created
            bindings += (revision, key, created, was, checksum(revision, key, created, was, value), value)
        self._connection.execute(_insertion_of(len(writes)), bindings)

    def _fail_all(self, writes: Writes, error: WriteFailed) -> None:
        """On the loop, while the thread waits: nothing else can take from the queue now."""
        kept: list[_Compaction | _Check | _Stop] = []
        try:
            while True:
                match self._queue.get_nowait():
                    case _Compaction() | _Check() | _Stop() as order:
                        kept.append(order)
                    case queued:
                        writes += queued
        except Empty:
            pass
        for order in kept:
            self._queue.put(order)
        try:
            self._fail(writes, error)
        finally:
            self._failure_handled.release()

    def _compact_slice(self, compaction: _Compaction) -> None:
        try:
            finished = self._remove_superseded(compaction.goal) and self._give_back_pages()
            if finished:
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except Exception as error:
            self._roll_back()
            self._compactions.popleft()
            self._tell(_reject, compaction.done, self._failure(error))
        else:
            if finished:
                self._compactions.popleft()
                self._tell(_resolve, compaction.done)

    def _remove_superseded(self, goal: int) -> bool:
        """Forget a little more of the past; True when `goal` is reached."""
        reached = cast(int, self._connection.execute("SELECT revision FROM compaction").get)
        if reached >= goal:
            return True
        span = {"after": reached, "until": min(goal, reached + _REVISIONS_PER_SLICE)}
        self._connection.execute(_COMPACT, span).fetchall()
        return False

    def _give_back_pages(self) -> bool:
        """Make the file a little smaller; True when what is left free is worth keeping for the writes to come."""
        free = cast(int, self._connection.execute("PRAGMA freelist_count").get)
        pages = cast(int, self._connection.execute("PRAGMA page_count").get)
        surplus = free - max(_SPARE_PAGES, (pages - free) // 4)
        if surplus <= 0:
            return True
        self._connection.execute(f"PRAGMA incremental_vacuum({min(surplus, _PAGES_PER_SLICE)})").fetchall()
        return False

    def _roll_back(self) -> None:
        with suppress(apsw.Error):  # SQLite has rolled back already after most failures.
            self._connection.execute("ROLLBACK")

    def _failure(self, error: Exception) -> WriteFailed:
        is_short = is_full(error) or not has_room(self._path.parent)
        hint = f"free space on the disk of {self._path.parent}" if is_short else "check the disk"
        failure = WriteFailed(f"{self._path} did not take a write ({error}); nothing of it is stored: {hint}")
        failure.__cause__ = error
        return failure

    def _tell(self, callback: Callable[..., None], *arguments: object) -> bool:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # The loop is closed: there are no callers left.
            return False
        return True


# Revisions begin at 1. The row is gone when the transaction ends, but its page is written and synced.
_WRITE_NOTHING = """
BEGIN IMMEDIATE;
INSERT INTO changes (revision, key, created, checksum) VALUES (-1, '', -1, 0);
DELETE FROM changes WHERE revision = -1;
COMMIT
"""
_COMPACT = """
BEGIN IMMEDIATE;
DELETE FROM changes WHERE revision IN (
    SELECT previous FROM changes WHERE revision > :after AND revision <= :until AND previous IS NOT NULL
);
DELETE FROM changes WHERE revision > :after AND revision <= :until AND value IS NULL;
UPDATE compaction SET revision = :until;
COMMIT
"""


def checksum(revision: int, key: str, created: int, previous: int | None, value: bytes | None) -> int:
    """Return the checksum that is stored with a change."""
    return crc32(value or b"", crc32(f"{revision} {created} {previous} {key}".encode()))


@cache
def _insertion_of(rows: int) -> str:
    return "INSERT INTO changes (revision, key, created, previous, checksum, value) VALUES " + ",".join(
        ["(?,?,?,?,?,?)"] * rows
    )


def _connect(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, statementcachesize=128)
    connection.set_busy_timeout(5000)
    set_pragmas(connection, OF_WRITER)
    return connection


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _reject(future: asyncio.Future[None], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
