"""Measures the turns of the event loop of a test: a turn that takes too much CPU time holds up every other client.

A turn is measured in CPU time of the loop's own thread without garbage collection, so that neither a busy machine nor
the garbage of the tests before counts. The CPU time is taken at most every `MARK_SECONDS`: a turn costs 0.2 µs more.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from pinnace.process.thread_stacks import Stack, stack_of_thread

MOST_CPU_SECONDS = 0.25
MARK_SECONDS = 0.01
"""The error of a measurement: short turns since the last mark count too."""
SAMPLE_SECONDS = 0.04
_MOST_STACKS = 50
_PRODUCT = "/src/pinnace/"
_TESTS = "/tests/"
_START = frozenset({"build", "bootstrap", "ensure_certificates"})
"""Functions that run before a server has clients."""


@dataclass(frozen=True, slots=True)
class LongTurn:
    """A turn of the loop that took too much CPU time."""

    cpu_seconds: float
    callbacks: int
    stacks: tuple[Stack, ...]
    """The stacks of the thread, sampled every `SAMPLE_SECONDS`."""

    @property
    def is_of_product(self) -> bool:
        """Whether the product held the loop most of the time, and not the test or the start of a server."""
        return 2 * sum(map(_is_of_product, self.stacks)) > len(self.stacks)

    def __str__(self) -> str:
        stack = self.stacks[len(self.stacks) // 2] if self.stacks else ()
        head = f"one turn of the event loop ({self.callbacks} callbacks) took {self.cpu_seconds:.2f} s of CPU time at"
        return "\n".join((head, *(f"  {frame}" for frame in stack)))


class StallGate:
    """Measures every turn of the loops of the main thread."""

    def __init__(self) -> None:
        self.turns: list[LongTurn] = []
        self._marked = 0.0
        self._marked_cpu = 0.0
        self._collected = 0.0
        self._collection_began = 0.0
        self._stacks: list[tuple[float, Stack]] = []
        self._thread = threading.main_thread().ident or 0

    def install(self) -> None:
        """Measure from now on. The loops of uvloop are not measured."""
        run_once: Callable[[Any], None] = asyncio.BaseEventLoop._run_once  # type: ignore[attr-defined]
        perf_counter, get_ident, main = time.perf_counter, threading.get_ident, self._thread

        def measured(loop: Any) -> None:
            if perf_counter() - self._marked > MARK_SECONDS and get_ident() == main:
                self.begin()  # After other work than that of a loop.
            callbacks = len(loop._ready)
            run_once(loop)
            if perf_counter() - self._marked > MARK_SECONDS and get_ident() == main:
                self._judge(callbacks)

        asyncio.BaseEventLoop._run_once = measured  # type: ignore[attr-defined]
        gc.callbacks.append(self._measure_collection)
        threading.Thread(target=self._sample, name="stall-gate", daemon=True).start()

    @contextmanager
    def measuring_steps(self, most: float) -> Iterator[None]:
        """Within a block, also record each callback and each step of a task that takes more CPU time than this."""
        run: Callable[[Any], None] = asyncio.Handle._run

        def measured(handle: Any) -> None:
            began, before = time.perf_counter(), time.thread_time() - self._collected
            run(handle)
            seconds = time.thread_time() - self._collected - before
            if seconds > most:
                self.turns.append(LongTurn(seconds, 1, tuple(stack for when, stack in self._stacks if when >= began)))

        asyncio.Handle._run = measured  # type: ignore[assignment, method-assign]
        try:
            yield
        finally:
            asyncio.Handle._run = run  # type: ignore[assignment, method-assign]

    def begin(self) -> None:
        """Measure from here."""
        self._stacks.clear()
        self._marked_cpu = time.thread_time() - self._collected
        self._marked = time.perf_counter()

    def _judge(self, callbacks: int) -> None:
        seconds = time.thread_time() - self._collected - self._marked_cpu
        if seconds - MARK_SECONDS > MOST_CPU_SECONDS:
            stacks = tuple(stack for when, stack in self._stacks if when >= self._marked)
            self.turns.append(LongTurn(seconds, callbacks, stacks))
        self.begin()

    def _measure_collection(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] == 0 or threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._collection_began = time.thread_time()
        else:
            self._collected += time.thread_time() - self._collection_began

    def _sample(self) -> None:
        """Record where the main thread is, while its last mark is old. Runs in a thread of its own."""
        while True:
            time.sleep(SAMPLE_SECONDS)
            if time.perf_counter() - self._marked < SAMPLE_SECONDS or len(self._stacks) >= _MOST_STACKS:
                continue
            self._record_stack()

    def _record_stack(self) -> None:
        stack = stack_of_thread(self._thread)
        if stack and stack[0].function != "select":
            within_loop = takewhile(lambda frame: frame.function != "_run_once", stack)
            self._stacks.append((time.perf_counter(), tuple(within_loop)))


def _is_of_product(stack: Stack) -> bool:
    if any("importlib" in frame.file or frame.function in _START for frame in stack):
        return False
    own = (frame.file for frame in stack if _PRODUCT in frame.file or _TESTS in frame.file)
    return _PRODUCT in next(own, "")
