"""exec -it on a real terminal: every key reaches the command, its size is sent, and the terminal is restored."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import signal
import struct
import sys
import termios
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from tests.cli.streaming_twin import Pinnace, cluster, environment, kubectl, node, ours
from tests.server.streaming.conftest import POD, SECONDS
from tests.server.streaming.process_node import ProcessNode

__all__ = ["cluster", "kubectl", "node", "ours"]


@dataclass(slots=True)
class Terminal:
    """The user's side of a terminal. pinnace runs on its other side, as the leader of a session."""

    ours: int
    theirs: int
    seen: bytearray = field(default_factory=bytearray)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    async def until(self, words: bytes) -> None:
        """Read until these words have been shown. They are not found twice."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(SECONDS):
            while words not in self.seen:
                ready = asyncio.Event()
                loop.add_reader(self.ours, ready.set)
                try:
                    await ready.wait()
                finally:
                    loop.remove_reader(self.ours)
                self.seen += os.read(self.ours, 65536)
        del self.seen[: self.seen.index(words) + len(words)]

    @property
    def is_raw(self) -> bool:
        return not termios.tcgetattr(self.theirs)[3] & termios.ICANON


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    result = Terminal(ours, theirs)
    result.resize(91, 17)
    yield result
    os.close(ours)
    os.close(theirs)


async def started(ours: Pinnace, terminal: Terminal, *arguments: str) -> asyncio.subprocess.Process:
    # setsid alone gives no controlling terminal, without which no process gets SIGWINCH: a shell takes it.
    take = (
        "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.executable, sys.argv[1:])"
    )
    command = [sys.executable, "-m", "pinnace.cli.main", *arguments]
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        take,
        *command,
        stdin=terminal.theirs,
        stdout=terminal.theirs,
        stderr=terminal.theirs,
        start_new_session=True,
        env={**environment(ours.kubeconfig), "COLUMNS": "7", "LINES": "7"},  # Which are not the terminal's.
    )


async def test_a_shell_can_be_talked_to(ours: Pinnace, terminal: Terminal, node: ProcessNode) -> None:
    # The command may begin before it knows the size: it waits for that.
    script = "until test \"$(stty size)\" = '17 91'; do sleep 0.05; done; stty size; exec cat"
    process = await started(ours, terminal, "exec", "-it", POD, "--", "sh", "-c", script)
    await terminal.until(b"17 91\r\n")
    assert terminal.is_raw
    terminal.type(b"hello\r")
    await terminal.until(b"hello\r\nhello\r\n")  # Once as it is typed, by the container's terminal, and once by cat.
    terminal.type(b"\x04")
    async with asyncio.timeout(SECONDS):
        assert await process.wait() == 0
    assert not terminal.is_raw


async def test_a_new_size_gets_to_the_command(ours: Pinnace, terminal: Terminal, node: ProcessNode) -> None:
    # Being told the first size is a change, too.
    trap = 'test "$(stty size)" = "40 120" && { stty size; kill $!; exit 3; }'
    script = f"trap '{trap}' WINCH; echo ready; sleep 1000 & while :; do wait; done"
    process = await started(ours, terminal, "exec", "-it", POD, "--", "bash", "-c", script)
    await terminal.until(b"ready\r\n")
    terminal.resize(120, 40)
    await terminal.until(b"40 120\r\n")
    await terminal.until(b"command terminated with exit code 3")
    async with asyncio.timeout(SECONDS):
        assert await process.wait() == 3
    assert not terminal.is_raw


@pytest.fixture(params=["default", "ignored"])
def interrupts(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run the test with the default handling of SIGINT and with SIGINT ignored, as in a background job of a shell."""
    before = signal.getsignal(signal.SIGINT)
    if request.param == "ignored":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
async def test_an_interrupt_is_the_commands_not_ours(ours: Pinnace, terminal: Terminal, node: ProcessNode) -> None:
    script = "trap 'echo interrupted; exit 5' INT; echo ready; while :; do read line; done"
    process = await started(ours, terminal, "exec", "-it", POD, "--", "bash", "-c", script)
    await terminal.until(b"ready\r\n")
    terminal.type(b"\x03")
    await terminal.until(b"interrupted\r\n")
    async with asyncio.timeout(SECONDS):
        assert await process.wait() == 5


async def test_a_terminal_is_as_before_when_the_command_cannot_run(
    ours: Pinnace, terminal: Terminal, node: ProcessNode
) -> None:
    process = await started(ours, terminal, "exec", "-it", POD, "--", "refuse")
    await terminal.until(b'error: containers "main" not found\r\n')
    async with asyncio.timeout(SECONDS):
        assert await process.wait() == 1
    assert not terminal.is_raw
