"""Copies the bytes between two connections, in both directions, until both have ended.

It works on sockets and the event loop's callbacks alone: a task and two transports for each connection would cost four
times as much as the copying of a short one.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable

BUFFER_BYTES = 256 * 1024
_RESET = struct.pack("ii", 1, 0)


class Relay:
    """Two connected sockets that do not block. It closes them when both directions have ended or one is lost."""

    __slots__ = ("_buffer", "_has_ended", "_is_closed", "_loop", "_on_end", "_pair", "_unsent")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        first: socket.socket,
        second: socket.socket,
        *,
        buffer: memoryview,
        on_end: Callable[[Relay], None],
    ) -> None:
        """`buffer` may be shared by all relays of an event loop."""
        self._loop = loop
        self._pair = (first, second)
        self._buffer = buffer
        self._on_end = on_end
        self._unsent = [b"", b""]
        self._has_ended = [False, False]
        self._is_closed = False
        loop.add_reader(first.fileno(), self._copy, 0)
        loop.add_reader(second.fileno(), self._copy, 1)

    def close(self, *, is_lost: bool = False) -> None:
        """Close both connections; their peers see a reset if one of them was lost."""
        if self._is_closed:
            return
        self._is_closed = True
        for side, end in enumerate(self._pair):
            self._loop.remove_reader(end.fileno())
            if self._unsent[1 - side]:
                self._loop.remove_writer(end.fileno())
            if is_lost:
                reset(end)
            else:
                end.close()
        self._on_end(self)

    def _copy(self, side: int) -> None:
        """Send what one side has received to the other."""
        source, target = self._pair[side], self._pair[1 - side]
        try:
            size = source.recv_into(self._buffer)
            if not size:
                self._end(side)
                return
            try:
                sent = target.send(self._buffer[:size])
            except BlockingIOError:
                sent = 0
        except BlockingIOError:
            return
        except OSError:
            self.close(is_lost=True)
            return
        if sent < size:
            self._unsent[side] = bytes(self._buffer[sent:size])
            self._loop.remove_reader(source.fileno())
            self._loop.add_writer(target.fileno(), self._send_rest, side)

    def _send_rest(self, side: int) -> None:
        target = self._pair[1 - side]
        try:
            sent = target.send(self._unsent[side])
        except BlockingIOError:
            return
        except OSError:
            self.close(is_lost=True)
            return
        self._unsent[side] = self._unsent[side][sent:]
        if not self._unsent[side]:
            self._loop.remove_writer(target.fileno())
            self._loop.add_reader(self._pair[side].fileno(), self._copy, side)

    def _end(self, side: int) -> None:
        """End the other side's input. Its own output may go on."""
        self._has_ended[side] = True
        if all(self._has_ended):
            self.close()
            return
        self._loop.remove_reader(self._pair[side].fileno())
        self._pair[1 - side].shutdown(socket.SHUT_WR)


def reset(connection: socket.socket) -> None:
    """Close a connection so that its peer sees a reset instead of an end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    connection.close()
