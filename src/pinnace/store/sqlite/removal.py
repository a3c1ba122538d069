"""Notice at once that a file was removed from a directory, or the directory itself, at no cost for writes.

A system call per commit would cost a lone writer several percent. Linux reports removals through inotify, for which
Python has no module.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

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
