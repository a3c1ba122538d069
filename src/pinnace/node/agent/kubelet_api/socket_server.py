"""Answers the API server's calls on the agent's unix socket, through the `NodeConnection` of this process.

A client sends one request with the ends of its pipes, and receives the result. Further messages resize the terminal.
Closing the connection cancels the call.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

from pinnace.model import errors
from pinnace.model.node_connections import (
    CommandStreams,
    ContainerLogOptions,
    NodeConnection,
    PodAddress,
    TerminalSize,
)
from pinnace.node.machine.messages import Message, MessageServer, SocketPeer, SocketRequest
from pinnace.node.machine.open_files import OpenFile
from pinnace.process.byte_streams import Duplex, relay
from pinnace.process.tasks import Tasks


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


class SocketCall:
    """One call of the API server."""

    def __init__(self, request: SocketRequest) -> None:
        self.content: Message = request.content
        self.reply = request.reply
        self.pod = PodAddress(**request.content["pod"])
        self.sizes: asyncio.Queue[TerminalSize] = asyncio.Queue(1)
        self.files = [OpenFile(fd) for fd in request.take_files()]

    def resize(self, size: TerminalSize) -> None:
        """Use this size, in place of one that waits: no client fills the memory with sizes that no one reads."""
        if self.sizes.full():
            self.sizes.get_nowait()
        self.sizes.put_nowait(size)

    def close(self) -> None:
        for file in self.files:
            file.close()


class AgentSocket:
    """Serves until cancelled."""

    def __init__(self, path: Path, connection: NodeConnection) -> None:
        self._path = path
        self._connection = connection
        self._tasks = Tasks()
        self._calls: dict[SocketPeer, tuple[SocketCall, asyncio.Task[None]]] = {}

    async def run(self) -> None:
        server = MessageServer(asyncio.get_running_loop(), self._hear, on_close=self._cancel)
        server.listen(str(self._path.parent), self._path.name, users=(0, os.geteuid()))
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await self._tasks.close()
            server.close()
            self._path.unlink(missing_ok=True)

    def _hear(self, request: SocketRequest) -> None:
        known = self._calls.get(request.peer)
        if known is None:
            call = SocketCall(request)
            task = self._tasks.start(self._serve(call))
            task.add_done_callback(lambda _: call.close())  # Also of a call that is cancelled before it has begun.
            self._calls[request.peer] = (call, task)
        else:
            known[0].resize(TerminalSize(request.content["width"], request.content["height"]))

    def _cancel(self, peer: SocketPeer) -> None:
        """Cancel the call of a client that has gone. A forwarded connection ends with its own streams."""
        call, task = self._calls.pop(peer, (None, None))
        if call is not None and task is not None and call.content["op"] != "connect":
            task.cancel()

    async def _serve(self, call: SocketCall) -> None:
        try:
            match call.content["op"]:
                case "exec" | "attach":
                    call.reply({"code": await self._command(call)})
                case "logs":
                    await self._logs(call)
                case "connect":
                    await self._forward(call)
                case "ask":
                    await self._ask(call)
                case other:
                    raise ValueError(f"the agent knows no request {other!r}")
        except errors.ApiError as error:
            call.reply({"status": error.status})
        except OSError as error:
            call.reply({"errno": error.errno or 111, "message": error.strerror or str(error)})
        except Exception as error:
            call.reply({"error": f"{type(error).__name__}: {error}"})
            raise

    async def _command(self, call: SocketCall) -> int:
        content, (stdin, stdout, stderr) = call.content, call.files
        has = content["has"]
        streams = CommandStreams(
            stdin=stdin if has[0] else None,
            stdout=FileWriter(stdout) if has[1] else None,
            stderr=FileWriter(stderr) if has[2] else None,
            sizes=_iterate(call.sizes) if content["tty"] else None,
        )
        if content["op"] == "attach":
            code = await self._connection.attach(call.pod, content["container"], streams)
        else:
            code = await self._connection.exec(call.pod, content["container"], content["command"], streams)
        for writer in (streams.stdout, streams.stderr):
            if writer is not None:
                await writer.drain()
                writer.close()
        return code

    async def _logs(self, call: SocketCall) -> None:
        options = ContainerLogOptions(**call.content["options"])
        lines = await self._connection.logs(call.pod, call.content["container"], options)
        call.reply({})
        async for data in lines:
            await call.files[0].write(data)

    async def _ask(self, call: SocketCall) -> None:
        accept = [(b"Accept", call.content["accept"].encode("latin-1"))]
        page = await self._connection.ask(call.content["method"], call.content["target"], accept, b"")
        texts = [(name.decode(), value.decode()) for name, value in page.headers]
        kinds = [value for name, value in texts if name == "Content-Type"]
        more = [pair for pair in texts if pair[0] not in ("Content-Type", "Content-Length")]
        call.reply({"page": page.status, "content_type": next(iter(kinds), ""), "headers": more})
        async for data in page.chunks():
            await call.files[0].write(data)

    async def _forward(self, call: SocketCall) -> None:
        inside = await self._connection.connect(call.pod, call.content["port"])
        call.reply({})
        reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=os.dup(call.files[0].fd)))
        call.files[0].close()
        await relay(Duplex(reader, writer), inside)


async def _iterate(sizes: asyncio.Queue[TerminalSize]) -> AsyncIterator[TerminalSize]:
    while True:
        yield await sizes.get()
