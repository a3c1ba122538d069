"""Calls of the API server on the agent's socket: their files, their terminal sizes and their end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from pinnace.model.node_connections import CommandStreams, PodAddress, TerminalSize
from pinnace.node.agent.kubelet_api.connection import AgentConnection
from pinnace.node.agent.kubelet_api.socket_connection import SOCKET, SocketConnection
from pinnace.node.agent.kubelet_api.socket_server import AgentSocket
from pinnace.node.runtime.in_memory import InMemoryRuntime
from pinnace.process.clock import SystemClock
from pinnace.process.tasks import Tasks

PATIENCE = 60.0
POD = PodAddress("default", "pod", "")


class Commands(AgentConnection):
    """Commands that read no sizes before `reads` is set, and go on until they are cancelled."""

    def __init__(self, directory: Path) -> None:
        clock = SystemClock()
        super().__init__(InMemoryRuntime(directory, clock), clock)
        self.began, self.reads, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.sizes: list[TerminalSize] = []
        self.read = asyncio.Event()

    async def exec(self, pod: PodAddress, container: str, command: Sequence[str], streams: CommandStreams) -> int:
        self.began.set()
        try:
            await self.reads.wait()
            assert streams.sizes is not None
            async for size in streams.sizes:
                self.sizes.append(size)
                self.read.set()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return 0


async def _sizes(count: int, ended: asyncio.Event) -> AsyncIterator[TerminalSize]:
    for number in range(1, count + 1):
        yield TerminalSize(number, number)
    ended.set()
    await asyncio.get_running_loop().create_future()


async def _until_listening(tasks: Tasks, path: Path, commands: Commands) -> None:
    tasks.start(AgentSocket(path, commands).run())
    async with asyncio.timeout(PATIENCE):
        while not path.exists():
            await asyncio.sleep(0)


async def test_a_flood_of_terminal_sizes_leaves_the_last_one(tmp_path: Path) -> None:
    commands, path, sent = Commands(tmp_path), tmp_path / SOCKET, asyncio.Event()
    async with Tasks(expected=()) as tasks, asyncio.timeout(PATIENCE):
        await _until_listening(tasks, path, commands)
        streams = CommandStreams(sizes=_sizes(100, sent))
        tasks.start(SocketConnection(path).exec(POD, "main", ["sh"], streams))
        await commands.began.wait()
        await sent.wait()
        commands.reads.set()
        while TerminalSize(100, 100) not in commands.sizes:
            await commands.read.wait()
            commands.read.clear()
    assert commands.sizes == sorted(commands.sizes, key=lambda size: size.width)


async def test_a_client_that_goes_away_cancels_its_command_and_leaves_no_file_open(tmp_path: Path) -> None:
    commands, path = Commands(tmp_path), tmp_path / SOCKET
    async with Tasks(expected=()) as tasks, asyncio.timeout(PATIENCE):
        await _until_listening(tasks, path, commands)
        before = len(os.listdir("/proc/self/fd"))
        call = tasks.start(SocketConnection(path).exec(POD, "main", ["sh"], CommandStreams()))
        await commands.began.wait()
        call.cancel()
        await commands.cancelled.wait()
        while len(os.listdir("/proc/self/fd")) > before:
            await asyncio.sleep(0)
