"""Methods with typed messages, and calls of them over a Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pinnace.process.grpc.connection import GrpcCall, GrpcConnection
from pinnace.process.grpc.errors import GrpcCode, GrpcError, PeerLost
from pinnace.process.grpc.frames import DEFAULT_LARGEST_MESSAGE
from pinnace.process.grpc.messages import MalformedMessage, Message

Request = TypeVar("Request", bound=Message)
Answer = TypeVar("Answer", bound=Message)

_LONGEST_PATH = 107
"""The longest path that the address of a Unix socket holds."""
_MOST_WAITING = 64
"""How many messages of a stream wait for their reader; a peer that sends more has its call ended."""
_LARGE = 1 << 15
_NEVER = float("inf")
_CONNECT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Method(Generic[Request, Answer]):
    """A method of a service. `streams` if it answers with any number of messages."""

    service: str
    name: str
    request: type[Request]
    answer: type[Answer]
    streams: bool = False

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"


class SocketChannel:
    """Calls the server behind a Unix socket. It connects with the first call, and again after a lost connection."""

    def __init__(self, path: Path | str, *, largest_message: int = DEFAULT_LARGEST_MESSAGE) -> None:
        self.path = str(path)
        self._largest_message = largest_message
        self._connection: GrpcConnection | None = None
        self._connecting = asyncio.Lock()
        self._lost = asyncio.Event()

    async def call(self, method: Method[Request, Answer], request: Request, *, seconds: float) -> Answer:
        """Return the answer. Raise CallError, DEADLINE_EXCEEDED after the seconds."""
        try:
            async with asyncio.timeout(seconds):
                connection = await self._connect()
                data = await connection.unary(method.path.encode(), request.encode(), seconds=seconds)
        except TimeoutError:
            raise GrpcError(GrpcCode.DEADLINE_EXCEEDED, "context deadline exceeded") from None
        return await _decode(method, data)

    async def stream(self, method: Method[Request, Answer], request: Request) -> AsyncGenerator[Answer, None]:
        """Yield the messages of an answer until the peer ends it. Raise CallError. Close the iterator to cancel it."""
        connection = await self._connect()
        waiting: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()

        def receive(data: bytes) -> None:
            if waiting.qsize() >= _MOST_WAITING:
                connection.cancel(call)
                waiting.put_nowait(GrpcError(GrpcCode.RESOURCE_EXHAUSTED, "the peer sends faster than it is read"))
            else:
                waiting.put_nowait(data)

        call = GrpcCall(receive, waiting.put_nowait, _NEVER)
        connection.open(method.path.encode(), call)
        connection.send_last(call, request.encode())
        try:
            while (item := await waiting.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield await _decode(method, item)
        finally:
            connection.cancel(call)

    async def wait_lost(self) -> None:
        """Connect, and return when the connection is lost. Raise PeerLost if there is none."""
        await self._connect()
        await self._lost.wait()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    async def _connect(self) -> GrpcConnection:
        async with self._connecting:
            if self._connection is None or self._connection.error is not None:
                self._lost = lost = asyncio.Event()
                try:
                    async with asyncio.timeout(_CONNECT_SECONDS):
                        connected = await _connect_socket(self.path)
                except (OSError, TimeoutError) as error:
                    reason = getattr(error, "strerror", None) or str(error) or "no answer in time"
                    raise PeerLost(f"dial unix {self.path}: connect: {reason.lower()}") from None
                _, self._connection = await asyncio.get_running_loop().create_unix_connection(
                    lambda: GrpcConnection(
                        "localhost",
                        is_tls=False,
                        on_lost=lost.set,
                        pings=False,
                        largest_message=self._largest_message,
                    ),
                    sock=connected,
                )
            return self._connection


async def _connect_socket(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection.setblocking(False)
        with short_path(path) as address:
            await asyncio.get_running_loop().sock_connect(connection, address)
    except BaseException:
        connection.close()
        raise
    return connection


def listen(path: Path) -> socket.socket:
    """Listen on a Unix socket that this user alone may connect to, in place of one that an ended process has left.

    Raise OSError, also if a file that is no socket has the name.
    """
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(17, "a file that is no socket has this name", str(path))
        os.unlink(path)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        server.setblocking(False)
        with short_path(str(path)) as address:
            server.bind(address)
        os.chmod(path, 0o600)
        server.listen(16)
    except BaseException:
        server.close()
        raise
    return server


@contextmanager
def short_path(path: str) -> Iterator[str]:
    """Yield a path of the same file that fits the address of a socket."""
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield path
        return
    above, name = os.path.split(path)
    directory = os.open(above, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{name}"
    finally:
        os.close(directory)


async def _decode(method: Method[Request, Answer], data: bytes) -> Answer:
    try:
        if len(data) > _LARGE:  # The event loop must not wait for it.
            return await asyncio.to_thread(method.answer.decode, data)
        return method.answer.decode(data)
    except MalformedMessage as error:
        text = f"grpc: failed to unmarshal the received message: {error}"
        raise GrpcError(GrpcCode.INTERNAL, text) from None
