"""Pipes and terminals on the event loop, by their file descriptors, and the pipes of a command."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable

from pinnace.model.node_connections import CommandStreams
from pinnace.process.byte_streams import ByteReader, ByteWriter
from pinnace.process.tasks import Tasks

_CHUNK = 65536
LAST_OUTPUT_SECONDS = 5.0
"""How long output is awaited after the end of a command that has left its streams to another process."""


class OpenFile:
    """A pipe or terminal that this process owns. Close it."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self._loop = asyncio.get_running_loop()

    async def read(self, size: int = _CHUNK) -> bytes:
        """Return some bytes; empty at the end, and when the other side of a terminal is closed."""
        while True:
            try:
                return os.read(self.fd, size)
            except BlockingIOError:
                await self._wait(self._loop.add_reader, self._loop.remove_reader)
            except OSError:
                return b""

    async def write(self, data: bytes) -> None:
        """Write everything. Raise OSError if the other side is closed."""
        while data:
            try:
                data = data[os.write(self.fd, data) :]
            except BlockingIOError:
                await self._wait(self._loop.add_writer, self._loop.remove_writer)

    def close(self) -> None:
        if self.fd >= 0:
            self._loop.remove_reader(self.fd)
            self._loop.remove_writer(self.fd)
            os.close(self.fd)
            self.fd = -1

    async def _wait(self, add: Callable[..., object], remove: Callable[[int], object]) -> None:
        ready = asyncio.Event()
        add(self.fd, ready.set)
        try:
            await ready.wait()
        finally:
            if self.fd >= 0:  # Another file may have the number of one that was closed meanwhile.
                remove(self.fd)


class CommandPipes:
    """The six ends of the streams of a command without a terminal."""

    def __init__(self, streams: CommandStreams) -> None:
        self._streams = streams
        self.theirs: list[int] = []
        self._stdin: OpenFile | None = None
        if streams.stdin is not None:
            reading, writing = os.pipe()
            self.theirs.append(reading)
            self._stdin = OpenFile(writing)
        else:
            self.theirs.append(os.open(os.devnull, os.O_RDONLY))
        self._outputs: list[OpenFile] = []
        for _ in range(2):
            reading, writing = os.pipe()
            self.theirs.append(writing)
            self._outputs.append(OpenFile(reading))

    @contextlib.asynccontextmanager
    async def copying(self) -> AsyncIterator[None]:
        """Copy the streams while a command runs within a block, and its last output afterwards.

        The command has received its ends: they are closed here, so that its end is the end of the streams.
        """
        self._release()
        async with Tasks() as tasks:
            if self._stdin is not None and self._streams.stdin is not None:
                tasks.start(_feed(self._streams.stdin, self._stdin))
            copies = [
                tasks.start(copy_output(source, target))
                for source, target in zip(self._outputs, (self._streams.stdout, self._streams.stderr), strict=True)
            ]
            yield
            await asyncio.wait(copies, timeout=LAST_OUTPUT_SECONDS)

    def close(self) -> None:
        self._release()
        for opened in (self._stdin, *self._outputs):
            if opened is not None:
                opened.close()

    def _release(self) -> None:
        for fd in self.theirs:
            os.close(fd)
        self.theirs = []


async def _feed(source: ByteReader, target: OpenFile) -> None:
    await copy_input(source, target)
    target.close()


async def copy_output(source: OpenFile, target: ByteWriter | None) -> None:
    """Copy until the end of the source. Output that no client wants, or whose client is gone, is read and dropped."""
    while data := await source.read():
        if target is None:
            continue
        try:
            target.write(data)
            await target.drain()
        except (ConnectionError, RuntimeError):
            target = None


async def copy_input(source: ByteReader, target: OpenFile) -> None:
    """Copy until the end of the source or until the process no longer reads."""
    with contextlib.suppress(OSError):
        while data := await source.read(_CHUNK):
            await target.write(data)


async def wait_until_connected(opened: socket.socket) -> None:
    """Wait for the end of a connection attempt that another process has begun. Raise OSError if it fails."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_writer(opened.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(opened.fileno())
    error = opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))
