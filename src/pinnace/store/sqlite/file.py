"""The file of the SQLite store: its format, making one, and refusing what is not one without touching it.

One table is the log of changes. A change points at the change that it replaced, so what keys hold now is every change
that has a value and that no other points at; there is no index to keep, and a write only ever appends. That matters:
an index by key would dirty a page of its own for almost every write.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast
from urllib.parse import quote
from zlib import crc32

import apsw

from pinnace.store.sqlite.pragmas import APPLICATION_ID, FORMAT, OF_NEW_FILE
from pinnace.store.store import Damaged, LostWrites, Record, TooNew

T = TypeVar("T")

ROOM = 1 << 20
"""A disk with less room is full: the log, its index and the database grow in steps."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
_MOST_MAPPED = 1 << 40
_MAGIC = b"SQLite format 3\x00"
_HEADER_BYTES = 100
_SCHEMA = f"""
{"".join(f"PRAGMA {pragma};" for pragma in OF_NEW_FILE)}
CREATE TABLE changes (
    revision INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    created INTEGER NOT NULL,
    previous INTEGER,
    checksum INTEGER NOT NULL,
    value BLOB
) STRICT;
CREATE TABLE compaction (revision INTEGER NOT NULL) STRICT;
INSERT INTO compaction VALUES (0);
PRAGMA journal_mode = WAL;
"""
_CURRENT = """
SELECT revision, key, created, previous, checksum, value FROM changes
WHERE value IS NOT NULL AND revision NOT IN (SELECT previous FROM changes WHERE previous IS NOT NULL)
"""
_STRAY = """
SELECT change.revision FROM changes AS change LEFT JOIN changes AS previous ON previous.revision = change.previous
WHERE change.revision > ? AND change.previous IS NOT NULL AND previous.key IS NOT change.key LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Contents:
    """All that a file says about now."""

    records: dict[str, Record]
    revision: int
    compacted: int


def load(path: Path, *, acknowledged: int) -> Contents:
    """Read a file, making it first if there is none. `Damaged` or `TooNew` leave everything as it was.

    Raise LostWrites if the file does not hold the writes up to the revision `acknowledged`. The caller holds the lock.
    """
    if not path.exists() or (path.is_file() and path.stat().st_size == 0):
        if _has_wal(path):
            raise Damaged(
                f"{path} is missing or empty, but {beside(path, '-wal').name} holds writes that belong to it; "
                "put the file back, or move both away to start anew"
            )
        if acknowledged:
            raise LostWrites(path, reached=0, acknowledged=acknowledged, reason=f"{path.name} is missing or empty")
        create_file(path)
    _check_header(path)
    has_wal = _has_wal(path)
    contents = _read(path)
    if contents.revision < acknowledged:
        wal = beside(path, "-wal").name
        reason = f"{wal} is damaged or incomplete" if has_wal else f"{wal} is missing, or {path.name} is an older copy"
        raise LostWrites(path, reached=contents.revision, acknowledged=acknowledged, reason=reason)
    return contents


def beside(path: Path, suffix: str) -> Path:
    """Return the file that goes with `path` under the same name plus `suffix`."""
    return path.with_name(path.name + suffix)


def is_full(error: Exception) -> bool:
    """Whether this says that the disk has no room, or that the user may use no more of it."""
    return isinstance(error, apsw.FullError) or (isinstance(error, OSError) and error.errno in _FULL)


def has_room(path: Path, size: int = ROOM) -> bool:
    """Whether the disk of a directory has room for so many bytes; True if that cannot be known."""
    try:
        disk = os.statvfs(path)
    except OSError:
        return True
    return disk.f_bavail * disk.f_frsize >= size


def create_file(path: Path) -> None:
    # Made under another name, then renamed: under its own name a file is complete or absent, whenever the power fails.
    draft = beside(path, "-new")
    for leftover in (draft, beside(draft, "-wal"), beside(draft, "-shm"), beside(draft, "-journal")):
        leftover.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)  # Secrets are kept in it.
    connection = apsw.Connection(str(draft))
    try:
        for _ in connection.execute(_SCHEMA):
            pass
    finally:
        connection.close()
    os.fsync(descriptor)
    os.close(descriptor)
    draft.rename(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    os.fsync(directory)
    os.close(directory)


def _check_header(path: Path) -> None:
    # Read as plain bytes: SQLite may write when it opens a file, and this one may belong to another program.
    if not path.is_file():
        raise Damaged(f"{path} should be a file and is not; choose another path")
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        raise Damaged(
            f"{path} should be a pinnace database and is no SQLite file at all (it begins with {header[:16]!r}); "
            "restore it from a backup, or choose another --data-dir"
        )
    version: int = struct.unpack_from(">I", header, 60)[0]
    application: int = struct.unpack_from(">I", header, 68)[0]
    if application != APPLICATION_ID:
        raise Damaged(
            f"{path} should be a pinnace database (application id {APPLICATION_ID:#x}) and is the SQLite database of "
            f"something else (application id {application:#x}); choose another --data-dir"
        )
    if version > FORMAT:
        raise TooNew(
            f"{path} has format {version} and this release reads up to format {FORMAT}; upgrade pinnace, "
            "or restore a backup made by this release"
        )
    if version < 1:
        raise Damaged(f"{path} should have format 1 to {FORMAT} and has {version}; restore it from a backup")


def _has_wal(path: Path) -> bool:
    wal = beside(path, "-wal")
    return wal.exists() and wal.stat().st_size > 0


def _read(path: Path) -> Contents:
    # Without a log left by a crash the file can be read as it lies, and no file appears beside it.
    shm = beside(path, "-shm")
    shm_existed = shm.exists()
    try:
        _read_through(path)
        address = f"file:{quote(str(path))}"
        if _has_wal(path):  # Only one connection can recover the log.
            return _with_connection(f"{address}?mode=ro", check_and_read)
        return _read_and_check(f"{address}?immutable=1")
    except (apsw.Error, UnicodeDecodeError, Damaged) as error:
        if not shm_existed:
            shm.unlink(missing_ok=True)
        if not _is_damage(error):
            raise
        raise Damaged(
            f"{path} should be an intact pinnace database and is damaged ({error}); it was not changed: "
            "restore it from a backup, or move it away to start anew"
        ) from error


def _is_damage(error: Exception) -> bool:
    """Whether this says that the file is not intact, and not merely that it could not be read."""
    if isinstance(error, apsw.IOError):
        return getattr(error, "extendedresult", None) == apsw.SQLITE_IOERR_SHORT_READ
    return isinstance(error, apsw.CorruptError | apsw.NotADBError | apsw.SQLError | UnicodeDecodeError | Damaged)


def _read_and_check(address: str) -> Contents:
    """Read the contents while another thread lets SQLite check the pages."""
    with ThreadPoolExecutor(1) as thread:
        checked = thread.submit(_with_connection, address, check_pages)
        try:
            contents = _with_connection(address, read_contents)
        except (apsw.Error, UnicodeDecodeError, Damaged):
            checked.result()  # The check of the pages names damage best.
            raise
        checked.result()
        return contents


def _read_through(path: Path) -> None:
    """Read every byte once. A disk that cannot be read is an OSError here, and a signal in a mapped file."""
    buffer = bytearray(1 << 20)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def _with_connection(address: str, read: Callable[[apsw.Connection], T]) -> T:
    connection = apsw.Connection(address, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    try:
        connection.pragma("mmap_size", _MOST_MAPPED)  # A call for each page takes longer than reading the rows.
        return read(connection)
    finally:
        connection.close()


def check_pages(connection: apsw.Connection) -> None:
    """Raise Damaged if the pages of a file do not fit together."""
    outcome = connection.execute("PRAGMA quick_check(1)").get
    if outcome != "ok":
        raise Damaged(str(outcome).replace("\n", " "))


def check_and_read(connection: apsw.Connection) -> Contents:
    """Read the contents of a file whose pages fit together. Raise Damaged."""
    check_pages(connection)
    return read_contents(connection)


def read_contents(connection: apsw.Connection) -> Contents:
    """Read all that a file says about now. Raise Damaged if it contradicts itself."""
    last, compacted = cast(
        tuple[int | None, int],
        connection.execute("SELECT (SELECT max(revision) FROM changes), (SELECT revision FROM compaction)").get,
    )
    stray = connection.execute(_STRAY, (compacted,)).get
    if stray is not None:
        raise Damaged(f"the change at revision {stray} replaces something that is not there")
    records: dict[str, Record] = {}
    rows = cast(Iterator[tuple[int, str, int, int | None, int, bytes]], connection.execute(_CURRENT))
    for revision, key, created, previous, expected, value in rows:
        # As `checksum`, without its call for each of many records.
        if crc32(value, crc32(f"{revision} {created} {previous} {key}".encode())) != expected:
            raise Damaged(f"the value of {key!r} at revision {revision} fails its checksum")
        if key in records:
            raise Damaged(f"{key!r} has two current values, at revisions {records[key].revision} and {revision}")
        records[key] = Record(key, value, revision, created)
    return Contents(records, max(last or 0, compacted), compacted)
