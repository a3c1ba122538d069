"""Tells of connections that were reset, whatever is left to be read of them.

uvloop tells of a reset once, together with what came before it, and then says no more about that connection
(libuv ends the watch of a descriptor that has failed). Who reads one record at a time would have to try another read
after each to learn whether that was all. The kernel tells as well, in a second set of descriptors that knows of
failures only: it costs one call for each connection and nothing for a request.
"""

from __future__ import annotations

import asyncio
import select
import sys
from collections.abc import Callable


class Resets:
    """Knows the connections of one loop. A descriptor that is closed is forgotten by the kernel, too."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._listeners: dict[int, Callable[[], None]] = {}
        self._is_over = False
        # Elsewhere loops are told again and again, as long as there is something to read.
        self._failed = select.epoll() if sys.platform == "linux" else None
        if self._failed is not None:
            loop.add_reader(self._failed.fileno(), self._tell)

    def listen(self, descriptor: int, listener: Callable[[], None]) -> None:
        """The listener is called once, when the other side has reset the connection or both have left it."""
        if self._failed is not None:
            self._failed.register(descriptor, select.EPOLLET)  # Of failures it tells unasked.
            self._listeners[descriptor] = listener

    def forget(self, descriptor: int) -> None:
        """Before the descriptor is closed."""
        self._listeners.pop(descriptor, None)
        self._end_if_over()

    def close(self) -> None:
        """No more connections come. Those that are open are told of until the last is forgotten."""
        self._is_over = True
        self._end_if_over()

    def _end_if_over(self) -> None:
        if self._is_over and not self._listeners and self._failed is not None:
            self._loop.remove_reader(self._failed.fileno())
            self._failed.close()
            self._failed = None

    def _tell(self) -> None:
        assert self._failed is not None, "who is called is registered"
        for descriptor, _ in self._failed.poll(0):
            listener = self._listeners.pop(descriptor, None)
            if listener is not None:
                listener()
        self._end_if_over()
