"""Exec and attach through a supervisor: this process owns one end of each pipe, the container the other."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import struct
import termios
from collections.abc import AsyncIterator, Sequence

from pinnace.model.node_connections import CommandStreams, TerminalSize
from pinnace.node.errors import StartFailed
from pinnace.node.machine.channels import Channel
from pinnace.node.machine.messages import Message
from pinnace.node.machine.open_files import LAST_OUTPUT_SECONDS, CommandPipes, OpenFile, copy_input, copy_output
from pinnace.process.tasks import Tasks


async def run_command(channel: Channel, container: str, command: Sequence[str], streams: CommandStreams) -> int:
    """Run a command in a container and return its exit code. It is killed if the call is cancelled."""
    request: Message = {"op": "exec", "id": container, "command": list(command), "tty": streams.sizes is not None}
    if streams.sizes is not None:
        return await _with_terminal(channel, request, streams)
    pipes = CommandPipes(streams)
    try:
        with channel.open_request(request, pipes.theirs) as opened:
            async with pipes.copying(), _killed_when_cancelled(channel, opened.number):
                reply, _ = await opened.reply(timeout=None)
            return _code(reply)
    finally:
        pipes.close()


async def attach_streams(
    channel: Channel, container: str, streams: CommandStreams, *, tty: bool, ended: asyncio.Event
) -> None:
    """Copy the output of a container until it ends, and the client's input into it."""
    pipes = [os.pipe() for _ in range(1 if tty else 2)]
    readers = [OpenFile(reading) for reading, _ in pipes]
    try:
        try:
            _, fds = await channel.request({"op": "attach", "id": container}, [writing for _, writing in pipes])
        finally:
            for _, writing in pipes:
                os.close(writing)
        async with Tasks() as tasks:
            copies = [tasks.start(copy_output(readers[0], streams.stdout))]
            if not tty:
                copies.append(tasks.start(copy_output(readers[1], streams.stderr)))
            _feed(tasks, streams, fds)
            await asyncio.wait([*copies, tasks.start(ended.wait())], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(copies, timeout=LAST_OUTPUT_SECONDS)
    finally:
        for reader in readers:
            reader.close()


def _feed(tasks: Tasks, streams: CommandStreams, fds: list[int]) -> None:
    """Start to copy the client's input to the one file that was received, if there is one."""
    if not fds:
        return
    if streams.stdin is None:
        os.close(fds[0])
        return
    tasks.start(_feed_and_close(streams, OpenFile(fds[0])))


async def _feed_and_close(streams: CommandStreams, target: OpenFile) -> None:
    try:
        async with Tasks() as tasks:
            if streams.sizes is not None:
                tasks.start(_resize(streams.sizes, target.fd))
            assert streams.stdin is not None
            await copy_input(streams.stdin, target)
    finally:
        target.close()


async def _with_terminal(channel: Channel, request: Message, streams: CommandStreams) -> int:
    with channel.open_request(request) as opened:
        async with Tasks() as tasks, _killed_when_cancelled(channel, opened.number):
            reply, fds = await opened.reply()
            if "terminal" not in reply:
                return _code(reply)
            master = OpenFile(fds[0])
            try:
                if streams.stdin is not None:
                    tasks.start(copy_input(streams.stdin, master))
                assert streams.sizes is not None
                tasks.start(_resize(streams.sizes, master.fd))
                copy = tasks.start(copy_output(master, streams.stdout))
                reply, _ = await opened.reply(timeout=None)
                await asyncio.wait([copy], timeout=LAST_OUTPUT_SECONDS)
                return _code(reply)
            finally:
                await tasks.close()
                master.close()


async def _resize(sizes: AsyncIterator[TerminalSize], fd: int) -> None:
    async for size in sizes:
        with contextlib.suppress(OSError, struct.error):  # It has ended, or the numbers are no size.
            fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", size.height, size.width, 0, 0))


@contextlib.asynccontextmanager
async def _killed_when_cancelled(channel: Channel, number: int) -> AsyncIterator[None]:
    try:
        yield
    except asyncio.CancelledError:
        channel.post({"op": "kill_exec", "exec": number})
        raise


def _code(reply: Message) -> int:
    if reply.get("error"):
        raise StartFailed(reply["error"], exit_code=126 if "permission" in reply["error"] else 127)
    return int(reply["code"])


class OutputCollector:
    """A ByteWriter that keeps the first bytes, for probes and hooks."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes, /) -> None:
        kept = data[: self._limit - self._size]
        self._size += len(kept)
        self._parts.append(kept)

    async def drain(self) -> None:
        """Return at once: what is over the limit is dropped."""

    def write_eof(self) -> None:
        """Nothing follows."""

    def close(self) -> None:
        """There is nothing to close."""

    @property
    def data(self) -> bytes:
        return b"".join(self._parts)
