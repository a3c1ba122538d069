"""exec and attach: carry the streams of a command between a client and its node, in every protocol version."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Protocol

import msgspec
import orjson

from pinnace.model import errors
from pinnace.model.node_connections import CommandStreams, TerminalSize
from pinnace.model.objects import Object
from pinnace.process.byte_streams import ByteReader, ByteWriter, Duplex
from pinnace.process.tasks import Tasks
from pinnace.server.streaming.channels import Channels
from pinnace.server.streaming.spdy import SpdySession, SpdyStream
from pinnace.server.streaming.websocket import (
    NORMAL,
    WebSocket,
    is_websocket,
    ping_regularly,
    protocols_of,
    spdy_upgrade,
    websocket_upgrade,
)
from pinnace.serving.messages import Answer, Request, Takeover, reader_and_writer

_V5, _V4, _V3, _V2, _V1 = (f"{version}channel.k8s.io" for version in ("v5.", "v4.", "v3.", "v2.", ""))
_V4_BASE64, _V1_BASE64 = "v4.base64.channel.k8s.io", "base64.channel.k8s.io"
_WEBSOCKET = (_V5, _V4, _V4_BASE64, _V3, _V2, _V1, _V1_BASE64, "")
_SPDY = (_V4, _V3, _V2, _V1)
_WITH_STATUS = frozenset((_V5, _V4, _V4_BASE64))
"""These send the end of a command as a Status; the others send only an error message."""
_RESIZABLE = frozenset((_V4, _V3))
_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE = range(5)

STREAM_SECONDS = 30.0
"""How long a client may take to open the streams that it has requested."""
LINGER_SECONDS = 10.0
"""How long a client may take to close after the end. Closing earlier could discard data on its way."""
_LARGEST_SIZES = 64 * 1024

log = logging.getLogger(__name__)

Perform = Callable[[CommandStreams], Awaitable[int]]
"""Run the command and return its exit code."""


@dataclass(frozen=True, slots=True)
class RequestedStreams:
    """The streams that a client requests."""

    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool


class _Session(Protocol):
    """The client's side of a command, over WebSocket or SPDY."""

    async def run(self) -> None:
        """Read until the client leaves."""

    async def streams(self) -> CommandStreams:
        """Return the streams when the client has opened them all. Raise TimeoutError."""

    def finish(self, status: Object) -> None:
        """Send the status of the command, and end all streams."""

    def ping(self) -> None: ...

    async def drain(self) -> None: ...


def reports_status(request: Request) -> bool:
    """Whether this client gets the error of an unreachable node on its error stream, after the upgrade."""
    return is_websocket(request) and _V5 in protocols_of(request)


def serve_command(request: Request, wanted: RequestedStreams, perform: Perform) -> Answer:
    """Return the answer that turns the client's connection into the streams of a command."""
    if is_websocket(request):
        protocol, headers = websocket_upgrade(request, _WEBSOCKET)
        session: Callable[[Duplex], _Session] = lambda duplex: _WebSocketSession(duplex, wanted, protocol)  # noqa: E731
    else:
        protocol, headers = spdy_upgrade(request, _SPDY, without=_V1)
        session = lambda duplex: _SpdySession(duplex, wanted, protocol)  # noqa: E731

    async def run(transport: asyncio.Transport, leftover: bytes) -> None:
        await _run(session(Duplex(*await reader_and_writer(transport, leftover))), perform)

    return Takeover(run, headers)


async def _run(session: _Session, perform: Perform) -> None:
    """Run the command until it ends; cancel it if the client leaves."""
    async with Tasks() as tasks:
        reading = tasks.start(session.run())
        working = tasks.start(_perform_command(session, perform))
        pinging = tasks.start(ping_regularly(session.ping, session.drain))
        try:
            await asyncio.wait((reading, working, pinging), return_when=asyncio.FIRST_COMPLETED)
            if working.done() and not reading.done():
                session.finish(working.result())
                with suppress(OSError):  # A lost connection means that the client has left.
                    await session.drain()
                await asyncio.wait((reading,), timeout=LINGER_SECONDS)
        except asyncio.CancelledError:
            # Without a status the client would report success.
            session.finish(_failure_status("the server is stopping and has ended the command"))
            raise


async def _perform_command(session: _Session, perform: Perform) -> Object:
    """Run the command and return its result as a Status."""
    try:
        return _exit_status(await perform(await session.streams()))
    except errors.ApiError as refused:
        status = refused.status
        return {name: status[name] for name in status if name not in ("kind", "apiVersion")}
    except TimeoutError:
        return _failure_status("timed out waiting for client to create streams")
    except Exception as error:
        if not isinstance(error, OSError):
            log.error("a command failed", exc_info=error)
        return _failure_status(f"error executing command in container: {error}")


