"""A proxy for Service addresses: it listens on each frontend, and connects each client to one of the endpoints.

It serves where the kernel's packet filter cannot: on a machine without nftables, for node ports on the machine's
loopback, and for the API server, which the network of the pods does not reach.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
from collections.abc import Callable

from pinnace.model.clock import AlarmClock
from pinnace.model.tasks import Tasks
from pinnace.network.services.datagrams import DatagramFrontend
from pinnace.network.services.splice import reset, splice
from pinnace.network.services.table import Backends, Endpoint, Frontend, TableChange
from pinnace.network.sockets import Sockets, open_listener

_CONNECT_SECONDS = 3.0
_MOST_CONNECTIONS = 10_000
_MOST_AFFINITIES = 10_000
_ACCEPTS = 64
"""How many connections are accepted before other work of the process has its turn."""
_log = logging.getLogger(__name__)


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


class ServiceProxy:
    """Listens in one network namespace and connects in another. `apply` changes of the table; `close` it."""

    def __init__(self, inside: Sockets, outside: Sockets, clock: AlarmClock) -> None:
        """Listen with sockets of `inside`, and connect to endpoints with sockets of `outside`."""
        self._listening = inside
        self._connecting = outside
        self._clock = clock
        self._frontends: dict[Frontend, _StreamFrontend | DatagramFrontend] = {}
        self._tasks = Tasks()

    async def apply(self, change: TableChange) -> None:
        """Open, change and close listeners. A port that cannot be opened is logged and left out."""
        for frontend, backends in change.items():
            known = self._frontends.get(frontend)
            if backends is None:
                if known is not None:
                    self._frontends.pop(frontend).close()
            elif known is not None:
                known.picker.backends = backends
            else:
                try:
                    self._frontends[frontend] = await self._open(frontend, Picker(backends, self._clock))
                except OSError as error:
                    where = f"{frontend.protocol} {frontend.address}:{frontend.port}"
                    _log.warning("cannot listen on %s for a Service: %s", where, error.strerror or error)

    async def close(self) -> None:
        for frontend in self._frontends.values():
            frontend.close()
        self._frontends.clear()
        await self._tasks.close()

    async def _open(self, frontend: Frontend, picker: Picker) -> _StreamFrontend | DatagramFrontend:
        is_stream = frontend.protocol == "TCP"
        kind = socket.SOCK_STREAM if is_stream else socket.SOCK_DGRAM
        listener = await open_listener(self._listening, kind, frontend.address, frontend.port)
        if not is_stream:
            return DatagramFrontend(listener, picker, self._connecting, self._clock)
        return _StreamFrontend(listener, picker, lambda client: self._accept(client, picker))

    def _accept(self, client: socket.socket, picker: Picker) -> None:
        if len(self._tasks) >= _MOST_CONNECTIONS:
            reset(client)
            return
        self._tasks.start(self._serve(client, picker))

    async def _serve(self, client: socket.socket, picker: Picker) -> None:
        try:
            address = client.getpeername()[0]
            endpoint, server = await self._connect(picker.pick(address))
        except OSError:
            reset(client)
            return
        picker.note(address, endpoint)
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await splice(client, server)

    async def _connect(self, endpoints: list[Endpoint]) -> tuple[Endpoint, socket.socket]:
        """Connect to the first endpoint that answers. Raise OSError if none does."""
        loop = asyncio.get_running_loop()
        for endpoint in endpoints:
            opened = await self._connecting.open_socket(socket.AF_INET, socket.SOCK_STREAM)
            opened.setblocking(False)
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    await loop.sock_connect(opened, endpoint)
                return endpoint, opened
            except OSError:  # TimeoutError is one.
                opened.close()
            except BaseException:
                opened.close()
                raise
        raise ConnectionRefusedError("no endpoint of the Service accepts connections")


class _StreamFrontend:
    """A listener, and the callback for each connection."""

    def __init__(self, listener: socket.socket, picker: Picker, accept: Callable[[socket.socket], None]) -> None:
        self.picker = picker
        self._listener = listener
        self._accept = accept
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(listener.fileno(), self._accept_some)

    def close(self) -> None:
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()

    def _accept_some(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            for _ in range(_ACCEPTS):
                client, _ = self._listener.accept()
                client.setblocking(False)
                self._accept(client)
