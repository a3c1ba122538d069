"""A node whose containers are processes of this machine, for tests of every stream."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import pty
import signal
import struct
import termios
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from pinnace.model import errors
from pinnace.model.node_connections import CommandStreams, ContainerLogOptions, PodAddress, TerminalSize
from pinnace.process.byte_streams import ByteReader, ByteWriter, Duplex, ProxyResponse

PIECE = 64 * 1024


@dataclass(slots=True)
class ProcessNode:
    """A `NodeConnection`. Its pods share this machine's ports, and each container has a list of lines for a log."""

    host: str = ""
    lines: dict[str, list[bytes]] = field(default_factory=dict)
    calls: list[object] = field(default_factory=list)
    """The received requests."""
    ended: list[str] = field(default_factory=list)
    """The ended commands and their results."""
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60), self.changed:
            await self.changed.wait_for(holds)

    async def _end(self, what: str) -> None:
        async with self.changed:
            self.ended.append(what)
            self.changed.notify_all()

    async def _begin(self, what: object) -> None:
        async with self.changed:
            self.calls.append(what)
            self.changed.notify_all()

    async def say(self, container: str, line: bytes) -> None:
        """Have a container write one more line."""
        async with self.changed:
            self.lines.setdefault(container, []).append(line)
            self.changed.notify_all()

    async def reach(self) -> None:
        """It is here."""

    async def exec(self, pod: PodAddress, container: str, command: Sequence[str], streams: CommandStreams) -> int:
        await self._begin((pod.name, container, *command))
        try:
            if command[0] == "refuse":
                raise errors.NotFound(group="", plural="containers", name=container)
            if command[0] == "break":
                raise RuntimeError("the runtime is broken")
            code = await (_on_terminal if streams.sizes is not None else _on_pipes)(command, streams)
        except asyncio.CancelledError:
            await asyncio.shield(self._end("cancelled"))
            raise
        await self._end(f"exit {code}")
        return code

    async def attach(self, pod: PodAddress, container: str, streams: CommandStreams) -> int:
        return await self.exec(pod, container, ["cat"] if streams.stdin is not None else ["echo", "attached"], streams)

    async def logs(self, pod: PodAddress, container: str, options: ContainerLogOptions) -> AsyncIterator[bytes]:
        await self._begin(options)
        if options.previous:
            raise errors.BadRequest(f'previous terminated container "{container}" in pod "{pod.name}" not found')
        return self._lines(container, options)

    async def _lines(self, container: str, options: ContainerLogOptions) -> AsyncIterator[bytes]:
        lines = self.lines.setdefault(container, [])
        at = max(0, len(lines) - options.tail_lines) if options.tail_lines is not None else 0
        left = options.limit_bytes if options.limit_bytes is not None else 1 << 60
        try:
            while left:
                async with self.changed:
                    while options.follow and len(lines) == at:
                        await self.changed.wait()
                    waiting = lines[at:]
                if not waiting:
                    return
                for line in waiting:
                    stamp = b"2030-01-01T00:00:00Z " if options.timestamps else b""
                    piece = (stamp + line)[:left]
                    left -= len(piece)
                    yield piece
                at += len(waiting)
                if not options.follow:
                    return
        finally:
            await asyncio.shield(self._end("log"))

    async def connect(self, pod: PodAddress, port: int) -> Duplex:
        await self._begin(("connect", pod.name, port))
        return Duplex(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(
        self, method: str, target: str, headers: Sequence[tuple[bytes, bytes]], body: bytes, *, upgrade: bytes = b""
    ) -> ProxyResponse:
        return _Page(200, [(b"Content-Type", b"text/plain")], f"{method} {target}\n".encode() + body)


@dataclass(slots=True)
class _Page:
    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self.body

    def close(self) -> None:
        """Nothing to close."""


def _take_interrupts() -> None:
    """A shell in the background ignores SIGINT, and all its children with it; a container starts with the defaults."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


async def _on_pipes(command: Sequence[str], streams: CommandStreams) -> int:
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=pipe if streams.stdin is not None else nothing,
        stdout=pipe if streams.stdout is not None else nothing,
        stderr=pipe if streams.stderr is not None else nothing,
        start_new_session=True,
    )
    feeding = asyncio.ensure_future(_feed(streams.stdin, process.stdin))
    pouring = [
        asyncio.ensure_future(_pour(process.stdout, streams.stdout)),
        asyncio.ensure_future(_pour(process.stderr, streams.stderr)),
    ]
    try:
        await asyncio.gather(*pouring)
        return await process.wait()
    finally:
        for task in (feeding, *pouring):
            task.cancel()
        await asyncio.gather(*pouring, return_exceptions=True)
        if process.returncode is None:
            _kill(process)
            # Not `wait`: asyncio waits until all output of the process is read.
            await process.communicate()


async def _feed(reader: ByteReader | None, writer: asyncio.StreamWriter | None) -> None:
    if reader is None or writer is None:
        return
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(PIECE):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _pour(reader: ByteReader | None, writer: ByteWriter | None) -> None:
    if reader is None or writer is None:
        return
    while data := await reader.read(PIECE):
        writer.write(data)
        await writer.drain()


async def _on_terminal(command: Sequence[str], streams: CommandStreams) -> int:
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    sizes = streams.sizes
    assert sizes is not None
    _resize(ours, await anext(aiter(sizes)))
    process = await asyncio.create_subprocess_exec(
        *command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, preexec_fn=_take_interrupts
    )
    os.close(theirs)
    tasks = [asyncio.ensure_future(_type(streams.stdin, ours)), asyncio.ensure_future(_follow(sizes, ours))]
    try:
        while data := await _read(ours):
            if streams.stdout is not None:
                streams.stdout.write(data)
                await streams.stdout.drain()
        return await process.wait()
    finally:
        for task in tasks:
            task.cancel()
        if process.returncode is None:
            _kill(process)
            await process.wait()
        os.close(ours)


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):  # It may have ended just now: with its input, for one.
        os.killpg(process.pid, signal.SIGKILL)  # Its children, too: they hold its streams.


def _resize(terminal: int, size: TerminalSize) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size.height, size.width, 0, 0))


async def _follow(sizes: AsyncIterator[TerminalSize], terminal: int) -> None:
    async for size in sizes:
        _resize(terminal, size)


async def _type(reader: ByteReader | None, terminal: int) -> None:
    while reader is not None and (data := await reader.read(PIECE)):
        os.write(terminal, data)


async def _read(terminal: int) -> bytes:
    loop = asyncio.get_running_loop()
    while True:
        try:
            return os.read(terminal, PIECE)
        except BlockingIOError:
            ready = asyncio.Event()
            loop.add_reader(terminal, ready.set)
            try:
                await ready.wait()
            finally:
                loop.remove_reader(terminal)
        except OSError as error:
            if error.errno == errno.EIO:  # The last process has closed its side.
                return b""
            raise
