"""Relays between connections end with them, whichever way a peer leaves."""

from __future__ import annotations

import asyncio
import socket
import struct

from pinnace.process.byte_streams import Duplex, relay

_RESET = struct.pack("ii", 1, 0)


async def _connection() -> tuple[socket.socket, Duplex]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    reader, writer = await asyncio.open_connection(sock=accepted)
    return client, Duplex(reader, writer)


class _EndsAfterReset:
    """Ends at the moment when the peer of the other connection has reset it, before the event loop sees that."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer

    async def read(self, n: int, /) -> bytes:
        self._peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._peer.close()
        return b""


async def test_a_peer_that_resets_while_the_other_ends_is_no_error() -> None:
    """The end of one connection is passed on to a socket that has no peer any more, which is ENOTCONN."""
    outside, outer = await _connection()
    inside, inner = await _connection()
    await relay(Duplex(_EndsAfterReset(inside), outer.writer), inner)
    outside.settimeout(60)
    assert await asyncio.to_thread(outside.recv, 1) == b"", "the other direction ends, too"
    outside.close()
