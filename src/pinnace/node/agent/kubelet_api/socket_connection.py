"""The API server's connection to a node agent in another process, over a unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from pinnace.model.errors import error_of_status
from pinnace.model.node_connections import CommandStreams, ContainerLogOptions, PodAddress, TerminalSize
from pinnace.node.agent.kubelet_api.web_pages import WebPage
from pinnace.node.errors import RuntimeFailure
from pinnace.node.machine.channels import Channel, ChannelClosed, OpenRequest
from pinnace.node.machine.messages import Message, connect
from pinnace.node.machine.open_files import CommandPipes, OpenFile
from pinnace.process.byte_streams import Duplex, ProxyResponse
from pinnace.process.tasks import Tasks

SOCKET = "agent.sock"


class SocketConnection:
    """A `NodeConnection`."""

    host = ""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def reach(self) -> None:
        connect(self._path).close()

    async def exec(self, pod: PodAddress, container: str, command: Sequence[str], streams: CommandStreams) -> int:
        return await self._command({"op": "exec", "command": list(command)}, pod, container, streams)

    async def attach(self, pod: PodAddress, container: str, streams: CommandStreams) -> int:
        return await self._command({"op": "attach"}, pod, container, streams)

    async def logs(self, pod: PodAddress, container: str, options: ContainerLogOptions) -> AsyncIterator[bytes]:
        request = {"op": "logs", "pod": asdict(pod), "container": container, "options": asdict(options)}
        _, lines = await self._ask_for_bytes(request)
        return lines

    async def connect(self, pod: PodAddress, port: int) -> Duplex:
        ours, theirs = socket.socketpair()
        try:
            with theirs, self._call({"op": "connect", "pod": asdict(pod), "port": port}, [theirs.fileno()]) as call:
                await _result(call)
            reader, writer = await asyncio.open_connection(sock=ours)
        except BaseException:
            ours.close()
            raise
        return Duplex(reader, writer)

    async def ask(
        self, method: str, target: str, headers: Sequence[tuple[bytes, bytes]], body: bytes, *, upgrade: bytes = b""
    ) -> ProxyResponse:
        accept = b", ".join(value for name, value in headers if name.lower() == b"accept").decode("latin-1")
        request = {"op": "ask", "pod": asdict(PodAddress("", "", "")), "method": method, "target": target}
        reply, page = await self._ask_for_bytes({**request, "accept": accept})
        more = [(name.encode(), value.encode()) for name, value in reply["headers"]]
        return WebPage(reply["page"], reply["content_type"], b"".join([data async for data in page]), more)

    @contextlib.contextmanager
    def _call(self, request: Message, fds: Sequence[int]) -> Iterator[OpenRequest]:
        """Send a request on a connection of its own: its end cancels the call. Raise OSError if no agent listens."""
        channel = Channel(connect(self._path), "the node agent")
        try:
            try:
                opened = channel.open_request(request, fds)
            except ChannelClosed as error:
                raise ConnectionResetError(str(error)) from error
            yield opened
        finally:
            channel.close()

    async def _ask_for_bytes(self, request: Message) -> tuple[Message, AsyncIterator[bytes]]:
        """Return the reply to a request, and what the agent writes after it."""
        with contextlib.ExitStack() as stack:
            reading, writing = os.pipe()
            source = OpenFile(reading)
            stack.callback(source.close)
            try:
                call = stack.enter_context(self._call(request, [writing]))
            finally:
                os.close(writing)
            reply = await _result(call)
            return reply, _read_all(source, stack.pop_all())

    async def _command(self, request: Message, pod: PodAddress, container: str, streams: CommandStreams) -> int:
        has = [streams.stdin is not None, streams.stdout is not None, streams.stderr is not None]
        request = {**request, "pod": asdict(pod), "container": container, "tty": streams.sizes is not None, "has": has}
        pipes = CommandPipes(streams)
        try:
            with self._call(request, pipes.theirs) as call:
                async with Tasks() as tasks, pipes.copying():
                    if streams.sizes is not None:
                        tasks.start(_send_sizes(streams.sizes, call))
                    reply = await _result(call)
                return int(reply["code"])
        finally:
            pipes.close()


async def _result(call: OpenRequest) -> Message:
    """Return the answer of the agent. Raise the ApiError or OSError that it stands for."""
    try:
        reply, _ = await call.reply(timeout=None)
    except RuntimeFailure as error:
        raise ConnectionResetError(str(error)) from error
    if "status" in reply:
        raise error_of_status(reply["status"])
    if "errno" in reply:
        raise OSError(reply["errno"], reply["message"])
    return reply


async def _send_sizes(sizes: AsyncIterator[TerminalSize], call: OpenRequest) -> None:
    async for size in sizes:
        call.channel.post({"op": "resize", "width": size.width, "height": size.height})


async def _read_all(source: OpenFile, opened: contextlib.ExitStack) -> AsyncIterator[bytes]:
    with opened:
        while data := await source.read():
            yield data
