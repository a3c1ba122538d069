"""Connections to a port of a pod or a Service, opened directly or through a port of this machine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import quote

from pinnace.client.transport import ConnectionLost, Socket
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.process.tasks import Tasks

_DATA, _ERROR = 0, 1
_PORT_SIZE = 2
_PIECE = 32 * 1024


class PortConnection:
    """One connection to the port. Close it when done (`async with`)."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self._greeted = {_DATA: False, _ERROR: False}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def read(self) -> bytes:
        """Return the next data; empty at the end. Raise ConnectionLost with the pod's message if it fails."""
        while message := await self._next():
            channel, data = message[0], message[1:]
            if not self._greeted.get(channel, True):
                self._greeted[channel] = True  # The first message of each channel is the port number.
                data = data[_PORT_SIZE:]
            if data and channel == _ERROR:
                raise ConnectionLost(data.decode("utf-8", "replace"), was_sent=True)
            if data and channel == _DATA:
                return data
        return b""

    async def write(self, data: bytes) -> None:
        """Write to the port; return when more may be written."""
        for start in range(0, len(data), _PIECE):
            await self._socket.send(bytes((_DATA,)) + data[start : start + _PIECE])

    async def close(self) -> None:
        await self._socket.close()

    async def _next(self) -> bytes | None:
        while (message := await self._socket.receive()) == b"":
            pass
        return message


class PortForward:
    """Within `async with`, connections to `port` of this machine are forwarded to the pod."""

    def __init__(self, open_socket: Callable[[], Awaitable[Socket]], *, local_port: int) -> None:
        self._open_socket = open_socket
        self._local_port = local_port
        self._server: asyncio.Server | None = None
        self._tasks = Tasks()
        self.last_error: Exception | None = None
        """The error of the connection that failed last, which its client saw only as a closed connection."""

    async def open(self) -> PortConnection:
        """Open a connection to the pod's port without a port of this machine."""
        return PortConnection(await self._open_socket())

    @property
    def port(self) -> int:
        assert self._server is not None, "there is one within `async with`"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._local_port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None, "it was entered"
        self._server.close()
        await self._tasks.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.start(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with await self.open() as connection, Tasks() as upwards:
                upwards.start(_forward(reader, connection))
                while data := await connection.read():
                    writer.write(data)
                    await writer.drain()
        except Exception as error:  # Only this connection fails; others go on.
            self.last_error = error
        finally:
            writer.close()


async def _forward(reader: asyncio.StreamReader, connection: PortConnection) -> None:
    with suppress(OSError, ConnectionLost):
        while data := await reader.read(_PIECE):
            await connection.write(data)


_SERVICE_NAME = "kubernetes.io/service-name"


class PodPort(NamedTuple):
    namespace: str
    pod: str
    port: int


class NoReadyPod(ConnectionLost):
    """No pod of the Service is ready, or none could be reached."""

    def __init__(self, service: str, reason: str) -> None:
        super().__init__(f"no pod of service {service} accepts connections: {reason}", was_sent=False)


class ServicePort:
    """Opens connections to one port of a Service."""

    def __init__(
        self,
        namespace: str,
        service: str,
        port: int | str,
        *,
        fetch: Callable[[str], Awaitable[Object]],
        connect: Callable[[PodPort], Awaitable[Socket]],
    ) -> None:
        """`port` is a number or a name. `fetch` reads a path of the API."""
        self._namespace = namespace
        self._service = service
        self._port = port
        self._fetch = fetch
        self._connect = connect

    async def open(self) -> Socket:
        """Connect to a ready pod, chosen at random; to another if its node refuses. Raise NoReadyPod."""
        pods = await self.pods()
        reason = "none is ready"
        for pod in random.sample(pods, len(pods)):
            try:
                return await self._connect(pod)
            except (errors.ApiError, ConnectionLost) as error:  # It may have been deleted since.
                reason = str(error)
        raise NoReadyPod(self._service, reason)

    async def pods(self) -> list[PodPort]:
        """Return the ready pods. Raise LookupError if the Service has no such port."""
        namespace, name = quote(self._namespace, safe=""), quote(self._service, safe="")
        service = await self._fetch(f"/api/v1/namespaces/{namespace}/services/{name}")
        selector = quote(f"{_SERVICE_NAME}={self._service}")
        slices = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector={selector}"
        return list(ready_pods(service, (await self._fetch(slices))["items"], self._port))


def ready_pods(service: Object, slices: Sequence[Object], port: int | str) -> Iterator[PodPort]:
    """Yield the ready pods behind a port of a Service. Raise LookupError if the Service has no such port."""
    names = [
        entry.get("name", "")
        for entry in (service.get("spec") or {}).get("ports") or ()
        if str(port) in (str(entry["port"]), entry.get("name"))
    ]
    if not names:
        raise LookupError(f"service {service['metadata']['name']} has no port {port}")
    for endpoint_slice in slices:
        numbers = [part["port"] for part in endpoint_slice.get("ports") or () if (part.get("name") or "") == names[0]]
        for endpoint in endpoint_slice.get("endpoints") or ():
            target = endpoint.get("targetRef") or {}
            if numbers and target.get("kind") == "Pod" and (endpoint.get("conditions") or {}).get("ready") is not False:
                yield PodPort(target.get("namespace", ""), target["name"], numbers[0])
