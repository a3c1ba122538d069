"""Zone DNS queries over UDP and TCP on sockets that it is given."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Coroutine
from typing import Any

from pinnace.network.dns.upstream import DnsUpstream
from pinnace.network.dns.wire import (
    MalformedQuery,
    ResponseCode,
    encode_error,
    encode_response,
    parse_query,
)
from pinnace.network.dns.zone import Zone
from pinnace.network.shares import Shares
from pinnace.process.tasks import Tasks

_BATCH = 32
"""How many queries are answered before other work of the process has its turn: a flood must not stop the agent."""
_LARGEST_QUERY = 4096
_MOST_CONNECTIONS = 200
_MOST_QUESTIONS = 200
_IDLE_SECONDS = 10.0


class DnsServer:
    """Serves from its creation until `close`."""

    def __init__(
        self,
        answers: Zone,
        datagrams: socket.socket,
        listener: socket.socket,
        upstream: DnsUpstream | None = None,
    ) -> None:
        """Both sockets are bound and do not block; the listener listens. `upstream` answers for foreign names."""
        self._answers = answers
        self._upstream = upstream
        self._datagrams = datagrams
        self._listener = listener
        self._tasks = Tasks(expected=(OSError, EOFError))
        self._connections = Shares[asyncio.Task[None]](_MOST_CONNECTIONS, asyncio.Task.cancel)
        self._questions = Shares[asyncio.Task[None]](_MOST_QUESTIONS, asyncio.Task.cancel)
        """The queries that wait for an answer of the upstream server."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(datagrams.fileno(), self._receive)
        self._loop.add_reader(listener.fileno(), self._accept)

    async def close(self) -> None:
        for opened in (self._datagrams, self._listener):
            self._loop.remove_reader(opened.fileno())
            opened.close()
        await self._tasks.close()

    def _receive(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for _ in range(_BATCH):
                data, address = self._datagrams.recvfrom(_LARGEST_QUERY)
                response = respond(self._answers, data, is_udp=True)
                if self._upstream is not None and _is_refused(response):
                    self._forward(self._upstream, data, address)
                elif response:
                    with contextlib.suppress(OSError):  # A client that is gone, or whose buffer is full, asks again.
                        self._datagrams.sendto(response, address)

    def _forward(self, upstream: DnsUpstream, query: bytes, client: tuple[Any, ...]) -> None:
        async def ask() -> None:
            response = await upstream.ask(query)
            if response and self._datagrams.fileno() >= 0:
                self._datagrams.sendto(response, client)

        if self._questions.make_room(client[0]):
            self._start(self._questions, client[0], ask())

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            client, (address, *_) = self._listener.accept()
            client.setblocking(False)
            if self._connections.make_room(address):
                self._start(self._connections, address, self._serve(client))
            else:
                client.close()

    def _start(self, shares: Shares[asyncio.Task[None]], client: str, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks.start(work)
        shares.add(client, task)
        task.add_done_callback(lambda ended: shares.remove(client, ended))

    async def _serve(self, client: socket.socket) -> None:
        """Answer the queries of one connection, until it ends or is silent for too long."""
        reader, writer = await asyncio.open_connection(sock=client)
        try:
            while True:
                async with asyncio.timeout(_IDLE_SECONDS):
                    (length,) = struct.unpack("!H", await reader.readexactly(2))
                    query = await reader.readexactly(length)
                    response = respond(self._answers, query, is_udp=False)
                    if self._upstream is not None and _is_refused(response):
                        response = await self._upstream.ask(query)
                    if not response:
                        return
                    writer.write(struct.pack("!H", len(response)) + response)
                    await writer.drain()
        finally:
            writer.close()


def _is_refused(response: bytes) -> bool:
    """Whether a response says that the name belongs to no zone of the cluster."""
    return len(response) > 3 and response[3] & 0xF == ResponseCode.REFUSED


def respond(answers: Zone, data: bytes, *, is_udp: bool) -> bytes:
    """Return the response to a query; empty for bytes that deserve none."""
    try:
        query = parse_query(data)
    except MalformedQuery as error:
        return encode_error(data, error.code) if error.code is not None else b""
    return encode_response(query, answers.answer(query), is_udp=is_udp)
