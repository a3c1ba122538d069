"""A client's way to a server of the same process: no socket, no copies."""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from pinnace.client.client import Client
from pinnace.client.transport import Answer, ConnectionLost, EventStream, Socket, Stream
from pinnace.model.errors import ApiError
from pinnace.model.objects import Object
from pinnace.process.clock import AlarmClock
from pinnace.server.local import LocalApi, LocalConnection
from pinnace.serving.messages import Headers, Response

Part = TypeVar("Part")


class InProcessTransport:
    """Carries a client's requests to a `LocalApi`. There is no connection that could be lost."""

    def __init__(self, api: LocalApi) -> None:
        self._api = api

    async def request(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        return _answer_of(await self._api.request(method, target, body, headers))

    async def write_many(
        self, method: str, target: str, objects: list[Object], headers: Mapping[str, str]
    ) -> list[ApiError | None] | None:
        return await self._api.write_many(method, target, objects, headers)

    async def stream(self, target: str, headers: Mapping[str, str], *, silence: float) -> Stream | Answer:
        stream = await self._api.stream(target, headers)
        return _answer_of(stream) if isinstance(stream, Response) else _InProcessStream(aiter(stream), stream.close)

    async def watch(self, target: str, headers: Mapping[str, str]) -> EventStream | Answer:
        watch = await self._api.watch(target, headers)
        return _answer_of(watch) if isinstance(watch, Response) else _InProcessStream(watch.parts(), watch.close)

    async def open_socket(self, target: str, headers: Mapping[str, str], protocols: Sequence[str]) -> Socket | Answer:
        upgrade = {
            **headers,
            "upgrade": "websocket",
            "sec-websocket-version": "13",
            "sec-websocket-key": base64.b64encode(os.urandom(16)).decode(),
            "sec-websocket-protocol": ", ".join(protocols),
        }
        connection = await self._api.upgrade(target, upgrade)
        return _answer_of(connection) if isinstance(connection, Response) else _InProcessSocket(connection)

    async def close(self) -> None:
        """Nothing to close."""


class _InProcessSocket:
    def __init__(self, connection: LocalConnection) -> None:
        self._connection = connection
        from pinnace.server.streaming.websocket import WebSocket  # noqa: PLC0415 - needed by few.

        self._socket = WebSocket(connection.duplex, is_client=True)
        chosen = (value for name, value in _pairs_of(connection.headers) if name == b"Sec-WebSocket-Protocol")
        self.protocol = next(chosen, b"").decode()

    async def receive(self) -> bytes | None:
        try:
            return await self._socket.receive()
        except OSError as error:
            raise ConnectionLost(f"the connection was lost: {error}", was_sent=True) from error

    async def send(self, data: bytes) -> None:
        self._socket.send(data)
        try:
            await self._socket.drain()
        except OSError as error:
            raise ConnectionLost(f"the connection was lost: {error}", was_sent=True) from error

    async def close(self) -> None:
        self._socket.close()
        await self._connection.close()


class _InProcessStream(Generic[Part]):
    """The parts of an answer that goes on: chunks of bytes, or the events of a watch."""

    def __init__(self, parts: AsyncIterator[Part], close: Callable[[], Awaitable[None]]) -> None:
        self._parts = parts
        self._close = close

    async def __aiter__(self) -> AsyncIterator[Part]:
        try:
            async for part in self._parts:
                yield part
                del part  # It may be large, and the next one may be long in coming.
        except OSError as error:
            raise ConnectionLost(str(error), was_sent=True) from error

    async def close(self) -> None:
        await self._close()


def in_process_client(
    api: LocalApi, *, clock: AlarmClock | None = None, namespace: str = "default", field_manager: str = "pinnace"
) -> Client:
    """Return a client of a server in this process, as the user of `api`."""
    return Client(InProcessTransport(api), clock=clock, namespace=namespace, field_manager=field_manager)


def _answer_of(response: Response) -> Answer:
    body = response.body if isinstance(response.body, bytes) else b"".join(response.body)
    return Answer(response.status, _LazyHeaders(response.headers), body)


class _LazyHeaders(Mapping[str, str]):
    """The headers of an answer, decoded at the first use: most clients in this process use none."""

    __slots__ = ("_decoded", "_raw")

    def __init__(self, raw: Headers) -> None:
        self._raw = raw
        self._decoded: dict[str, str] | None = None

    def __contains__(self, name: object) -> bool:
        if self._decoded is None and isinstance(self._raw, bytes) and name == "warning":
            return b"Warning: " in self._raw and name in self._decode()  # Asked for after every request.
        return name in self._decode()

    def __getitem__(self, name: str) -> str:
        return self._decode()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decode())

    def __len__(self) -> int:
        return len(self._decode())

    def _decode(self) -> dict[str, str]:
        if self._decoded is None:
            headers = self._decoded = {}
            for raw_name, raw_value in _pairs_of(self._raw):  # A header may come more than once.
                name, value = raw_name.decode().lower(), raw_value.decode()
                headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return self._decoded


def _pairs_of(headers: Headers) -> Sequence[tuple[bytes, bytes]]:
    if not isinstance(headers, bytes):
        return headers
    lines = [line.partition(b": ") for line in headers.split(b"\r\n") if line]
    return [(name, value) for name, _, value in lines]
