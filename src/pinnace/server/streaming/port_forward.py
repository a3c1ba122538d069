"""portforward: connections to a pod's ports over one connection to the client, in every protocol version."""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from pinnace.model import errors
from pinnace.model.node_connections import PodAddress
from pinnace.process.byte_streams import ByteReader, ByteWriter, Duplex, copy
from pinnace.process.tasks import Tasks
from pinnace.server.streaming.channels import Channels
from pinnace.server.streaming.spdy import SpdySession, SpdyStream
from pinnace.server.streaming.websocket import (
    GOING_AWAY,
    NORMAL,
    WebSocket,
    WebSocketError,
    is_websocket,
    ping_regularly,
    protocols_of,
    spdy_upgrade,
    websocket_upgrade,
)
from pinnace.serving.messages import Answer, Request, Takeover, reader_and_writer

_V1 = "portforward.k8s.io"
_TUNNELLED = f"SPDY/3.1+{_V1}"
_V4, _V4_BASE64 = "v4.channel.k8s.io", "v4.base64.channel.k8s.io"
PAIR_SECONDS = 30.0
"""How long a client may take to open the second stream of a connection."""

Connect = Callable[[int], Awaitable[Duplex]]
"""Connect to a port of the pod. Raise OSError or ApiError."""


def serve_ports(request: Request, pod: PodAddress, ports: Sequence[int], connect: Connect) -> Answer:
    """Return the answer that turns the client's connection into connections to the pod.

    `ports` is for clients that name the ports in the query; others name a port for each connection.
    """
    if not is_websocket(request):
        _, headers = spdy_upgrade(request, (_V1,), without=_V1)
        is_tunnelled = False
    elif any(protocol.startswith("SPDY/3.1+") for protocol in protocols_of(request)):
        _, headers = websocket_upgrade(request, (_TUNNELLED,))
        is_tunnelled = True
    else:
        protocol, headers = websocket_upgrade(request, (_V4, _V4_BASE64, ""))
        if not ports:
            raise errors.BadRequest('query parameter "ports" is required')

        async def run_channels(transport: asyncio.Transport, leftover: bytes) -> None:
            duplex = Duplex(*await reader_and_writer(transport, leftover))
            is_base64 = protocol == _V4_BASE64
            await _ChannelForwarding(WebSocket(duplex), pod, ports, connect, is_base64=is_base64).run()

        return Takeover(run_channels, headers)

    async def run(transport: asyncio.Transport, leftover: bytes) -> None:
        duplex = Duplex(*await reader_and_writer(transport, leftover))
        if is_tunnelled:
            messages = MessageStream(WebSocket(duplex))
            duplex = Duplex(messages, messages)
        await _SpdyForwarding(duplex, pod, connect).run()

    return Takeover(run, headers)


