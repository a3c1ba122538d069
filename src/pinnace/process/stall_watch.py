"""Notices when one piece of work holds the event loop, and names the place in the code.

A thread looks at the loop's thread every `SAMPLE_SECONDS`. If that runs anything but its wait for events, the thread
asks the loop for a callback and records stacks until the loop makes it. A late callback counts as a stall, which is
logged once per place. A request costs nothing, and the watch never wakes an idle loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from types import FrameType

from pinnace.process.exposition import Sample
from pinnace.process.thread_stacks import Frame, Stack, file_of_thread, stack_of_thread

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

LONG_TURN = 1.0
"""Seconds of CPU time in one turn of the loop after which it is judged."""
_SIGNAL = signal.SIGURG
_LOOK_AGAIN = 1.0
"""Seconds of CPU time between two looks at the same turn."""

Judge = Callable[[int, float, FrameType | None], None]
"""Called in the loop's thread, inside of what runs there, with the number of the turn, the CPU time that it has taken,
and its frame. May raise what ends it."""

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


class LoopGuard:
    """Interrupts the loop of this thread while one turn of it takes too long, so that what runs there can be judged.

    The thread of the watch sees the long turn and sends a signal to the thread of the loop. Python runs the handler of
    a signal between two instructions of what runs there, and in its context: only there it is known what runs, and an
    exception that is raised there ends exactly that. (An exception set from another thread may arrive later, in the
    loop itself.) The signal is SIGURG, which is ignored by default: one that comes too late does no harm.

    A single call of compiled code, such as making a list of 2,147,483,647 entries, cannot be interrupted.
    """

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._thread = threading.get_ident()
        self._turn = 0
        self._seconds = 0.0
        self._looked = 0.0

    @property
    def can_interrupt(self) -> bool:
        """Whether this is the main thread: no other one handles signals."""
        return threading.main_thread().ident == self._thread

    @contextmanager
    def handling(self) -> Iterator[None]:
        """Handle the signal within a block."""
        if not self.can_interrupt:
            yield
            return
        before = signal.signal(_SIGNAL, self._handle)
        try:
            yield
        finally:
            signal.signal(_SIGNAL, before)

    def begin(self) -> None:
        """Another turn begins to be watched. Called by the thread of the stall watch."""
        self._turn += 1
        self._seconds = self._looked = 0.0

    def look(self, seconds: float) -> None:
        """The present turn has taken so much CPU time. Called by the thread of the stall watch."""
        self._seconds = seconds
        if seconds < max(LONG_TURN, self._looked + _LOOK_AGAIN) or not self.can_interrupt:
            return
        self._looked = seconds
        with contextlib.suppress(ProcessLookupError, ValueError):  # The thread has ended.
            signal.pthread_kill(self._thread, _SIGNAL)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._judge(self._turn, self._seconds, frame)


class StallWatch:
    """Watches the loop that runs it."""

    def __init__(
        self,
        *,
        least: float = STALL_SECONDS,
        on_stall: Callable[[Stall], None] | None = None,
        judge: Judge | None = None,
    ) -> None:
        """`on_stall` is called in the loop's thread, after each stall; `judge` during a long turn."""
        self.counts = {WORK: 0, WAIT: 0}
        """Stalls by cause."""
        self.seconds = {WORK: 0.0, WAIT: 0.0}
        """The total duration of the stalls by cause."""
        self.longest_cpu_seconds = 0.0
        """The CPU time of the stall that took most."""
        self._least = least
        self._on_stall = on_stall
        self._judge = judge
        self._cpu_time: Callable[[], float] = time.thread_time
        self._beat_time: float | None = None
        """The time at which the thread asked for a callback that has not come yet."""
        self._free_cpu = 0.0
        """The CPU time of the loop's thread at the sample before that."""
        self._stacks: list[Stack] = []
        self._logged: set[tuple[str, str]] = set()
        self._guard: LoopGuard | None = None

    def gauges(self) -> Sequence[tuple[str, str, Callable[[], list[Sample]]]]:
        """Return the name, the help and the values of each metric."""
        return (
            (
                "pinnace_loop_stalls_total",
                "Times in which the event loop handled no request for 0.1 s or longer, by cause.",
                lambda: [((("cause", cause),), float(count)) for cause, count in self.counts.items()],
            ),
            (
                "pinnace_loop_stall_seconds_total",
                "The total duration of the stalls of the event loop, by cause.",
                lambda: [((("cause", cause),), seconds) for cause, seconds in self.seconds.items()],
            ),
            (
                "pinnace_loop_longest_stall_cpu_seconds",
                "The CPU time of the stall of the event loop that took most of it.",
                lambda: [((), self.longest_cpu_seconds)],
            ),
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        running, loop, of_loop = threading.Lock(), asyncio.get_running_loop(), threading.get_ident()
        running.acquire()
        self._cpu_time = _cpu_clock(of_loop)
        sample = partial(self._sample, loop, of_loop, running, self._cpu_time())
        self._guard = LoopGuard(self._judge) if self._judge is not None else None
        threading.Thread(target=sample, name="stall-watch", daemon=True).start()
        try:
            with self._guard.handling() if self._guard is not None else contextlib.nullcontext():
                await loop.create_future()
        finally:
            running.release()
            self._answer()

    def _answer(self) -> None:
        """Count a stall if the thread has asked for this callback long ago. Called by the loop."""
        if self._beat_time is None:
            return
        seconds = time.monotonic() - self._beat_time
        if seconds >= self._least:
            self._count(Stall(seconds, self._cpu_time() - self._free_cpu, _most_common(self._stacks)))
        self._stacks = []
        self._beat_time = None

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
            pause = (
                SAMPLE_SECONDS if self._beat_time is not None or cpu - last_cpu > _BUSY_SECONDS else IDLE_SAMPLE_SECONDS
            )

    def _look(self, loop: asyncio.AbstractEventLoop, of_loop: int, last_cpu: float) -> float:
        """Ask a busy loop for a callback, or record its stack while it owes one; return its CPU time."""
        cpu, stacks = self._cpu_time(), self._stacks
        if self._beat_time is not None:
            if self._guard is not None:
                self._guard.look(cpu - self._free_cpu)
            if len(stacks) < _MOST_STACKS and (stack := _within_loop(stack_of_thread(of_loop))):
                stacks.append(stack)
        elif not _is_waiting(of_loop) or cpu - last_cpu > SAMPLE_SECONDS / 2:  # Compiled code has no frame.
            self._free_cpu, self._beat_time = last_cpu, time.monotonic()
            if self._guard is not None:
                self._guard.begin()
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
