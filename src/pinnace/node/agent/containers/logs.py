"""Reads the log files of containers: tail, since, timestamps, limits, and new lines as they come."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from pinnace.model.node_connections import ContainerLogOptions
from pinnace.node.agent.containers.pod_files import open_regular
from pinnace.process.clock import AlarmClock, later, to_rfc3339_micro
from pinnace.process.work_slices import Turns

_CHUNK = 1 << 18
_POLL_SECONDS = 0.1
_MAX_ROTATED = 20
_BATCH = 500
"""The lines that are handled before the next look at the time."""


async def read_logs(
    path: Path, options: ContainerLogOptions, clock: AlarmClock, *, is_running: Callable[[], Awaitable[bool]]
) -> AsyncIterator[bytes]:
    """Yield the lines of a log file and of its rotated predecessors, and further ones while the container runs."""
    formatter = _Formatter(options, clock.now())
    reader = _Reader(path)
    old: Iterable[bytes] = reader.old_lines()
    if options.tail_lines is not None:
        last: deque[bytes] = deque(maxlen=options.tail_lines)
        async for lines in _in_turns(old):
            last.extend(lines)
        old = last
    async for lines in _in_turns(old):
        for data in formatter.format_all(lines):
            yield data
        if formatter.is_full:
            return
    while options.follow and not formatter.is_full:
        was_running = await is_running()
        has_new = False
        async for lines in _in_turns(reader.new_lines()):
            has_new = True
            for data in formatter.format_all(lines):
                yield data
        if not has_new:
            if not was_running:
                return
            await clock.sleep(_POLL_SECONDS)


async def _in_turns(lines: Iterable[bytes]) -> AsyncIterator[Sequence[bytes]]:
    """Yield lines in batches with turns of the event loop between them: a container writes as many as it likes."""
    turns = Turns()
    rest = iter(lines)
    while batch := list(itertools.islice(rest, _BATCH)):
        yield batch
        await turns.pause()


class _Reader:
    """The lines of a file that grows, and is renamed when it has become too large."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rest = b""
        self._file = _open(path)
        self._rotated = _open_rotated(path, os.fstat(self._file.fileno()).st_ino)

    def old_lines(self) -> Iterator[bytes]:
        while self._rotated:
            with self._rotated.pop() as file:
                yield from file
        yield from self.new_lines()

    def new_lines(self) -> Iterator[bytes]:
        while True:
            data = self._file.read(_CHUNK)
            if not data:
                if not self._reopen():
                    return
                continue
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                yield line + b"\n"

    def _reopen(self) -> bool:
        """Go on with the new file after a rotation. Return False if there was none."""
        try:
            if self._path.lstat().st_ino == os.fstat(self._file.fileno()).st_ino:
                return False
            fresh = _open(self._path)
        except OSError:
            return False
        self._file.close()
        self._file = fresh
        return True


def _open_rotated(path: Path, newest: int) -> list[BinaryIO]:
    """Open the predecessors of a log, the newest first: a rotation while they are read changes nothing then.

    One between two opens makes a file appear again under the next name. `newest` is the inode of the log itself.
    """
    files, seen = list[BinaryIO](), {newest}
    for number in range(1, _MAX_ROTATED + 1):
        with contextlib.suppress(FileNotFoundError):
            file = _open(Path(f"{path}.{number}"))
            inode = os.fstat(file.fileno()).st_ino
            if inode in seen:
                file.close()
            else:
                seen.add(inode)
                files.append(file)
    return files


def _open(path: Path) -> BinaryIO:
    """Open a file in the directory of a container, which is in that of the pod's logs. No link is followed in them."""
    return open_regular(path.parents[1], f"{path.parent.name}/{path.name}")


class _Formatter:
    def __init__(self, options: ContainerLogOptions, now: datetime) -> None:
        self._with_times = options.timestamps
        self._left = options.limit_bytes
        self._since = options.since_time
        if options.since_seconds is not None:
            self._since = to_rfc3339_micro(later(now, -options.since_seconds))

    @property
    def is_full(self) -> bool:
        return self._left is not None and self._left <= 0

    def format_all(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Format lines until the limit is reached."""
        for line in lines:
            if self.is_full:
                return
            data = self.format(line)
            if data:
                yield data

    def format(self, line: bytes) -> bytes:
        """Return the text of a line without its prefix; empty if it is too old."""
        parts = line.rstrip(b"\n").split(b" ", 3)
        if len(parts) != 4:
            return b""
        if self._since and parts[0] < self._since.encode()[:19]:
            return b""
        text = parts[3] + (b"\n" if parts[2] == b"F" else b"")
        if self._with_times:
            text = parts[0] + b" " + text
        if self._left is not None:
            text = text[: self._left]
            self._left -= len(text)
        return text


def text_of_lines(lines: Iterable[bytes]) -> bytes:
    """Return the output in the lines of a log file, without their times and streams."""
    parts = [line.rstrip(b"\n").split(b" ", 3) for line in lines]
    return b"".join(part[3] + (b"\n" if part[2] == b"F" else b"") for part in parts if len(part) == 4)
