"""Notices when one piece of work holds the event loop, and names the place in the code.

A thread looks at the loop's thread every `SAMPLE_SECONDS`. If that runs anything but its wait for events, the thread
asks the loop for a callback and records stacks until the loop makes it. A late callback counts as a stall, which is
logged once per place. A request costs nothing, and the watch never wakes an idle loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

from pinnace.model.thread_stacks import Frame, Stack, file_of_thread, stack_of_thread
from pinnace.server.metrics import RequestMetrics

SAMPLE_SECONDS = 0.05
IDLE_SAMPLE_SECONDS = 0.1
"""Between samples while the loop uses no CPU time: a stall of twice this length is always noticed."""
STALL_SECONDS = 0.1
"""A turn of the loop that takes longer is a stall."""
WORK = "work"
"""The cause of a stall whose CPU time alone makes it a stall."""
WAIT = "wait"
"""The cause of every other stall: a blocking call, or a machine that is busy with other processes."""

_BUSY_SECONDS = 0.001
_MOST_STACKS = 50
_PACKAGE = "/pinnace/"
_LOOP = ("/asyncio/events.py", "/asyncio/base_events.py", "/asyncio/runners.py", "/uvloop/__init__.py", "/selectors.py")
"""The functions of the loop itself, which every stack has at its end."""
_IMPORTS = "<frozen importlib"
"""The frames of an import, which say nothing: several for each module."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stall:
    """A time in which the loop handled no other event."""

    seconds: float
    cpu_seconds: float
    """The CPU time that the loop's thread used meanwhile."""
    stack: Stack
    """The most frequent stack of the loop's thread; empty if it never released the interpreter's lock."""

    @property
    def cause(self) -> str:
        return WORK if self.cpu_seconds >= STALL_SECONDS else WAIT

    @property
    def place(self) -> Frame | None:
        """The innermost function of this package."""
        return next((frame for frame in self.stack if _PACKAGE in frame.file), None)


