"""Answers the API server's calls on the agent's unix socket, through the `NodeConnection` of this process."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

from pinnace.model import errors
from pinnace.model.byte_streams import Duplex, relay
from pinnace.model.node_connections import (
    CommandStreams,
    ContainerLogOptions,
    NodeConnection,
    PodAddress,
    TerminalSize,
)
from pinnace.model.tasks import Tasks
from pinnace.node.agent.socket_messages import CallSocket, listen
from pinnace.node.runtime.embedded.descriptors import OpenFile
from pinnace.node.runtime.embedded.messages import Message

_MOST_CALLS = 1000
_CHUNK = 65536


class FileWriter:
    """A `ByteWriter` to a pipe."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self._waiting = b""

    def write(self, data: bytes, /) -> None:
        self._waiting += data

    async def drain(self) -> None:
        data, self._waiting = self._waiting, b""
        await self._file.write(data)

    def write_eof(self) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()


class AgentSocket:
    """Serves until cancelled."""

    def __init__(self, path: Path, connection: NodeConnection) -> None:
        self._path = path
        self._connection = connection
        self._tasks = Tasks()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        listener = listen(self._path)
        try:
            while True:
                accepted, _ = await loop.sock_accept(listener)
                if len(self._tasks) >= _MOST_CALLS:
                    accepted.close()
                    continue
                self._tasks.start(self._serve(accepted))
        finally:
            await self._tasks.close()
            listener.close()
            self._path.unlink(missing_ok=True)

    async def _serve(self, accepted: socket.socket) -> None:
        call = CallSocket(accepted)
        try:
            request, fds = await call.receive()
            if request is not None:
                await self._until_closed(call, request, [OpenFile(fd) for fd in fds])
        finally:
            call.close()

    async def _until_closed(self, call: CallSocket, request: Message, files: list[OpenFile]) -> None:
        """Answer a call, unless the caller goes away before. A forwarded connection ends with its own streams."""
        sizes: asyncio.Queue[TerminalSize] = asyncio.Queue(16)
        async with Tasks() as tasks:
            answering = tasks.start(self._answer(call, request, files, sizes))
            listening = tasks.start(_listen(call, sizes))
            try:
                if request["op"] == "connect":
                    await answering
                await asyncio.wait([answering, listening], return_when=asyncio.FIRST_COMPLETED)
            finally:
                await tasks.close()
                for file in files:
                    file.close()

    async def _answer(
        self, call: CallSocket, request: Message, files: list[OpenFile], sizes: asyncio.Queue[TerminalSize]
    ) -> None:
        pod = PodAddress(**request["pod"])
        try:
            match request["op"]:
                case "exec" | "attach":
                    call.send({"code": await self._command(request, pod, files, sizes)})
                case "logs":
                    await self._logs(call, request, pod, files[0])
                case "connect":
                    await self._forward(call, pod, request["port"], files[0])
                case "ask":
                    await self._ask(call, request, files[0])
        except errors.ApiError as error:
            call.send({"status": error.status})
        except OSError as error:
            call.send({"errno": error.errno or 111, "message": error.strerror or str(error)})

    async def _command(
        self, request: Message, pod: PodAddress, files: list[OpenFile], sizes: asyncio.Queue[TerminalSize]
    ) -> int:
        has = request["has"]
        streams = CommandStreams(
            stdin=files[0] if has[0] else None,
            stdout=FileWriter(files[1]) if has[1] else None,
            stderr=FileWriter(files[2]) if has[2] else None,
            sizes=_iterate(sizes) if request["tty"] else None,
        )
        if request["op"] == "attach":
            code = await self._connection.attach(pod, request["container"], streams)
        else:
            code = await self._connection.exec(pod, request["container"], request["command"], streams)
        for writer in (streams.stdout, streams.stderr):
            if writer is not None:
                await writer.drain()
                writer.close()
        return code

    async def _logs(self, call: CallSocket, request: Message, pod: PodAddress, target: OpenFile) -> None:
        options = ContainerLogOptions(**request["options"])
        lines = await self._connection.logs(pod, request["container"], options)
        call.send({})
        async for data in lines:
            await target.write(data)
        target.close()

    async def _ask(self, call: CallSocket, request: Message, target: OpenFile) -> None:
        page = await self._connection.ask(request["method"], request["target"], (), b"")
        kinds = [value.decode() for name, value in page.headers if name.lower() == b"content-type"]
        call.send({"page": page.status, "content_type": next(iter(kinds), "")})
        async for data in page.chunks():
            await target.write(data)
        target.close()

    async def _forward(self, call: CallSocket, pod: PodAddress, port: int, file: OpenFile) -> None:
        inside = await self._connection.connect(pod, port)
        call.send({})
        reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=os.dup(file.fd)))
        file.close()
        await relay(Duplex(reader, writer), inside)


async def _listen(call: CallSocket, sizes: asyncio.Queue[TerminalSize]) -> None:
    """Receive the sizes of the terminal until the caller closes the connection."""
    while True:
        message, _ = await call.receive()
        if message is None:
            return
        await sizes.put(TerminalSize(message["width"], message["height"]))


async def _iterate(sizes: asyncio.Queue[TerminalSize]) -> AsyncIterator[TerminalSize]:
    while True:
        yield await sizes.get()
