"""Notice when a file in one of some directories is saved, by notifications of the kernel.

Linux has inotify, which Python reaches by ctypes; macOS and the BSDs have kqueue, which is in the standard library. On
Windows the files are checked once a second. dnotify, which is in the standard library, reports by a signal: two users
in one process would take it from each other.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable
from pathlib import Path

_LOOK_SECONDS = 1.0
_CHANGES = 0x002 | 0x008 | 0x080 | 0x100 | 0x200
"""Writes, files closed after writing, files moved into the directory, created and deleted (linux/inotify.h)."""


class Saves:
    """Notifications of saved files. Use it within `with`, where an event loop runs."""

    def __init__(self) -> None:
        self._happened = asyncio.Event()
        self._open: dict[Path, int] = {}
        self._loop = asyncio.get_running_loop()
        self._looking: asyncio.TimerHandle | None = None

    def __enter__(self) -> Saves:
        self._begin()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end()
        self._open.clear()

    def watch(self, files: Iterable[Path]) -> None:
        """Also watch the directories of these files."""
        for directory in {file.absolute().parent for file in files}:
            if directory not in self._open and directory.is_dir():
                self._open[directory] = self._listen(directory)

    async def next(self) -> None:
        """Return when something was saved since the last call. The caller finds out what it was."""
        await self._happened.wait()
        self._happened.clear()

    if sys.platform == "linux":

        def _begin(self) -> None:
            import ctypes  # noqa: PLC0415 - few processes watch files.

            self._libc = ctypes.CDLL(None, use_errno=True)
            self._queue = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
            self._loop.add_reader(self._queue, self._receive)

        def _listen(self, directory: Path) -> int:
            return self._checked(self._libc.inotify_add_watch(self._queue, os.fsencode(directory), _CHANGES))

        def _receive(self) -> None:
            os.read(self._queue, 65536)
            self._happened.set()

        def _end(self) -> None:
            self._loop.remove_reader(self._queue)
            os.close(self._queue)

        def _checked(self, result: int) -> int:
            import ctypes  # noqa: PLC0415

            if result < 0:
                number = ctypes.get_errno()
                raise OSError(number, f"files cannot be watched: {os.strerror(number)}")
            return result

    elif sys.platform == "darwin":

        def _begin(self) -> None:
            import select  # noqa: PLC0415 - not on every platform

            self._queue = select.kqueue()
            self._loop.add_reader(self._queue.fileno(), self._receive)

        def _listen(self, directory: Path) -> int:
            import select  # noqa: PLC0415 - not on every platform

            descriptor = os.open(directory, os.O_RDONLY)
            wanted = select.KQ_NOTE_WRITE | select.KQ_NOTE_EXTEND | select.KQ_NOTE_RENAME | select.KQ_NOTE_ATTRIB
            flags = select.KQ_EV_ADD | select.KQ_EV_CLEAR
            self._queue.control([select.kevent(descriptor, select.KQ_FILTER_VNODE, flags, wanted)], 0)
            return descriptor

        def _receive(self) -> None:
            self._queue.control(None, 16, 0)
            self._happened.set()

        def _end(self) -> None:
            self._loop.remove_reader(self._queue.fileno())
            self._queue.close()
            for descriptor in self._open.values():
                os.close(descriptor)

    else:

        def _begin(self) -> None:
            self._looking = self._loop.call_later(_LOOK_SECONDS, self._look)

        def _look(self) -> None:
            self._happened.set()
            self._begin()

        def _listen(self, directory: Path) -> int:
            """Do nothing: the timer checks all directories."""
            return -1

        def _end(self) -> None:
            if self._looking is not None:
                self._looking.cancel()