class StallWatch:
    """Watches the loop that runs it."""

    def __init__(self, *, least: float = STALL_SECONDS, on_stall: Callable[[Stall], None] | None = None) -> None:
        """`on_stall` is called in the loop's thread, after each stall."""
        self.counts = {WORK: 0, WAIT: 0}
        """Stalls by cause."""
        self.seconds = {WORK: 0.0, WAIT: 0.0}
        """The total duration of the stalls by cause."""
        self.longest_cpu_seconds = 0.0
        """The CPU time of the stall that took most."""
        self._least = least
        self._on_stall = on_stall
        self._cpu_time: Callable[[], float] = time.thread_time
        self._asked: float | None = None
        """The time at which the thread asked for a callback that has not come yet."""
        self._free_cpu = 0.0
        """The CPU time of the loop's thread at the sample before that."""
        self._stacks: list[Stack] = []
        self._logged: set[tuple[str, str]] = set()

    def measured_by(self, metrics: RequestMetrics) -> None:
        metrics.gauge(
            "pinnace_loop_stalls_total",
            "Times in which the event loop handled no request for 0.1 s or longer, by cause.",
            lambda: [((("cause", cause),), float(count)) for cause, count in self.counts.items()],
        )
        metrics.gauge(
            "pinnace_loop_stall_seconds_total",
            "The total duration of the stalls of the event loop, by cause.",
            lambda: [((("cause", cause),), seconds) for cause, seconds in self.seconds.items()],
        )
        metrics.gauge(
            "pinnace_loop_longest_stall_cpu_seconds",
            "The CPU time of the stall of the event loop that took most of it.",
            lambda: [((), self.longest_cpu_seconds)],
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        running, loop, of_loop = threading.Lock(), asyncio.get_running_loop(), threading.get_ident()
        running.acquire()
        self._cpu_time = _cpu_clock(of_loop)
        sample = partial(self._sample, loop, of_loop, running, self._cpu_time())
        threading.Thread(target=sample, name="stall-watch", daemon=True).start()
        try:
            await loop.create_future()
        finally:
            running.release()
            self._answer()

    def _answer(self) -> None:
        """Count a stall if the thread has asked for this callback long ago. Called by the loop."""
        if self._asked is None:
            return
        seconds = time.monotonic() - self._asked
        if seconds >= self._least:
            self._count(Stall(seconds, self._cpu_time() - self._free_cpu, _most_common(self._stacks)))
        self._stacks = []
        self._asked = None

    def _count(self, stall: Stall) -> None:
        self.counts[stall.cause] += 1
        self.seconds[stall.cause] += stall.seconds
        self.longest_cpu_seconds = max(self.longest_cpu_seconds, stall.cpu_seconds)
        self._log(stall)
        if self._on_stall is not None:
            self._on_stall(stall)

    def _log(self, stall: Stall) -> None:
        place = stall.place
        known = (place.file, place.function) if place is not None else ("", "")
        if known in self._logged or (place is None and stall.cause == WAIT):
            return
        self._logged.add(known)
        log.log(
            logging.WARNING if stall.cause == WORK else logging.INFO,
            "the event loop handled no request for %.2f s (%.2f s of CPU time) at %s; further stalls there are only "
            "counted in pinnace_loop_stalls_total\n%s",
            stall.seconds,
            stall.cpu_seconds,
            place or "an unknown place",
            "\n".join(f"  {frame}" for frame in stall.stack if not frame.file.startswith(_IMPORTS)),
        )

    def _sample(self, loop: asyncio.AbstractEventLoop, of_loop: int, running: threading.Lock, cpu: float) -> None:
        """Look at the loop's thread until the lock is released. Runs in a thread of its own."""
        pause = SAMPLE_SECONDS
        while not running.acquire(timeout=pause):  # An Event would cost three times as much.
            last_cpu, cpu = cpu, self._look(loop, of_loop, cpu)
            pause = SAMPLE_SECONDS if self._asked is not None or cpu - last_cpu > _BUSY_SECONDS else IDLE_SAMPLE_SECONDS

    def _look(self, loop: asyncio.AbstractEventLoop, of_loop: int, last_cpu: float) -> float:
        """Ask a busy loop for a callback, or record its stack while it owes one; return its CPU time."""
        cpu, stacks = self._cpu_time(), self._stacks
        if self._asked is not None:
            if len(stacks) < _MOST_STACKS and (stack := _within_loop(stack_of_thread(of_loop))):
                stacks.append(stack)
        elif not _is_waiting(of_loop) or cpu - last_cpu > SAMPLE_SECONDS / 2:  # Compiled code has no frame.
            self._free_cpu, self._asked = last_cpu, time.monotonic()
            with contextlib.suppress(RuntimeError):  # The loop has just been closed.
                loop.call_soon_threadsafe(self._answer)
        return cpu


def _is_waiting(of_loop: int) -> bool:
    """Whether the innermost function of a loop's thread is one of the loop itself."""
    file = file_of_thread(of_loop)
    return not file or file.endswith(_LOOP)


def _cpu_clock(thread: int) -> Callable[[], float]:
    """Return a clock of the CPU time of a thread; of the whole process where the system has no such clock."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.process_time
    return partial(time.clock_gettime, time.pthread_getcpuclockid(thread))


def _within_loop(stack: Stack) -> Stack:
    """Return the functions that the loop called, without those of the loop itself."""
    return tuple(takewhile(lambda frame: not frame.file.endswith(_LOOP), stack))


def _most_common(stacks: list[Stack]) -> Stack:
    """Return a stack of the function of this package in which the loop was found most often."""
    if not stacks:
        return ()
    functions = [_function(stack) for stack in stacks]
    most, _ = Counter(functions).most_common(1)[0]
    return stacks[functions.index(most)]


def _function(stack: Stack) -> tuple[str, str]:
    return next(((frame.file, frame.function) for frame in stack if _PACKAGE in frame.file), ("", ""))
