"""A proxy for Service addresses: it listens on each frontend, and connects each client to one of the endpoints.

It serves where the kernel's packet filter cannot: on a machine without nftables, for node ports on the machine's
loopback, and for the API server, which the network of the pods does not reach.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import socket
from collections.abc import Callable, Iterator

from pinnace.network.families import IPV4, IPV6, IpFamily, family_of
from pinnace.network.services.datagrams import DatagramFrontend, Picker
from pinnace.network.services.relay import BUFFER_BYTES, Relay, reset
from pinnace.network.services.table import Backends, Endpoint, Frontend, TableChange
from pinnace.network.shares import Shares
from pinnace.network.sockets import SocketPool, Sockets, open_listener
from pinnace.process.clock import Alarm, AlarmClock
from pinnace.process.tasks import Tasks

_CONNECT_SECONDS = 3.0
_MOST_CONNECTIONS = 10_000
_DIVISOR = 8
_ACCEPTS = 64
"""How many connections are accepted before other work of the process has its turn."""
_log = logging.getLogger(__name__)


class ServiceProxy:
    """Listens in one network namespace and connects in another. `apply` changes of the table; `close` it."""

    def __init__(self, inside: Sockets, outside: Sockets, clock: AlarmClock) -> None:
        """Listen with sockets of `inside`, and connect to endpoints with sockets of `outside`."""
        self._listening = inside
        self._connecting = outside
        self._clock = clock
        self._frontends: dict[Frontend, _StreamFrontend | DatagramFrontend] = {}
        self._waiting: dict[Frontend, Backends] = {}
        """Those whose port another process has."""
        self._tasks = Tasks()
        self._pools = {family: SocketPool(outside, self._tasks, family) for family in (IPV4, IPV6)}
        self._connections = Shares[_Attempt | Relay](_most_connections(), lambda connection: connection.close())
        self._buffer = memoryview(bytearray(BUFFER_BYTES))

    async def apply(self, change: TableChange) -> None:
        """Open, change and close listeners. A port that cannot be opened is logged; see `retry`."""
        for frontend, backends in change.items():
            self._waiting.pop(frontend, None)
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
                    if error.errno == errno.EADDRINUSE:
                        self._waiting[frontend] = backends
                        _log.info("another node of this machine, or another program, listens on %s", where)
                    else:
                        _log.warning("cannot listen on %s for a Service: %s", where, error.strerror or error)

    @property
    def is_waiting(self) -> bool:
        """Whether another process has a port that a Service needs."""
        return bool(self._waiting)

    async def retry(self) -> None:
        """Open the ports that other processes have given back: those of another node whose agent has ended."""
        for frontend, backends in list(self._waiting.items()):
            with contextlib.suppress(OSError):
                self._frontends[frontend] = await self._open(frontend, Picker(backends, self._clock))
                del self._waiting[frontend]

    async def close(self) -> None:
        for frontend in self._frontends.values():
            frontend.close()
        self._frontends.clear()
        self._waiting.clear()
        for connection in self._connections.all():
            connection.close()
        await self._tasks.close()
        for pool in self._pools.values():
            pool.close()

    async def _open(self, frontend: Frontend, picker: Picker) -> _StreamFrontend | DatagramFrontend:
        is_stream = frontend.protocol == "TCP"
        kind = socket.SOCK_STREAM if is_stream else socket.SOCK_DGRAM
        listener = await open_listener(self._listening, kind, frontend.address, frontend.port)
        if not is_stream:
            return DatagramFrontend(listener, picker, self._connecting, self._clock)
        return _StreamFrontend(listener, picker, self._accept)

    def _accept(self, client: socket.socket, address: str, picker: Picker) -> None:
        if not picker.backends.admits(address) or not self._connections.make_room(address):
            reset(client)
            return

        def on_end(attempt: _Attempt, server: socket.socket | None, endpoint: Endpoint | None) -> None:
            self._connections.remove(address, attempt)
            if server is None or endpoint is None:
                reset(client)
                return
            picker.note(address, endpoint)
            for side in (client, server):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            loop = asyncio.get_running_loop()
            relay = Relay(loop, client, server, buffer=self._buffer, on_end=on_relay_end)
            self._connections.add(address, relay)

        def on_relay_end(relay: Relay) -> None:
            self._connections.remove(address, relay)

        endpoints = picker.pick(address)
        attempt = _Attempt(iter(endpoints), family_of(endpoints[0].address), self._clock, on_end)
        self._connections.add(address, attempt)
        self._try_next(attempt)

    def _try_next(self, attempt: _Attempt, code: int = 0) -> None:
        pool = self._pools[attempt.family]
        if code == errno.ENETUNREACH:
            pool.close()  # These sockets belong to a network namespace that is gone.
        opened = pool.take()
        if opened is None:
            self._tasks.start(self._try_with_new_socket(attempt))
        else:
            attempt.connect(opened, self._try_next)

    async def _try_with_new_socket(self, attempt: _Attempt) -> None:
        try:
            opened = await self._pools[attempt.family].open()
        except OSError:
            attempt.close()
            return
        attempt.connect(opened, self._try_next)


def _most_connections() -> int:
    """Return a number of connections, of two sockets each, that leaves most open files to the rest of the process."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_CONNECTIONS if limit == resource.RLIM_INFINITY else min(_MOST_CONNECTIONS, limit // _DIVISOR)


