"""Reading and writing pipes and terminals on the event loop, by their file descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

from pinnace.model.byte_streams import ByteReader, ByteWriter

_CHUNK = 65536


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
                await self._wait(reading=True)
            except OSError:
                return b""

    async def write(self, data: bytes) -> None:
        """Write everything. Raise OSError if the other side is closed."""
        while data:
            try:
                data = data[os.write(self.fd, data) :]
            except BlockingIOError:
                await self._wait(reading=False)

    def close(self) -> None:
        if self.fd >= 0:
            self._loop.remove_reader(self.fd)
            self._loop.remove_writer(self.fd)
            os.close(self.fd)
            self.fd = -1

    async def _wait(self, *, reading: bool) -> None:
        ready: asyncio.Future[None] = self._loop.create_future()
        add, remove = (
            (self._loop.add_reader, self._loop.remove_reader)
            if reading
            else (self._loop.add_writer, self._loop.remove_writer)
        )
        add(self.fd, _resolve, ready)
        try:
            await ready
        finally:
            if self.fd >= 0:
                remove(self.fd)


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


def _resolve(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def wait_until_writable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(fd, _resolve, ready)
    try:
        await ready
    finally:
        loop.remove_writer(fd)


async def wait_until_connected(opened: socket.socket) -> None:
    """Wait for the end of a connection attempt that another process has begun. Raise OSError if it fails."""
    await wait_until_writable(opened.fileno())
    error = opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))
