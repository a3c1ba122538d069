"""Snapshots: all records of a store at one revision, in one file that every store can be restored from.

A snapshot is a gzip file of JSON lines: a head, one line per file of the cluster's credentials, one line per record in
the order of revisions, and an end with a checksum. Values are as the store keeps them: encrypted ones stay encrypted.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pinnace.store.store import Damaged, Record, StoreError, TooNew

_FORMAT = "pinnace-snapshot"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """The records of a store, as of `revision`, and files that belong to them."""

    revision: int
    records: list[Record]
    files: Mapping[str, bytes] = field(default_factory=dict)


def write_snapshot(path: Path, snapshot: StoreSnapshot) -> None:
    """Write a file that only its owner may read. Raise StoreError if it exists or cannot be written."""
    draft = path.with_name(f"{path.name}.partial")
    digest = hashlib.sha256()
    try:
        if path.exists():
            raise StoreError(f"{path} exists already; choose another name")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as raw:
            with gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=3, mtime=0) as packed:
                for line in _lines(snapshot):
                    digest.update(line)
                    packed.write(line)
                packed.write(_line({"sha256": digest.hexdigest()}))
            raw.flush()
            os.fsync(raw.fileno())
        draft.rename(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise StoreError(f"{path} cannot be written ({error.strerror}); check the disk and its permissions") from error


def read_snapshot(path: Path) -> StoreSnapshot:
    """Read a snapshot. Raise Damaged if it is not one or not complete, TooNew if a newer release wrote it."""
    digest = hashlib.sha256()
    records: list[Record] = []
    files: dict[str, bytes] = {}
    head: dict[str, int] | None = None
    try:
        with gzip.open(path, "rb") as lines:
            for line in lines:
                document = json.loads(line)
                if head is None:
                    head = _checked_head(path, document)
                elif "sha256" in document:
                    if document["sha256"] != digest.hexdigest() or len(records) != head["count"]:
                        raise ValueError("its checksum is wrong")
                    return StoreSnapshot(head["revision"], records, files)
                elif "file" in document:
                    files[document["file"]] = b64decode(document["value"], validate=True)
                else:
                    value = b64decode(document["value"], validate=True)
                    records.append(Record(document["key"], value, document["revision"], document["created"]))
                digest.update(line)
        raise ValueError("it ends too early")
    except FileNotFoundError:
        raise Damaged(f"there is no snapshot {path}; pinnace snapshot save writes one") from None
    except (OSError, EOFError, ValueError, KeyError, TypeError, zlib.error) as error:
        raise Damaged(f"{path} is not a complete snapshot ({error}); take another one") from error


def _lines(snapshot: StoreSnapshot) -> list[bytes]:
    head = {"format": _FORMAT, "version": _VERSION, "revision": snapshot.revision, "count": len(snapshot.records)}
    files = [_line({"file": name, "value": b64encode(value).decode()}) for name, value in snapshot.files.items()]
    ordered = sorted(snapshot.records, key=lambda record: (record.revision, record.key))
    return [_line(head), *files, *map(_record_line, ordered)]


def _record_line(record: Record) -> bytes:
    value = b64encode(record.value).decode()
    return _line({"key": record.key, "revision": record.revision, "created": record.created, "value": value})


def _line(content: dict[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def _checked_head(path: Path, document: object) -> dict[str, int]:
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise ValueError("it is another kind of file")
    if document["version"] > _VERSION:
        raise TooNew(f"{path} was written by a newer release; upgrade pinnace")
    return {"revision": int(document["revision"]), "count": int(document["count"])}
