"""The audit log: one JSON object per line, appended to a file that is put aside when it has become large."""

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

from pinnace.model.clock import Clock, SystemClock

log = logging.getLogger(__name__)

STANDARD_OUTPUT = Path("-")
_TIME = "%Y-%m-%dT%H-%M-%S.%f"
_DIGITS = 3
"""Of the fraction of a second in the name of a file that was put aside, as those who read such logs expect it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """When a log is put aside, and for how long it is kept."""

    most_bytes: int = 100 * 1024 * 1024
    most_kept: int = 0
    """How many are kept; 0 for all."""
    longest: timedelta = timedelta()
    """How long they are kept; 0 for ever."""
    compresses: bool = False


class AuditLog:
    """Lines to a file that only its owner can read, or to standard output for `-`. Those of one turn go together."""

    def __init__(self, path: Path, rotation: Rotation | None = None, *, clock: Clock | None = None) -> None:
        """Raises OSError if the file cannot be written."""
        self._path = path
        self._rotation = rotation or Rotation()
        self._clock = clock or SystemClock()
        self._lines: list[bytes] = []
        self._packing: asyncio.Future[None] | None = None
        if path == STANDARD_OUTPUT:
            self._file, self._size = os.dup(sys.stdout.fileno()), 0
        else:
            self._file, self._size = self._open()
            self._forget_old()

    def write(self, line: bytes) -> None:
        """Append a line, which has its line break. Trouble is logged: the request has happened all the same."""
        if not self._lines:
            asyncio.get_running_loop().call_soon(self._flush)
        self._lines.append(line)

    async def close(self) -> None:
        """Write what is left. Closing twice is harmless."""
        if self._file >= 0:
            self._flush()
            os.close(self._file)
            self._file = -1
        if self._packing is not None:
            await self._packing

    def _flush(self) -> None:
        lines, self._lines = self._lines, []
        if self._file < 0 or not lines:
            return
        try:
            size = sum(map(len, lines))
            if self._path == STANDARD_OUTPUT or self._size + size <= self._rotation.most_bytes:
                self._append(b"".join(lines), size)
                return
            for line in lines:  # One by one: no file is larger than it may be, unless a single line is.
                if self._size and self._size + len(line) > self._rotation.most_bytes:
                    self._put_aside()
                self._append(line, len(line))
        except OSError as error:
            log.error("audit events are lost: %s cannot be written (%s)", self._path, error.strerror)

    def _append(self, data: bytes, size: int) -> None:
        while data:
            data = data[os.write(self._file, data) :]
        self._size += size

    def _open(self) -> tuple[int, int]:
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return file, os.fstat(file).st_size

    def _put_aside(self) -> None:
        """Begin a new file. The old one is called by the time, as name-2026-01-02T03-04-05.678.log."""
        moment = self._clock.now().astimezone(UTC)
        while True:
            stamp = moment.strftime(_TIME)[: _DIGITS - 6]
            aside = self._path.with_name(f"{self._path.stem}-{stamp}{self._path.suffix}")
            if not aside.exists() and not aside.with_name(f"{aside.name}.gz").exists():
                break
            moment += timedelta(milliseconds=1)
        os.rename(self._path, aside)
        os.close(self._file)
        self._file, self._size = self._open()
        self._forget_old()
        if self._rotation.compresses:
            self._pack(aside)

    def _forget_old(self) -> None:
        kept = sorted(self._aside(), reverse=True)
        limit, longest = self._rotation.most_kept, self._rotation.longest
        for index, (moment, path) in enumerate(kept):
            is_too_old = longest and self._clock.now() - moment > longest
            if (limit and index >= limit) or is_too_old:
                path.unlink(missing_ok=True)

    def _aside(self) -> list[tuple[datetime, Path]]:
        """The files that were put aside, with when that was."""
        name = re.compile(
            re.escape(f"{self._path.stem}-") + r"([0-9T.-]{23})" + re.escape(self._path.suffix) + r"(?:\.gz)?"
        )
        found = []
        for path in self._path.absolute().parent.iterdir():
            match = name.fullmatch(path.name)
            if match is not None:
                try:
                    found.append((datetime.strptime(match[1], _TIME).replace(tzinfo=UTC), path))
                except ValueError:
                    continue  # Somebody else's.
        return found

    def _pack(self, path: Path) -> None:
        """Compression takes long: in a thread, one file after another."""
        before = self._packing

        async def packed() -> None:
            if before is not None:
                await before
            await asyncio.to_thread(_compress, path)

        self._packing = asyncio.ensure_future(packed())


def _compress(path: Path) -> None:
    import gzip  # noqa: PLC0415 - few ask for it, and a cluster starts without

    packed = path.with_name(f"{path.name}.gz")
    try:
        descriptor = os.open(packed, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with path.open("rb") as source, os.fdopen(descriptor, "wb") as file, gzip.open(file, "wb") as target:
            shutil.copyfileobj(source, target)
        path.unlink()
    except OSError as error:
        log.error("the audit log %s stays as it is: it cannot be compressed (%s)", path, error.strerror)