Retry = Callable[["_Attempt", int], None]
"""Called for a new socket, with the error number of the last attempt."""


class _Attempt:
    """The attempts to connect a client to one endpoint after the other."""

    def __init__(
        self,
        endpoints: Iterator[Endpoint],
        family: IpFamily,
        clock: AlarmClock,
        on_end: Callable[[_Attempt, socket.socket | None, Endpoint | None], None],
    ) -> None:
        """`on_end` is called once, with the connection and its endpoint, or with None if no endpoint accepts it.

        All endpoints are of one family.
        """
        self.family = family
        self._endpoints = endpoints
        self._clock = clock
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._opened: socket.socket | None = None
        self._alarm: Alarm | None = None
        self._has_ended = False

    def connect(self, opened: socket.socket, retry: Retry) -> None:
        """Connect to the next endpoint; call `retry`, for a new socket, if it refuses or does not answer."""
        endpoint = next(self._endpoints, None)
        if endpoint is None or self._has_ended:
            opened.close()
            self._end(None, None)
            return
        code = opened.connect_ex(endpoint)
        if code == errno.EINPROGRESS:
            code = opened.connect_ex(endpoint)  # On the same machine it is connected already.
        if code in (0, errno.EISCONN):
            self._end(opened, endpoint)
        elif code in (errno.EINPROGRESS, errno.EALREADY):
            self._opened = opened
            self._loop.add_writer(opened.fileno(), self._answer, endpoint, retry)
            self._alarm = self._clock.call_later(_CONNECT_SECONDS, lambda: self._fail(retry, errno.ETIMEDOUT))
        else:
            opened.close()
            self._loop.call_soon(retry, self, code)

    def close(self) -> None:
        """Give up."""
        self._forget()
        self._end(None, None)

    def _answer(self, endpoint: Endpoint, retry: Retry) -> None:
        assert self._opened is not None, "it is connecting"
        if code := self._opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._fail(retry, code)
            return
        opened, self._opened = self._opened, None
        self._loop.remove_writer(opened.fileno())
        self._forget()
        self._end(opened, endpoint)

    def _fail(self, retry: Retry, code: int) -> None:
        self._forget()
        retry(self, code)

    def _forget(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._opened is not None:
            self._loop.remove_writer(self._opened.fileno())
            self._opened.close()
            self._opened = None

    def _end(self, opened: socket.socket | None, endpoint: Endpoint | None) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._on_end(self, opened, endpoint)


class _StreamFrontend:
    """A listener, and the callback for each connection."""

    def __init__(
        self, listener: socket.socket, picker: Picker, accept: Callable[[socket.socket, str, Picker], None]
    ) -> None:
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
                client, (address, *_) = self._listener.accept()
                client.setblocking(False)
                self._accept(client, address, self.picker)
