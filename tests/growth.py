"""Measure how CPU time grows with the size of an input."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import TypeVar

Input = TypeVar("Input")

FLOOR = 0.02
"""Seconds of CPU time. Less is fast enough, and too little to measure growth."""
MOST_GROWTH = 2.6
"""The most that twice the input may cost: twice the time, with slack."""


def cpu_seconds(run: Callable[[Input], object], value: Input, *, tries: int = 3) -> float:
    """Return the least CPU time of some tries, of this thread alone: other processes do not count."""
    best = float("inf")
    for _ in range(tries):
        gc.disable()  # Its cost grows with all objects of the process.
        try:
            started = time.thread_time()
            run(value)
            best = min(best, time.thread_time() - started)
        finally:
            gc.enable()
        if best < FLOOR:
            break
    return best


def is_linear(run: Callable[[Input], object], make: Callable[[int], Input], size: int) -> bool:
    """Return whether twice the size takes at most twice the time, with slack, or hardly any time at all.

    A busy machine may disturb a measurement, so a bad one is repeated.
    """
    for _ in range(3):
        seconds = cpu_seconds(run, make(2 * size))
        if seconds < FLOOR or seconds <= MOST_GROWTH * cpu_seconds(run, make(size)):
            return True
    return False
