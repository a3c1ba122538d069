"""Snapshots of the SQLite file: read while a server writes it, and made anew from one."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import apsw

from pinnace.store.snapshot import StoreSnapshot
from pinnace.store.sqlite.file import beside, check_and_read, create_file, load
from pinnace.store.sqlite.writer import checksum
from pinnace.store.store import StoreError


def read_file(path: Path) -> StoreSnapshot:
    """Read all records at one moment, also while a server has the file open. Raise a StoreError."""
    if not path.exists():
        raise StoreError(f"{path} does not exist; name the data directory of a cluster with --data-dir")
    try:
        if beside(path, "-shm").exists():  # A server has it open, or was killed.
            flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
            connection = apsw.Connection(f"file:{quote(str(path))}?mode=ro", flags=flags)
            try:
                connection.set_busy_timeout(5000)
                connection.execute("BEGIN")  # One state for all queries.
                contents = check_and_read(connection)
            finally:
                connection.close()
        else:
            contents = load(path, acknowledged=0)
    except apsw.Error as error:
        raise StoreError(f"{path} cannot be read ({error}); check the disk") from error
    return StoreSnapshot(contents.revision, list(contents.records.values()))


def restore_file(path: Path, snapshot: StoreSnapshot, *, base: int) -> int:
    """Make a file with the records of a snapshot at revisions above `base`; history begins after them.

    Return the last revision. Raise StoreError if the file exists.
    """
    if path.exists():
        raise StoreError(f"{path} exists already; restore into an empty data directory")
    draft = beside(path, "-restored")
    for leftover in (draft, beside(draft, "-wal"), beside(draft, "-shm")):
        leftover.unlink(missing_ok=True)
    create_file(draft)
    connection = apsw.Connection(str(draft))
    try:
        with connection:
            revision = base
            for record in sorted(snapshot.records, key=lambda record: (record.revision, record.key)):
                revision += 1
                check = checksum(revision, record.key, revision, None, record.value)
                connection.execute(
                    "INSERT INTO changes (revision, key, created, previous, checksum, value) VALUES (?,?,?,?,?,?)",
                    (revision, record.key, revision, None, check, record.value),
                )
            connection.execute("UPDATE compaction SET revision = ?", (revision,))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except apsw.Error as error:
        raise StoreError(f"{draft} cannot be written ({error}); check the disk") from error
    finally:
        connection.close()
    draft.rename(path)
    return revision
