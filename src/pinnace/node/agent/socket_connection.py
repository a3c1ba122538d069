"""The API server's connection to a node agent in another process, over a unix socket."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict
from pathlib import Path

from pinnace.client.status_errors import error_of_status
from pinnace.model.byte_streams import Duplex, ProxyResponse
from pinnace.model.node_connections import CommandStreams, ContainerLogOptions, PodAddress, TerminalSize
from pinnace.model.tasks import Tasks
from pinnace.node.agent.socket_messages import CallSocket
from pinnace.node.agent.web_pages import WebPage
from pinnace.node.runtime.embedded.container_streams import LAST_OUTPUT_SECONDS, CommandPipes
from pinnace.node.runtime.embedded.descriptors import OpenFile, copy_input, copy_output
from pinnace.node.runtime.embedded.messages import Message


class SocketConnection:
    """A `NodeConnection`."""

    host = ""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def reach(self) -> None:
        CallSocket.open(self._path).close()

    async def exec(self, pod: PodAddress, container: str, command: Sequence[str], streams: CommandStreams) -> int:
        return await self._command({"op": "exec", "command": list(command)}, pod, container, streams)

    async def attach(self, pod: PodAddress, container: str, streams: CommandStreams) -> int:
        return await self._command({"op": "attach"}, pod, container, streams)

    async def logs(self, pod: PodAddress, container: str, options: ContainerLogOptions) -> AsyncIterator[bytes]:
        call = CallSocket.open(self._path)
        reading, writing = os.pipe()
        source = OpenFile(reading)
        try:
            call.send({"op": "logs", "pod": asdict(pod), "container": container, "options": asdict(options)}, [writing])
            os.close(writing)
            await _result(call)
        except BaseException:
            source.close()
            call.close()
            raise
        return _read_all(source, call)

    async def connect(self, pod: PodAddress, port: int) -> Duplex:
        call = CallSocket.open(self._path)
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                call.send({"op": "connect", "pod": asdict(pod), "port": port}, [theirs.fileno()])
            await _result(call)
            reader, writer = await asyncio.open_connection(sock=ours)
        except BaseException:
            ours.close()
            raise
        finally:
            call.close()
        return Duplex(reader, writer)

    async def ask(
        self, method: str, target: str, headers: Sequence[tuple[bytes, bytes]], body: bytes, *, upgrade: bytes = b""
    ) -> ProxyResponse:
        call = CallSocket.open(self._path)
        reading, writing = os.pipe()
        source = OpenFile(reading)
        try:
            pod = PodAddress("", "", "")
            call.send({"op": "ask", "pod": asdict(pod), "method": method, "target": target}, [writing])
            os.close(writing)
            reply = await _result(call)
            body = b"".join([data async for data in _read_all(source, call)])
        except BaseException:
            source.close()
            call.close()
            raise
        return WebPage(reply["page"], reply["content_type"], body)

    async def _command(self, request: Message, pod: PodAddress, container: str, streams: CommandStreams) -> int:
        call = CallSocket.open(self._path)
        pipes = CommandPipes(streams)
        try:
            has = [streams.stdin is not None, streams.stdout is not None, streams.stderr is not None]
            terminal = {"tty": streams.sizes is not None, "has": has}
            call.send({**request, "pod": asdict(pod), "container": container, **terminal}, pipes.theirs)
            pipes.release()
            async with Tasks() as tasks:
                if pipes.stdin is not None and streams.stdin is not None:
                    tasks.start(_feed(streams, pipes.stdin))
                if streams.sizes is not None:
                    tasks.start(_send_sizes(streams.sizes, call))
                copies = [
                    tasks.start(copy_output(source, target))
                    for source, target in zip(pipes.outputs, (streams.stdout, streams.stderr), strict=True)
                ]
                reply = await _result(call)
                await asyncio.wait(copies, timeout=LAST_OUTPUT_SECONDS)
                return int(reply["code"])
        finally:
            pipes.close()
            call.close()


async def _result(call: CallSocket) -> Message:
    """Return the answer of the agent. Raise the ApiError or OSError that it stands for."""
    reply, _ = await call.receive()
    if reply is None:
        raise ConnectionResetError("the node agent has ended")
    if "status" in reply:
        raise error_of_status(reply["status"])
    if "errno" in reply:
        raise OSError(reply["errno"], reply["message"])
    return reply


async def _feed(streams: CommandStreams, target: OpenFile) -> None:
    assert streams.stdin is not None
    await copy_input(streams.stdin, target)
    target.close()


async def _send_sizes(sizes: AsyncIterator[TerminalSize], call: CallSocket) -> None:
    async for size in sizes:
        call.send({"width": size.width, "height": size.height})


async def _read_all(source: OpenFile, call: CallSocket) -> AsyncIterator[bytes]:
    try:
        while data := await source.read():
            yield data
    finally:
        source.close()
        call.close()
