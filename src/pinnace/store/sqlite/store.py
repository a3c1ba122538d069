"""A store in one SQLite file: an answered write is on the disk, and many writers share one commit.

The event loop decides and numbers every write, against what the key will hold once the queue before it is committed;
the writer thread only appends. So the hot path has no query, one message per batch in each direction, and a cost that
is mostly SQLite's own. Two threads share one interpreter: the writer goes on when the loop next gives up Python's lock,
which it does with every record of TLS (docs/decisions/0007-the-interpreters-lock.md).
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import logging
import mmap
import os
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import apsw

from pinnace.store.sqlite.file import ROOM, Contents, beside, has_room, is_full, load
from pinnace.store.sqlite.history import SqliteHistory
from pinnace.store.sqlite.writer import SqliteWriter, Write, Writes
from pinnace.store.store import (
    Batch,
    Change,
    Conflict,
    Guard,
    Locked,
    Record,
    RecordPage,
    Removed,
    StoreClosed,
    StoreError,
    WriteFailed,
    check_key,
    is_expected,
)
from pinnace.store.view import StoreView, ViewedStore

# The process in text, for people; then the revision, aligned so that one instruction writes it.
_PROCESS_BYTES = 24
_REVISION = struct.Struct("<Q")
_BYTES = _PROCESS_BYTES + _REVISION.size
_LONGEST_COMMAND = 200
_MOST_REVISIONS = 1 << 53


class Lock:
    """Keeps other stores off a file, through a second file beside it, until released or until the process ends.

    SQLite's own locks are not used for this: they vanish when any code in the process closes the database.
    """

    def __init__(self, path: Path) -> None:
        self._database = path
        self._path = beside(path, "-lock")
        self._is_new = not self._path.exists()
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._database_descriptor: int | None = None
        self._files: dict[Path, os.stat_result] = {}
        content = os.pread(self._descriptor, _BYTES, 0)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            owner = content[:_PROCESS_BYTES].decode(errors="replace").strip()
            raise Locked(
                f"{path} is in use by process {_describe(owner)}; stop it, or choose another --data-dir"
            ) from None
        self.acknowledged = _read_revision(self._path, content)
        """The last revision that a store acknowledged to a writer of this file; 0 if that is unknown."""
        try:
            self._memory = self._map()
        except OSError:
            if self._is_new:
                self._path.unlink()
            os.close(self._descriptor)
            raise

    def acknowledge(self, revision: int) -> None:
        """Note that the writes up to this revision are durable."""
        _REVISION.pack_into(self._memory, _PROCESS_BYTES, revision)

    def hold_database(self) -> None:
        """Lock the database itself, too. Raise Locked if another process has it open, whose lock file was removed.

        The descriptor stays open as long as the lock: to close it would take away SQLite's own locks.
        """
        self._database_descriptor = os.open(self._database, os.O_RDONLY | os.O_CLOEXEC)
        if sys.platform != "linux":
            return  # Elsewhere this lock and SQLite's own exclude each other.
        try:
            fcntl.flock(self._database_descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Locked(
                f"{self._database} is in use by another process, though {self._path.name} was removed; "
                "stop that process, or choose another --data-dir"
            ) from None

    def remember_files(self) -> None:
        """From now on `check` expects the files that are in place now."""
        # The directory comes first: where it is gone, so are the files, and its name says more than theirs.
        for path in (self._database.parent, self._database, self._path, beside(self._database, "-wal")):
            if path.exists():
                self._files[path] = path.stat()

    def check(self) -> None:
        """Raise Removed unless the files are where they were: writes would go to a file without a name."""
        for path, opened in self._files.items():
            try:
                is_same = os.path.samestat(path.stat(), opened)
            except (FileNotFoundError, NotADirectoryError):
                is_same = False
            if not is_same:
                what = "directory" if path == self._database.parent else "file"
                raise Removed(
                    f"{path} was removed or replaced while in use; stop the server, put the {what} back "
                    "or restore a backup, and start again"
                )

    def release(self) -> None:
        """Let others open the file."""
        self._memory.close()
        if self._database_descriptor is not None:
            os.close(self._database_descriptor)
        os.close(self._descriptor)

    def withdraw(self) -> None:
        """Release, and leave no trace beside a file that turned out not to be ours."""
        if self._is_new:
            self._path.unlink(missing_ok=True)
        self.release()

    def _map(self) -> mmap.mmap:
        # All bytes are written, so that the disk has room for them: mapped memory without room ends the process.
        content = f"{os.getpid()}\n".encode().ljust(_PROCESS_BYTES) + _REVISION.pack(self.acknowledged)
        os.pwrite(self._descriptor, content, 0)
        return mmap.mmap(self._descriptor, _BYTES)


def _read_revision(path: Path, content: bytes) -> int:
    """Return the revision in a lock file; 0 if it has none, or none that a store has ever reached."""
    if len(content) != _BYTES:
        return 0
    revision: int = _REVISION.unpack_from(content, _PROCESS_BYTES)[0]
    if revision > _MOST_REVISIONS:
        log.warning("%s is damaged: whether the last acknowledged writes are there cannot be checked", path)
        return 0
    return revision


def _describe(owner: str) -> str:
    """Return the number of a process with its command, as far as they are known."""
    try:
        command = Path(f"/proc/{int(owner)}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except (OSError, ValueError):
        command = ""
    return f"{owner or '(unknown)'}" + (f" ({command[:_LONGEST_COMMAND]})" if command else "")


_WRITE_CHECK_SECONDS = 1.0

log = logging.getLogger(__name__)


class SqliteStore(ViewedStore):
    """A `Store` in a file. Open it with `await SqliteStore.open(path)`."""

    is_shared = False

    def __init__(self, path: Path, lock: Lock, contents: Contents) -> None:
        self._path = path
        self._lock = lock
        self._history = SqliteHistory(path)
        view = StoreView(contents.records, revision=contents.revision, compacted=contents.compacted)
        super().__init__(view, self._history.changes)
        self._writer = SqliteWriter(path, lock.acknowledge, settle=self._settle, fail=self._fail)
        lock.remember_files()
        self._loop = asyncio.get_running_loop()
        self._numbered = contents.revision  # The last revision given out, committed or not.
        self._gathered: Writes = []  # Decided in this turn of the loop, not yet with the writer.
        self._queued: dict[str, Write] = {}  # The last undecided write of each key.
        self._losers: list[asyncio.Future[None]] = []  # Those who wait to learn who won.
        self._committed_at = -_WRITE_CHECK_SECONDS  # Of the last commit unless a write failed since; the loop's clock.
        self._write_check: asyncio.Future[None] | None = None
        self._missing_room = 0  # The bytes that the last failed writes needed, where the disk had no room for them.
        self._removed: Removed | None = None
        self._directory_watch = watch_directory(path.parent, self._notice_removal)
        self._closing: asyncio.Task[None] | None = None

    def size_bytes(self) -> int:
        """As `Store.size_bytes`: the size of the file and its log; 0 if it cannot be read."""
        try:
            return sum(path.stat().st_size for path in (self._path, beside(self._path, "-wal")) if path.exists())
        except OSError:
            return 0

    @classmethod
    async def open(cls, path: Path, *, accept_data_loss: bool = False) -> SqliteStore:
        """Open the file, or make it. `Locked`, `Damaged` and `TooNew` say why not, and leave the file as it was.

        With `accept_data_loss` a file that lacks acknowledged writes is opened without them. Revisions go on after the
        lost ones, and history begins there, so that a client that saw lost writes lists again.
        """
        path = path.absolute()
        try:
            lock = Lock(path)
        except OSError as error:
            raise _unopened(path, error) from error
        acknowledged = lock.acknowledged
        try:
            contents = await asyncio.to_thread(load, path, acknowledged=0 if accept_data_loss else acknowledged)
            lock.hold_database()
            is_short = contents.revision < acknowledged
            store = cls(path, lock, replace(contents, revision=acknowledged) if is_short else contents)
        except BaseException as error:
            lock.withdraw()
            if isinstance(error, apsw.Error | OSError):
                raise _unopened(path, error) from error
            raise
        if is_short:
            log.warning("%s goes on without the revisions %d to %d", path, contents.revision + 1, acknowledged)
            await store.compact(acknowledged)
        return store

    async def put(self, key: str, value: bytes, *, expected: int | None, guard: Guard | None = None) -> int:
        """As `Store.put`. There is no other server."""
        check_key(key)
        self._check_writable()
        while not is_expected(expected, current := self._latest(key)):
            await self._wait_for_outcome(key, expected)
        revision = self._numbered = self._numbered + 1
        if current is None:
            created = revision
        else:
            key, created = current.key, current.created  # One text per key, however often it is written.
        change = Change(key, revision, value, current, created)
        return await self._enqueue(change, Record(key, value, revision, created))

    async def delete(self, key: str, *, expected: int | None) -> int:
        """As `Store.delete`."""
        self._check_writable()
        while (current := self._latest(key)) is None or not is_expected(expected, current):
            if key not in self._view.records:
                raise Conflict(key, expected=expected, current=None)
            await self._wait_for_outcome(key, expected)
        revision = self._numbered = self._numbered + 1
        return await self._enqueue(Change(current.key, revision, None, current, 0), None)

    async def compact(self, revision: int) -> None:
        """As `Store.compact`. Takes a while if there is much to forget; writes go on meanwhile."""
        self._check_open()
        revision = min(revision, self._view.revision)
        if revision > self._view.compacted:
            self._view.compacted = revision
            await self._writer.compact(revision)

    async def check_read(self) -> None:
        """As `Store.check_read`."""
        self._check_open()
        self._check_files()
        try:
            await self._history.check()
        except apsw.Error as error:
            raise StoreError(f"{self._path} cannot be read ({error}); check the disk") from error

    async def check_write(self) -> None:
        """As `Store.check_write`. A commit of the last second is proof enough; concurrent checks share one write."""
        self._check_open()
        self._check_files()
        if self._missing_room and not has_room(self._path.parent, self._missing_room):
            # A write of nothing may still find room.
            raise WriteFailed(f"the disk is full, writes have failed; free space on the disk of {self._path.parent}")
        self._missing_room = 0
        if self._loop.time() - self._committed_at < _WRITE_CHECK_SECONDS:
            return
        if self._write_check is None or self._write_check.done():
            self._write_check = self._writer.check()
        await asyncio.shield(self._write_check)
        self._committed_at = self._loop.time()

    async def close(self) -> None:
        """As `Store.close`."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._hand_over()
        if self._directory_watch is not None:
            self._directory_watch.close()  # Closing the file removes its log.
        await self._writer.close()
        self._watchers.close()
        await self._history.close()
        self._lock.release()

    def _check_open(self) -> None:
        if self._closing is not None:
            raise StoreClosed

    async def _past_page(self, prefix: str, start: str, limit: int, revision: int) -> RecordPage:
        view = self._view
        records = [view.records[key] for key in view.select(prefix, start)]
        return await self._history.page(prefix, start, limit, revision=revision, now=view.revision, records=records)

    def _check_writable(self) -> None:
        if self._closing is not None:
            raise StoreClosed
        if self._directory_watch is None:
            self._notice_removal()
        if self._removed is not None:
            raise WriteFailed(f"nothing is written: {self._removed}")

    def _check_files(self) -> None:
        """Raise Removed if a file is not where it was; writes fail until it is back."""
        try:
            self._lock.check()
        except Removed as removed:
            if self._removed is None:
                log.error("no more writes: %s", removed)
            self._removed = removed
            raise
        self._removed = None

    def _notice_removal(self) -> None:
        with suppress(Removed):
            self._check_files()

    def _latest(self, key: str) -> Record | None:
        """Return the record of the key once all queued writes are committed."""
        queued = self._queued.get(key)
        return self._view.records.get(key) if queued is None else queued[1]

    async def _wait_for_outcome(self, key: str, expected: int | None) -> None:
        """Wait for the next commit to succeed or fail. Raise Conflict if the write has lost whatever happens.

        A write that fits what is committed but not what is queued has lost, unless the queued write fails: a
        write is never refused because of one that did not happen.
        """
        committed = self._view.records.get(key)
        if not is_expected(expected, committed):
            raise Conflict(key, expected=expected, current=committed)
        loser: asyncio.Future[None] = self._loop.create_future()
        self._losers.append(loser)
        await loser
        self._check_writable()

    def _enqueue(self, change: Change, record: Record | None) -> asyncio.Future[int]:
        future: asyncio.Future[int] = self._loop.create_future()
        write = (change, record, future)
        self._queued[change.key] = write
        if not self._gathered:
            # After everyone who is ready now has had a turn: their writes go along.
            self._loop.call_soon(self._hand_over)
        self._gathered.append(write)
        return future

    def _hand_over(self) -> None:
        if self._gathered:
            self._writer.submit(self._gathered)
            self._gathered = []

    def _settle(self, writes: Writes) -> None:
        """Durable: show it, hand it to the followers, and only then answer the writers."""
        view, queued = self._view, self._queued
        changes: Batch = []
        for write in writes:
            change, record, _ = write
            if queued.get(change.key) is write:
                del queued[change.key]
            if record is None:
                view.remove(change.key)
            else:
                view.set(record)
            changes.append(change)
        view.revision = changes[-1].revision
        self._committed_at = self._loop.time()
        self._watchers.publish(changes)
        for change, _, future in writes:
            if not future.done():
                future.set_result(change.revision)
        self._release_losers()

    def _fail(self, writes: Writes, error: WriteFailed) -> None:
        """Not durable: forget that it was ever decided. Writes gathered meanwhile build on it and fail too."""
        writes += self._gathered
        self._gathered = []
        self._committed_at = -_WRITE_CHECK_SECONDS  # The next check of readiness writes.
        if isinstance(error.__cause__, Exception) and is_full(error.__cause__):
            self._missing_room = ROOM + 2 * sum(len(change.value or b"") for change, _, _ in writes)
        self._queued.clear()
        for _, _, future in writes:
            if not future.done():
                future.set_exception(WriteFailed(*error.args))  # One each: a raised error gathers its own traceback.
        self._release_losers()

    def _release_losers(self) -> None:
        losers, self._losers = self._losers, []
        for loser in losers:
            if not loser.done():
                loser.set_result(None)


def _unopened(path: Path, error: Exception) -> StoreError:
    is_short = is_full(error) or not has_room(path.parent)
    hint = f"free space on the disk of {path.parent}" if is_short else "check its permissions and the disk"
    return StoreError(f"{path} cannot be opened ({error}); {hint}")


_MOVED_FROM, _MOVED_TO, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x40, 0x80, 0x200, 0x400, 0x800
_EVENTS = _MOVED_FROM | _MOVED_TO | _DELETE | _DELETE_SELF | _MOVE_SELF
_READ_BYTES = 65536


class DirectoryWatch:
    """Calls `changed` on the event loop when a file of the directory, or the directory, was removed or moved."""

    def __init__(self, descriptor: int, changed: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self._read)

    def close(self) -> None:
        """End the calls."""
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)

    def _read(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._descriptor, _READ_BYTES)
        self._changed()


def watch_directory(path: Path, changed: Callable[[], None]) -> DirectoryWatch | None:
    """Watch the directory; None if the operating system cannot."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        return None
    if libc.inotify_add_watch(descriptor, os.fsencode(path), _EVENTS) < 0:
        os.close(descriptor)
        return None
    return DirectoryWatch(descriptor, changed)
