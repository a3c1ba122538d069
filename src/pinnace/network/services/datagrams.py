"""UDP through this process, for Services and host ports: each client has its own socket until it is silent for long."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket

from pinnace.network.families import family_of
from pinnace.network.services.table import Backends, Endpoint
from pinnace.network.sockets import Sockets
from pinnace.process.clock import Alarm, AlarmClock
from pinnace.process.tasks import Tasks

_SILENT_SECONDS = 30.0
_MOST_AFFINITIES = 10_000
_MOST_CLIENTS = 1000
_MOST_WAITING = 64
"""Datagrams of a client that wait for its socket; more are lost, as UDP allows."""
_BATCH = 64
_LARGEST = 65535
_Address = tuple[str, int]


class Picker:
    """Picks an endpoint for each client: at random, or the one that the client had."""

    def __init__(self, backends: Backends, clock: AlarmClock) -> None:
        self.backends = backends
        self._clock = clock
        self._known: dict[str, tuple[Endpoint, float]] = {}

    def pick(self, client: str) -> list[Endpoint]:
        """Return all endpoints in the order in which they are to be tried."""
        endpoints = list(self.backends.endpoints)
        random.shuffle(endpoints)
        known, until = self._known.get(client, (None, 0.0))
        if known in self.backends.endpoints and self._clock.monotonic() < until:
            endpoints.remove(known)
            endpoints.insert(0, known)
        return endpoints

    def note(self, client: str, endpoint: Endpoint) -> None:
        """Remember the endpoint of a client, if the Service has session affinity."""
        if self.backends.affinity_seconds:
            if len(self._known) >= _MOST_AFFINITIES:
                del self._known[next(iter(self._known))]
            self._known[client] = (endpoint, self._clock.monotonic() + self.backends.affinity_seconds)


class _Client:
    """One client: its endpoint, the socket to it, and the moment at which it is forgotten."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.upstream: socket.socket | None = None
        self.waiting: list[bytes] = []
        self.last_use = 0.0


class DatagramFrontend:
    """A bound socket whose datagrams go to endpoints, and whose clients receive the answers."""

    def __init__(self, bound: socket.socket, picker: Picker, outside: Sockets, clock: AlarmClock) -> None:
        self.picker = picker
        self._bound = bound
        self._outside = outside
        self._clock = clock
        self._clients: dict[_Address, _Client] = {}
        self._tasks = Tasks()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(bound.fileno(), self._receive)
        self._sweeping: Alarm = clock.call_later(_SILENT_SECONDS, self._sweep)

    def close(self) -> None:
        self._sweeping.cancel()
        self._tasks.cancel()
        self._loop.remove_reader(self._bound.fileno())
        self._bound.close()
        for address in list(self._clients):
            self._forget(address)

    def _receive(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            for _ in range(_BATCH):
                data, address = self._bound.recvfrom(_LARGEST)
                self._forward(data, address)

    def _forward(self, data: bytes, address: _Address) -> None:
        client = self._clients.get(address)
        if client is not None and client.endpoint not in self.picker.backends.endpoints:
            self._forget(address)
            client = None
        if client is None:
            if not self.picker.backends.admits(address[0]):
                return
            if len(self._clients) >= _MOST_CLIENTS:
                self._forget(min(self._clients, key=lambda known: self._clients[known].last_use))
            endpoint = self.picker.pick(address[0])[0]
            self.picker.note(address[0], endpoint)
            client = self._clients[address] = _Client(endpoint)
            self._tasks.start(self._connect(address, client))
        client.last_use = self._clock.monotonic()
        if client.upstream is None:
            if len(client.waiting) < _MOST_WAITING:
                client.waiting.append(data)
        else:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                client.upstream.send(data)

    async def _connect(self, address: _Address, client: _Client) -> None:
        family = family_of(client.endpoint.address)
        try:
            upstream = await self._outside.open_socket(family.number, socket.SOCK_DGRAM)
        except OSError:
            self._forget(address)
            return
        upstream.setblocking(False)
        if self._clients.get(address) is not client:
            upstream.close()
            return
        client.upstream = upstream
        self._loop.add_reader(upstream.fileno(), self._answer, address, upstream)
        with contextlib.suppress(OSError):
            upstream.connect(client.endpoint)
            for data in client.waiting:
                upstream.send(data)
        client.waiting.clear()

    def _answer(self, address: _Address, upstream: socket.socket) -> None:
        try:
            for _ in range(_BATCH):
                data = upstream.recv(_LARGEST)
                with contextlib.suppress(BlockingIOError):
                    self._bound.sendto(data, address)
        except BlockingIOError:
            return
        except ConnectionError:
            self._forget(address)  # The endpoint does not listen; the next datagram tries another.

    def _forget(self, address: _Address) -> None:
        client = self._clients.pop(address, None)
        if client is not None and client.upstream is not None:
            self._loop.remove_reader(client.upstream.fileno())
            client.upstream.close()

    def _sweep(self) -> None:
        oldest = self._clock.monotonic() - _SILENT_SECONDS
        for address in [known for known, client in self._clients.items() if client.last_use < oldest]:
            self._forget(address)
        self._sweeping = self._clock.call_later(_SILENT_SECONDS, self._sweep)
