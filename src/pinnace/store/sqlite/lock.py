"""The lock of a database file: one store at a time, and the last acknowledged revision, kept outside of the database.

SQLite starts from whatever part of a write-ahead log is intact and reports nothing about the rest. The revision in the
lock file shows how far the database must reach. It is written through mapped memory: that survives the end of the
process, costs no system call, and does not give up Python's lock.
"""

from __future__ import annotations

import fcntl
import logging
import mmap
import os
import struct
import sys
from pathlib import Path

from pinnace.store.sqlite.file import beside
from pinnace.store.store import Locked, Removed

# The process in text, for people; then the revision, aligned so that one instruction writes it.
_PROCESS_BYTES = 24
_REVISION = struct.Struct("<Q")
_BYTES = _PROCESS_BYTES + _REVISION.size
_LONGEST_COMMAND = 200
_MOST_REVISIONS = 1 << 53

log = logging.getLogger(__name__)


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
