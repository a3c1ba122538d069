"""The audit log: one JSON object per line, appended to a file that is rotated when it is large."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pinnace.process.clock import Clock, SystemClock
from pinnace.process.tasks import Tasks

log = logging.getLogger(__name__)

STANDARD_OUTPUT = Path("-")
_TIME = "%Y-%m-%dT%H-%M-%S.%f"
_DIGITS = 3
"""Digits of the fraction of a second in the name of a rotated file, as in Kubernetes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """When a log is rotated, and how long rotated files are kept."""

    most_bytes: int = 100 * 1024 * 1024
    most_kept: int = 0
    """The number of files to keep; 0 for all."""
    longest: timedelta = timedelta()
    """How long to keep files; 0 for ever."""
    compresses: bool = False


class AuditLog:
    """Writes lines to a file that only its owner can read, or to standard output for `-`, once per turn of the loop."""

    def __init__(self, path: Path, rotation: Rotation | None = None, *, clock: Clock | None = None) -> None:
        """Open the file. Raise OSError if it cannot be written."""
        self._path = path
        self._rotation = rotation or Rotation()
        self._clock = clock or SystemClock()
        self._lines: list[bytes] = []
        self._packing: asyncio.Task[None] | None = None
        self._tasks = Tasks()
        if path == STANDARD_OUTPUT:
            self._file, self._size = os.dup(sys.stdout.fileno()), 0
        else:
            self._file, self._size = self._open()
            self._delete_old()

    def write(self, line: bytes) -> None:
        """Append a line, which ends with a line break. Errors are logged and do not fail the request."""
        if not self._lines:
            asyncio.get_running_loop().call_soon(self._flush)
        self._lines.append(line)

    async def close(self) -> None:
        """Write what is left, and wait for files that are being compressed. A second call does nothing."""
        if self._file >= 0:
            self._flush()
            os.close(self._file)
            self._file = -1
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    def _flush(self) -> None:
        lines, self._lines = self._lines, []
        if self._file < 0 or not lines:
            return
        try:
            size = sum(map(len, lines))
            if self._path == STANDARD_OUTPUT or self._size + size <= self._rotation.most_bytes:
                self._append(b"".join(lines), size)
                return
            for line in lines:  # One by one: no file exceeds the limit, unless a single line does.
                if self._size and self._size + len(line) > self._rotation.most_bytes:
                    self._rotate()
                self._append(line, len(line))
        except OSError as error:
            log.error("audit events are lost: cannot write %s (%s)", self._path, error.strerror)

    def _append(self, data: bytes, size: int) -> None:
        while data:
            data = data[os.write(self._file, data) :]
        self._size += size

    def _open(self) -> tuple[int, int]:
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return file, os.fstat(file).st_size

    def _rotate(self) -> None:
        """Begin a new file. The old one is renamed by the time, as name-2026-01-02T03-04-05.678.log."""
        moment = self._clock.now().astimezone(UTC)
        while True:
            stamp = moment.strftime(_TIME)[: _DIGITS - 6]
            rotated = self._path.with_name(f"{self._path.stem}-{stamp}{self._path.suffix}")
            if not rotated.exists() and not rotated.with_name(f"{rotated.name}.gz").exists():
                break
            moment += timedelta(milliseconds=1)
        os.rename(self._path, rotated)
        os.close(self._file)
        self._file, self._size = self._open()
        self._delete_old()
        if self._rotation.compresses:
            self._compress_later(rotated)

    def _delete_old(self) -> None:
        kept = sorted(self._rotated_files(), reverse=True)
        limit, longest = self._rotation.most_kept, self._rotation.longest
        for index, (moment, path) in enumerate(kept):
            is_too_old = longest and self._clock.now() - moment > longest
            if (limit and index >= limit) or is_too_old:
                path.unlink(missing_ok=True)

    def _rotated_files(self) -> list[tuple[datetime, Path]]:
        """Return the rotated files with the time of their rotation."""
        name = re.compile(
            re.escape(f"{self._path.stem}-") + r"([0-9T.-]{23})" + re.escape(self._path.suffix) + r"(?:\.gz)?"
        )
        files = []
        for path in self._path.absolute().parent.iterdir():
            match = name.fullmatch(path.name)
            if match is not None:
                try:
                    files.append((datetime.strptime(match[1], _TIME).replace(tzinfo=UTC), path))
                except ValueError:
                    continue  # Not a rotated file.
        return files

    def _compress_later(self, path: Path) -> None:
        """Compress a file in a thread, after the previous one."""
        before = self._packing

        async def compress() -> None:
            if before is not None:
                await asyncio.wait((before,))
            await asyncio.to_thread(_compress, path)

        self._packing = self._tasks.start(compress())


def _compress(path: Path) -> None:
    import gzip  # noqa: PLC0415 - rarely used, and not needed at start

    packed = path.with_name(f"{path.name}.gz")
    try:
        descriptor = os.open(packed, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with path.open("rb") as source, os.fdopen(descriptor, "wb") as file, gzip.open(file, "wb") as target:
            shutil.copyfileobj(source, target)
        path.unlink()
    except OSError as error:
        log.error("cannot compress the audit log %s (%s)", path, error.strerror)
