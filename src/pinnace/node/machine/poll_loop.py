"""The event loop of a small process: it calls back when its files can be read or written, and nothing else.

The fork server and the supervisors import this module: keep its imports small.
"""

from __future__ import annotations

import select
from collections.abc import Callable


class PollLoop:
    """The methods of asyncio's loop that concern files. A file has one callback: for its input, or for its output."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._callbacks: dict[int, Callable[[], object]] = {}

    def add_reader(self, fd: int, callback: Callable[[], object]) -> None:
        self._callbacks[fd] = callback
        self._poll.register(fd, select.EPOLLIN)

    def add_writer(self, fd: int, callback: Callable[[], object]) -> None:
        self._callbacks[fd] = callback
        self._poll.register(fd, select.EPOLLOUT)

    def remove_reader(self, fd: int) -> None:
        """Forget a file, before it is closed."""
        if self._callbacks.pop(fd, None) is not None:
            self._poll.unregister(fd)

    remove_writer = remove_reader

    def __contains__(self, fd: int) -> bool:
        return fd in self._callbacks

    def turn(self, seconds: float | None = None) -> None:
        """Wait until there is something to do, at most this long, and do it."""
        for fd, _ in self._poll.poll(seconds):
            callback = self._callbacks.get(fd)
            if callback is not None:  # An earlier callback may have removed it.
                callback()

    def close(self) -> None:
        """Forget all files. In the child of a fork this leaves them to the loop of its parent."""
        self._callbacks = {}
        self._poll.close()


def has_input(fd: int) -> bool:
    """Whether a file can be read without waiting."""
    readable = select.poll()
    readable.register(fd, select.POLLIN)
    return bool(readable.poll(0))