def _exit_status(code: int) -> Object:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: command terminated with exit code {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def _failure_status(why: str) -> Object:
    status = errors.InternalError(why).status
    return {name: status[name] for name in status if name not in ("kind", "apiVersion")}


def _encode_status(status: Object, protocol: str) -> bytes:
    """Return the bytes that the error stream carries at the end."""
    if protocol in _WITH_STATUS:
        return orjson.dumps(status)
    return b"" if status["status"] == "Success" else status["message"].encode()


class _WebSocketSession:
    def __init__(self, duplex: Duplex, wanted: RequestedStreams, protocol: str) -> None:
        self._protocol = protocol
        self._wanted = wanted
        read = [_STDIN, _RESIZE] if wanted.stdin else [_RESIZE]
        is_base64 = protocol in (_V4_BASE64, _V1_BASE64)
        self._channels = Channels(WebSocket(duplex), read, is_base64=is_base64, half_closes=protocol == _V5)
        # An empty message tells the client that the connection is ready.
        self._channels.send(_STDOUT if wanted.stdout else _STDERR if wanted.stderr else _ERROR, b"")

    async def run(self) -> None:
        await self._channels.run()

    async def streams(self) -> CommandStreams:
        wanted, channels = self._wanted, self._channels
        return CommandStreams(
            channels.pipes[_STDIN] if wanted.stdin else None,
            channels.writer(_STDOUT) if wanted.stdout else None,
            channels.writer(_STDERR) if wanted.stderr else None,
            _sizes(channels.pipes[_RESIZE]) if wanted.tty else None,
        )

    def finish(self, status: Object) -> None:
        if encoded := _encode_status(status, self._protocol):
            self._channels.send(_ERROR, encoded)
        self._channels.close(NORMAL)
        for pipe in self._channels.pipes.values():
            pipe.discard()

    def ping(self) -> None:
        self._channels.ping()

    async def drain(self) -> None:
        await self._channels.drain()


class _SpdySession:
    def __init__(self, duplex: Duplex, wanted: RequestedStreams, protocol: str) -> None:
        self._protocol = protocol
        self._wanted = wanted
        self._session = SpdySession(duplex, self._add_stream)
        self._opened: dict[str, SpdyStream] = {}
        self._missing = {"error"} | {name for name in ("stdin", "stdout", "stderr") if getattr(wanted, name)}
        if wanted.tty and protocol in _RESIZABLE:
            self._missing.add("resize")
        self._complete = asyncio.Event()

    def _add_stream(self, stream: SpdyStream) -> None:
        kind = stream.headers.get("streamtype", "")
        if kind not in self._missing:
            raise ValueError(f"unexpected stream type: {kind}")
        self._missing.discard(kind)
        self._opened[kind] = stream
        if not self._missing:
            self._complete.set()

    async def run(self) -> None:
        await self._session.run()

    async def streams(self) -> CommandStreams:
        async with asyncio.timeout(STREAM_SECONDS):
            await self._complete.wait()
        stdin: ByteReader | None = self._opened.get("stdin")
        stdout: ByteWriter | None = self._opened.get("stdout")
        stderr: ByteWriter | None = self._opened.get("stderr")
        resize = self._opened.get("resize")
        no_sizes = _sizes(_EmptyReader()) if self._wanted.tty else None
        return CommandStreams(stdin, stdout, stderr, _sizes(resize) if resize is not None else no_sizes)

    def finish(self, status: Object) -> None:
        for kind, stream in self._opened.items():
            if kind == "error":
                stream.write(_encode_status(status, self._protocol))
            stream.write_eof()
            stream.pipe.discard()

    def ping(self) -> None:
        self._session.ping()

    async def drain(self) -> None:
        await self._session.drain()


class _EmptyReader:
    async def read(self, n: int, /) -> bytes:
        return b""


_Length = Annotated[int, msgspec.Meta(ge=0, le=0xFFFF)]


class _Size(msgspec.Struct, rename="pascal"):
    """A size as clients send it: other fields are ignored, and other numbers cannot be the size of a terminal."""

    width: _Length = 0
    height: _Length = 0


async def _sizes(reader: ByteReader) -> AsyncIterator[TerminalSize]:
    """Yield the terminal sizes that the client sends as JSON objects, until one is malformed."""
    held = b""
    while data := await reader.read(4096):
        held = (held + data).lstrip()
        while (end := held.find(b"}") + 1) > 0:
            try:
                size = msgspec.json.decode(held[:end], type=_Size)
            except ValueError:
                return
            yield TerminalSize(size.width, size.height)
            held = held[end:].lstrip()
        if len(held) > _LARGEST_SIZES:
            return
