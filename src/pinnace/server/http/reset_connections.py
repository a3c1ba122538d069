"""Notices connections that the client has reset, even while unread data is left.

uvloop reports a reset once, together with the data before it, and nothing more about that connection (libuv ends the
watch of a failed descriptor). A reader of one TLS record at a time would have to try another read after each. A second
epoll set, for failures only, reports it too: it costs one call per connection and nothing per request.
"""

from __future__ import annotations

import asyncio
import select
import sys
from collections.abc import Callable


class Resets:
    """The connections of one loop. The kernel removes closed descriptors itself."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._listeners: dict[int, Callable[[], None]] = {}
        self._is_over = False
        # On other systems the loop reports a reset as long as data is unread.
        self._failed = select.epoll() if sys.platform == "linux" else None
        if self._failed is not None:
            loop.add_reader(self._failed.fileno(), self._notify)

    def listen(self, descriptor: int, listener: Callable[[], None]) -> None:
        """Call the listener once, when the client has reset the connection or both sides have closed it."""
        if self._failed is not None:
            self._failed.register(descriptor, select.EPOLLET)  # Failures are always reported.
            self._listeners[descriptor] = listener

    def forget(self, descriptor: int) -> None:
        """Remove a descriptor. Call it before the descriptor is closed."""
        self._listeners.pop(descriptor, None)
        self._end_if_over()

    def close(self) -> None:
        """Take no more connections. Open ones are watched until the last is forgotten."""
        self._is_over = True
        self._end_if_over()

    def _end_if_over(self) -> None:
        if self._is_over and not self._listeners and self._failed is not None:
            self._loop.remove_reader(self._failed.fileno())
            self._failed.close()
            self._failed = None

    def _notify(self) -> None:
        assert self._failed is not None, "expected an open epoll set: its reader is removed when it closes"
        for descriptor, _ in self._failed.poll(0):
            listener = self._listeners.pop(descriptor, None)
            if listener is not None:
                listener()
        self._end_if_over()
