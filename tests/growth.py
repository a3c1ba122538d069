"""Measure how CPU time grows with the size of an input."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Input = TypeVar("Input")

FLOOR = 0.03
"""Seconds of CPU time. Less is fast enough, and too little to measure growth."""
GROWTH = 8
"""How much larger the second input is. Quadratic work then takes 64 times as long."""
MOST_GROWTH = 24
"""How much longer it may take. Linear work takes some ten times as long: a large input leaves the caches."""
TRIES = 4


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep the garbage collector away: its cost grows with all objects of the process, not with the input."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def cpu_seconds(run: Callable[[Input], object], value: Input, *, tries: int = 3) -> float:
    """Return the least CPU time of some tries, of this thread alone: other processes do not count."""
    best = float("inf")
    for _ in range(tries):
        with no_collection():
            started = time.thread_time()
            run(value)
            best = min(best, time.thread_time() - started)
        if best < FLOOR:
            break
    return best


def is_linear(run: Callable[[Input], object], make: Callable[[int], Input], size: int) -> bool:
    """Return whether the time grows with the size, not with its square, or is hardly any time at all.

    The larger input has twice the size. A busy machine may disturb a measurement, so a bad one is repeated.
    """
    for _ in range(TRIES):
        seconds = cpu_seconds(run, make(2 * size))
        if seconds < FLOOR or seconds <= MOST_GROWTH * cpu_seconds(run, make(2 * size // GROWTH)):
            return True
    return False
