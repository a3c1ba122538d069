"""The log file of a container in CRI's format: `TIME STREAM F|P TEXT`, with rotation by size.

The supervisors import this module: keep its imports small.
"""

from __future__ import annotations

import contextlib
import os
import time

MAX_LINE = 16 * 1024
"""Longer lines are cut into parts with the tag P, as containerd does."""

_MANY_LINES = 4096
"""Few programs write so many lines at once: they have sixteen characters or fewer."""
_SECONDS_FOR_LINE = 2e-6


def pause_after(data: bytes) -> float:
    """The seconds after which a supervisor reads more of this output: 0 but for a flood of the shortest lines.

    The log adds a time to each line. A container could make its supervisor use much more of the CPU than its limit, and
    write forty times its output to the disk.
    """
    lines = data.count(b"\n")
    return lines * _SECONDS_FOR_LINE if lines > _MANY_LINES else 0.0


def format_time(nanoseconds: int) -> str:
    """RFC 3339 in UTC with nine digits."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:09d}Z"


class ContainerLog:
    """Appends the output of one container. A full disk loses lines, and never stops the container."""

    def __init__(self, path: str, *, max_bytes: int = 10 << 20, max_files: int = 5) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._rest = {b"stdout": b"", b"stderr": b""}
        self._fd = -1
        self._size = 0
        self._open()

    def write(self, stream: bytes, data: bytes) -> None:
        """Write the complete lines of the data, and keep the rest until its line ends."""
        lines = (self._rest[stream] + data).split(b"\n")
        rest = lines.pop()
        head = format_time(time.time_ns()).encode() + b" " + stream
        out = []
        for line in lines:
            while len(line) > MAX_LINE:
                out.append(b"%b P %b\n" % (head, line[:MAX_LINE]))
                line = line[MAX_LINE:]
            out.append(b"%b F %b\n" % (head, line))
        while len(rest) >= MAX_LINE:
            out.append(b"%b P %b\n" % (head, rest[:MAX_LINE]))
            rest = rest[MAX_LINE:]
        self._rest[stream] = rest
        if out:
            self._append(b"".join(out))

    def end(self, stream: bytes) -> None:
        """Write the last line of a stream, which has no newline."""
        rest = self._rest[stream]
        if rest:
            self._rest[stream] = b""
            self._append(b"%b %b P %b\n" % (format_time(time.time_ns()).encode(), stream, rest))

    def close(self) -> None:
        for stream in self._rest:
            self.end(stream)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _append(self, data: bytes) -> None:
        if self._fd < 0:
            return
        if self._size and self._size + len(data) > self._max_bytes:
            self._rotate()
        try:
            self._size += os.write(self._fd, data)
        except OSError:  # The disk is full, most likely: the next lines may find room again.
            return

    def _open(self) -> None:
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(self._path), mode=0o755, exist_ok=True)
            safely = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # A FIFO would stop the supervisor.
            self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | safely, 0o640)
            self._size = os.fstat(self._fd).st_size

    def _rotate(self) -> None:
        """Shift 0.log to 0.log.1, 0.log.1 to 0.log.2 and so on; the oldest goes."""
        for number in range(self._max_files - 1, 0, -1):
            older = f"{self._path}.{number - 1}" if number > 1 else self._path
            with contextlib.suppress(OSError):
                os.replace(older, f"{self._path}.{number}")
        os.close(self._fd)
        self._fd = -1
        self._open()
