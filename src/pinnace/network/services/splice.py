"""Copies the bytes between two connections, in both directions, until both have ended."""

from __future__ import annotations

import asyncio
import socket
import struct

_HIGH_WATER = 1 << 20
_RESET = struct.pack("ii", 1, 0)


class _Side(asyncio.Protocol):
    """One of the two connections. It writes to the other what it receives, and stops reading while that is full."""

    def __init__(self, ended: asyncio.Event) -> None:
        self.other: _Side
        self.transport: asyncio.Transport | None = None
        self._ended = ended
        self._early: list[bytes] = []
        """The bytes that were received before the other side was connected to the event loop."""
        self._has_received_all = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=_HIGH_WATER)

    def data_received(self, data: bytes) -> None:
        if self.other.transport is None:
            self._early.append(data)
        else:
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        self._has_received_all = True
        if self.other.transport is not None:
            self._end_writing(self.other.transport)
        return True  # The other direction may go on.

    def send_early(self) -> None:
        """Send what was received early. Both sides are connected now."""
        assert self.other.transport is not None
        self.other.transport.writelines(self._early)
        self._early.clear()
        if self._has_received_all:
            self._end_writing(self.other.transport)

    def _end_writing(self, target: asyncio.Transport) -> None:
        if not target.is_closing():
            target.write_eof()
        if self.other._has_received_all:
            self._ended.set()

    def pause_writing(self) -> None:
        if self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._ended.set()


async def splice(first: socket.socket, second: socket.socket) -> None:
    """Connect two connected sockets, which it closes, until both directions have ended or one connection is lost."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    one, other = _Side(ended), _Side(ended)
    one.other, other.other = other, one
    try:
        await loop.connect_accepted_socket(lambda: one, first)
        await loop.connect_accepted_socket(lambda: other, second)
        one.send_early()
        other.send_early()
        await ended.wait()
    finally:
        for side, opened in ((one, first), (other, second)):
            if side.transport is not None:
                side.transport.close()
            else:
                opened.close()


def reset(connection: socket.socket) -> None:
    """Close a connection so that its peer sees a reset instead of an end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    connection.close()