class MessageStream:
    """A stream of bytes over the messages of a WebSocket. A `ByteReader` and a `ByteWriter`."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._held = b""

    async def read(self, n: int, /) -> bytes:
        while not self._held:
            try:
                message = await self._socket.receive()
            except WebSocketError as bad:
                self._socket.close(bad.code)
                raise
            if message is None:
                return b""
            self._held = message
        taken, self._held = self._held[:n], self._held[n:]
        return taken

    def write(self, data: bytes, /) -> None:
        self._socket.send(data)

    async def drain(self) -> None:
        await self._socket.drain()

    def write_eof(self) -> None:
        raise NotImplementedError("a WebSocket cannot be half closed")

    def close(self) -> None:
        self._socket.close(NORMAL)


async def forward(port: int, pod: PodAddress, client: Duplex, connect: Connect) -> str:
    """Pass bytes between a client and a port until the pod closes. Return an error message, or an empty text."""
    try:
        there = await connect(port)
        try:
            async with Tasks() as upwards:
                upwards.start(_carry(client.reader, there.writer))
                await copy(there.reader, client.writer)
        finally:
            there.writer.close()
    except (OSError, errors.ApiError) as error:
        number = error.errno if isinstance(error, OSError) else None
        why = f"connect: {os.strerror(number).lower()}" if number else str(error)
        if why.startswith("error forwarding port"):
            return why  # The message is the kubelet's.
        return f"error forwarding port {port} to pod {pod.name}, uid {pod.uid}: {why}"
    return ""


async def _carry(reader: ByteReader, writer: ByteWriter) -> None:
    with suppress(OSError, NotImplementedError):  # The pod may close while the client still sends.
        await copy(reader, writer)
        writer.write_eof()


class _SpdyForwarding:
    """Each connection is a pair of streams with the same request id: one for data, one for errors."""

    def __init__(self, duplex: Duplex, pod: PodAddress, connect: Connect) -> None:
        self._session = SpdySession(duplex, self._add_stream)
        self._pod = pod
        self._connect = connect
        self._waiting: dict[str, tuple[SpdyStream, asyncio.Future[SpdyStream]]] = {}
        self._tasks = Tasks()

    async def run(self) -> None:
        async with self._tasks as tasks:
            pinging = tasks.start(ping_regularly(self._session.ping, self._session.drain))
            ends = pinging, tasks.start(self._session.run())
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                self._session.close()
                raise

    def _add_stream(self, stream: SpdyStream) -> None:
        kind, port = stream.headers.get("streamtype", ""), stream.headers.get("port", "")
        if kind not in ("data", "error") or not _is_port(port):
            raise ValueError(f"expected a data or error stream with a port, found {kind!r} with port {port!r}")
        # Clients without request ids open the error stream first, and the data stream right after it.
        request_id = stream.headers.get("requestid") or str(stream.number - (2 if kind == "data" else 0))
        if request_id not in self._waiting:
            other: asyncio.Future[SpdyStream] = asyncio.get_running_loop().create_future()
            self._waiting[request_id] = stream, other
            self._tasks.start(self._forward(request_id, stream, other))
            return
        first, other = self._waiting[request_id]
        if other.done() or first.headers["streamtype"] == kind:
            raise ValueError(f"{kind} stream already assigned")
        other.set_result(stream)

    async def _forward(self, request_id: str, first: SpdyStream, other: asyncio.Future[SpdyStream]) -> None:
        try:
            async with asyncio.timeout(PAIR_SECONDS):
                second = await other
        except TimeoutError:
            if first.headers["streamtype"] == "error":
                first.write(b"timed out waiting for streams")
            first.close()
            return
        finally:
            del self._waiting[request_id]
        data, error = (first, second) if first.headers["streamtype"] == "data" else (second, first)
        try:
            message = await forward(int(data.headers["port"]), self._pod, Duplex(data, data), self._connect)
            error.write(message.encode())
        finally:
            error.close()
            data.close()


class _ChannelForwarding:
    """One connection to each port of the query: channel 2n carries data, 2n + 1 errors."""

    def __init__(
        self, socket: WebSocket, pod: PodAddress, ports: Sequence[int], connect: Connect, *, is_base64: bool
    ) -> None:
        self._channels = Channels(socket, range(0, 2 * len(ports), 2), is_base64=is_base64)
        self._pod = pod
        self._ports = ports
        self._connect = connect

    async def run(self) -> None:
        for channel in range(2 * len(self._ports)):
            self._channels.send(channel, struct.pack("<H", self._ports[channel // 2]))
        async with Tasks() as tasks:
            working = [tasks.start(self._forward(index, port)) for index, port in enumerate(self._ports)]
            everything = asyncio.gather(*working, return_exceptions=True)
            pinging = tasks.start(ping_regularly(self._channels.ping, self._channels.drain))
            ends = tasks.start(self._channels.run()), pinging, everything
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                self._channels.close(NORMAL)
            except asyncio.CancelledError:
                self._channels.close(GOING_AWAY)
                raise

    async def _forward(self, index: int, port: int) -> None:
        client = Duplex(self._channels.pipes[2 * index], self._channels.writer(2 * index))
        error = await forward(port, self._pod, client, self._connect)
        self._channels.pipes[2 * index].discard()
        if error:
            self._channels.send(2 * index + 1, error.encode())


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text[:6]) < 1 << 16
