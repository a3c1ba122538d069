"""The pragmas of the SQLite file and of the connections to it."""

from __future__ import annotations

from collections.abc import Iterable

import apsw

APPLICATION_ID = 0x70696E6E  # "pinn"
FORMAT = 1
PAGE_BYTES = 4096
_CHECKPOINT_PAGES = 2000

OF_NEW_FILE = (
    f"page_size = {PAGE_BYTES}",
    "auto_vacuum = INCREMENTAL",
    f"application_id = {APPLICATION_ID}",
    f"user_version = {FORMAT}",
)
"""Set before the first table is created."""
OF_WRITER = (
    "synchronous = FULL",
    "secure_delete = ON",  # Compacted values may be secrets: they leave the file, too. Only compaction deletes.
    f"wal_autocheckpoint = {_CHECKPOINT_PAGES}",
    f"journal_size_limit = {2 * _CHECKPOINT_PAGES * PAGE_BYTES}",
)
OF_READER = ("query_only = TRUE",)


def set_pragmas(connection: apsw.Connection, pragmas: Iterable[str]) -> None:
    """Set the pragmas of a connection."""
    for pragma in pragmas:
        connection.execute(f"PRAGMA {pragma}").fetchall()
