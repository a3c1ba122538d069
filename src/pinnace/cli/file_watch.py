"""Notice when a file in one of some directories is saved, by notifications of the kernel.

Linux sends a signal (dnotify, in Python's fcntl), macOS and the BSDs have kqueue; both are in the standard library.
inotify would need a package or ctypes. On Windows, which has neither, the files are checked once a second.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

_LOOK_SECONDS = 1.0


class Saves:
    """Notifications of saved files. Use it within `with`, in the main thread, where signals arrive."""

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
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()

    def watch(self, files: Iterable[Path]) -> None:
        """Also watch the directories of these files."""
        for directory in {file.parent for file in files}:
            if directory not in self._open and directory.is_dir():
                self._open[directory] = os.open(directory, os.O_RDONLY)
                self._listen(self._open[directory])

    async def next(self) -> None:
        """Return when something was saved since the last call. The caller finds out what it was."""
        await self._happened.wait()
        self._happened.clear()

    if sys.platform == "linux":

        def _begin(self) -> None:
            self._loop.add_signal_handler(signal.SIGIO, self._happened.set)

        def _listen(self, descriptor: int) -> None:
            import fcntl  # noqa: PLC0415 - not on every platform

            kinds = fcntl.DN_MODIFY | fcntl.DN_CREATE | fcntl.DN_RENAME | fcntl.DN_DELETE
            fcntl.fcntl(descriptor, fcntl.F_NOTIFY, kinds | fcntl.DN_MULTISHOT)

        def _end(self) -> None:
            for directory in list(self._open):  # Closed first: a signal without a handler would end the process.
                os.close(self._open.pop(directory))
            self._loop.remove_signal_handler(signal.SIGIO)
            signal.signal(signal.SIGIO, signal.SIG_IGN)

    elif sys.platform == "darwin":

        def _begin(self) -> None:
            import select  # noqa: PLC0415 - not on every platform

            self._queue = select.kqueue()
            self._loop.add_reader(self._queue.fileno(), self._receive)

        def _listen(self, descriptor: int) -> None:
            import select  # noqa: PLC0415 - not on every platform

            wanted = select.KQ_NOTE_WRITE | select.KQ_NOTE_EXTEND | select.KQ_NOTE_RENAME | select.KQ_NOTE_ATTRIB
            flags = select.KQ_EV_ADD | select.KQ_EV_CLEAR
            self._queue.control([select.kevent(descriptor, select.KQ_FILTER_VNODE, flags, wanted)], 0)

        def _receive(self) -> None:
            self._queue.control(None, 16, 0)
            self._happened.set()

        def _end(self) -> None:
            self._loop.remove_reader(self._queue.fileno())
            self._queue.close()

    else:

        def _begin(self) -> None:
            self._looking = self._loop.call_later(_LOOK_SECONDS, self._look)

        def _look(self) -> None:
            self._happened.set()
            self._begin()

        def _listen(self, descriptor: int) -> None:
            """Do nothing: the timer checks all directories."""

        def _end(self) -> None:
            if self._looking is not None:
                self._looking.cancel()
