"""Keeps an agent from outliving the process that started it, and from stalling without being noticed.

The parent holds one end of two pipes. The child's standard input ends with the parent; over the other the child beats
as long as its event loop turns. An agent that has not beaten for `STALL_SECONDS` writes the stacks of its threads and
is killed: the parent starts another one, which finds the pods.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Mapping

from pinnace.node.agent.process import watching_parent
from pinnace.node.machine import linux

BEAT_SECONDS = 1.0
STALL_SECONDS = 30.0
"""As WatchdogSec of kubelet's unit. The longest turn of an agent's loop that was measured is below 1 s."""
FIRST_SECONDS = 60.0
"""The time until the first beat: a machine that starts many nodes imports their modules slowly."""
_DUMP_SECONDS = 1.0


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends: a killed server must not leave an agent behind.

    Standard input is a pipe whose other end the parent holds. The kernel is asked first and the pipe checked then:
    there is no moment at which the end of the parent is missed. The pods go on; the next agent finds them.
    """
    die_with_reader(0)
    threading.Thread(target=_end_with_input, name="parent", daemon=True).start()


def _end_with_input() -> None:
    """Wait for the end of the parent, also where the kernel reports it to another process."""
    with contextlib.suppress(OSError):
        while os.read(0, 1):
            pass
    os.kill(os.getpid(), signal.SIGKILL)


def start_watched(command: list[str]) -> int:
    """Go on in a child of this process, which becomes a small parent that watches it. Return the pipe for its beats.

    The parent runs `command --beats N` when the child has stalled.
    """
    reading, writing = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, watching_parent.FORWARDED)  # Until the parent can pass them on.
    child = os.fork()
    if child:
        os.set_inheritable(reading, True)
        arguments = [watching_parent.__file__, str(child), str(reading), *command]
        os.execv(sys.executable, [sys.executable, "-I", "-S", *arguments])
    signal.pthread_sigmask(signal.SIG_UNBLOCK, watching_parent.FORWARDED)
    os.close(reading)
    die_with_reader(writing)
    return writing


def die_with_reader(pipe: int) -> None:
    """Let the kernel kill this process when its parent ends, which holds the other end of a pipe. The pods go on."""
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    ended = select.poll()
    ended.register(pipe, 0)
    if ended.poll(0):
        os._exit(1)


def beat(fd: int) -> None:
    """Beat over a pipe from now on, while the running loop turns. On SIGQUIT the stacks of all threads are written."""
    with contextlib.suppress(OSError, ValueError):  # Standard error may be no file, as in a test.
        faulthandler.register(signal.SIGQUIT, file=sys.stderr, all_threads=True, chain=False)
    os.set_blocking(fd, False)
    loop = asyncio.get_running_loop()

    def send() -> None:
        with contextlib.suppress(OSError):  # The parent reads slowly, or has ended.
            os.write(fd, b".")
        loop.call_later(BEAT_SECONDS, send)

    send()


async def await_stall(fd: int, *, first: float = FIRST_SECONDS, stall: float = STALL_SECONDS) -> float:
    """Read beats, and return the seconds of silence once they are too many. It returns 0 when the pipe ends."""
    loop = asyncio.get_running_loop()
    news = asyncio.Event()
    os.set_blocking(fd, False)
    loop.add_reader(fd, news.set)
    limit = first
    try:
        while True:
            # The first timeout may be that of a parent that was paused: waiting beats are read before the second.
            if not (await _is_set(news, limit) or await _is_set(news, min(limit, 2 * BEAT_SECONDS))):
                return limit
            news.clear()
            with contextlib.suppress(BlockingIOError):
                if not os.read(fd, 4096):
                    return 0.0
            limit = stall
    finally:
        loop.remove_reader(fd)


async def end_stalled(process: asyncio.subprocess.Process) -> None:
    """Let a stalled agent write its stacks, then kill it. Its pods go on."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGQUIT)
        await asyncio.sleep(_DUMP_SECONDS)
        process.kill()


async def notify_systemd(environment: Mapping[str, str]) -> None:
    """Report the start to systemd, then beat for WatchdogSec of the unit until cancelled, as kubelet does."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as connection:
        connection.connect("\0" + address[1:] if address.startswith("@") else address)
        connection.send(b"READY=1")
        microseconds = environment.get("WATCHDOG_USEC", "")
        is_ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        while microseconds.isdecimal() and int(microseconds) and is_ours:
            connection.send(b"WATCHDOG=1")
            await asyncio.sleep(int(microseconds) / 1e6 / 2)


async def _is_set(news: asyncio.Event, seconds: float) -> bool:
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(news.wait())
        await asyncio.wait((waiting,), timeout=seconds)
        waiting.cancel()
    return news.is_set()
