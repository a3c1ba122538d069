"""Notices when one piece of work holds the event loop, and names the place in the code.

The loop takes the time every `BEAT_SECONDS`. A thread looks at that time as often and, while it is older than the
shortest stall, records the stack of the loop's thread. The next beat counts the stall and logs it, once per place. A
request costs nothing; the whole watch takes less than a thousandth of a CPU.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile

from pinnace.model.thread_stacks import Frame, Stack, stack_of_thread
from pinnace.server.metrics import RequestMetrics

BEAT_SECONDS = 0.05
STALL_SECONDS = 0.1
"""A turn of the loop that takes longer is a stall."""
WORK = "work"
"""The cause of a stall whose CPU time alone makes it a stall."""
WAIT = "wait"
"""The cause of every other stall: a blocking call, or a machine that is busy with other processes."""

_MOST_STACKS = 50
_PACKAGE = "/pinnace/"
_LOOP = ("/asyncio/events.py", "/asyncio/base_events.py", "/asyncio/runners.py")
"""The functions of the loop itself, which every stack has at its end."""

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
        self._beaten = 0.0
        self._beaten_cpu = 0.0
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
        stop = threading.Event()
        self._begin()
        of_loop = threading.get_ident()
        threading.Thread(target=self._sample, args=(of_loop, stop), name="stall-watch", daemon=True).start()
        try:
            while True:
                await asyncio.sleep(BEAT_SECONDS)
                self._beat()
        finally:
            self._beat()
            stop.set()

    def _begin(self) -> None:
        self._beaten, self._beaten_cpu = time.monotonic(), time.thread_time()

    def _beat(self) -> None:
        seconds = time.monotonic() - self._beaten - BEAT_SECONDS
        if seconds >= self._least:
            self._count(Stall(seconds, time.thread_time() - self._beaten_cpu, _most_common(self._stacks)))
        if self._stacks:
            self._stacks = []
        self._begin()

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
            "\n".join(f"  {frame}" for frame in stall.stack),
        )

    def _sample(self, of_loop: int, stop: threading.Event) -> None:
        """Record the stack of the loop's thread while the last beat is old. Runs in a thread of its own."""
        while not stop.wait(BEAT_SECONDS):
            beaten = self._beaten
            if time.monotonic() - beaten - BEAT_SECONDS < self._least or len(self._stacks) >= _MOST_STACKS:
                continue
            stacks, stack = self._stacks, stack_of_thread(of_loop)
            if stack and self._beaten == beaten:
                stacks.append(_within_loop(stack))


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
