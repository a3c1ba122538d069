"""Returns freed memory to the system after a large answer or a flood of them.

glibc keeps what was freed below memory that is in use, which after one flood can be several times of what the server
needs. Its `malloc_trim` gives it back, page by page. That takes some milliseconds, so it runs only after the process
has grown, and in a thread. Threads share one arena: what one has freed serves the others too.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import time
from collections.abc import Callable
from pathlib import Path

CHECK_SECONDS = 5.0
GROWTH = 8 << 20
"""How much the process must have grown since the last time."""

TIMES = 24
"""How many times memory is given back after that, once in `CHECK_SECONDS`. It covers the time that caches keep parts of
large answers, and that a client that reads nothing keeps its answer."""

COLLECT_EVERY = 6
"""How often garbage in cycles is collected first: Python does not while an idle process makes no objects."""
BUSY_SECONDS = 0.5
"""The CPU time of the loop between two checks above which garbage is collected later: requests would wait for it."""

_ARENA_MAX = -8  # glibc's M_ARENA_MAX.

_STATM = Path("/proc/self/statm")


def process_memory() -> int:
    """Return the resident bytes of this process; 0 where the system does not tell."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def glibc_trim() -> Callable[[], None] | None:
    """Return the function that gives memory back; None if the C library has none."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    return None if trim is None else lambda: trim(0)


def share_arena() -> None:
    """Let all threads allocate from one arena, if the C library is glibc. Call it before threads are started.

    Each thread would have an arena of its own, and keep in it what a large request has freed. There is little to
    compete for: a thread allocates mostly while it has Python's lock.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        mallopt(_ARENA_MAX, 1)


class MemoryTrim:
    """Gives freed memory back to the system for a while after the process has grown."""

    def __init__(
        self,
        *,
        trim: Callable[[], None] | None = None,
        measure: Callable[[], int] = process_memory,
        collect: Callable[[], object] = gc.collect,
        cpu_time: Callable[[], float] = time.thread_time,
    ) -> None:
        self._trim = trim if trim is not None else glibc_trim()
        self._collect = collect
        self._measure = measure
        self._cpu_time = cpu_time
        self._cpu = 0.0
        """The CPU time of the loop at the last check."""
        self._is_collection_due = False
        self._least = 0
        """The memory after the last time."""
        self._left = 0
        """How many more times to trim: clients that read slowly keep answers for a while."""

    async def run(self) -> None:
        """Look every `CHECK_SECONDS` until cancelled."""
        while self._trim is not None:
            await asyncio.sleep(CHECK_SECONDS)
            await self.check()

    async def check(self) -> None:
        """Trim if the process has grown since the last time, and some more times after that."""
        before, self._cpu = self._cpu, self._cpu_time()
        now = self._measure()
        self._least = min(now, self._least or now)
        if now - self._least >= GROWTH:
            self._left = TIMES
        if self._left and self._trim is not None:
            self._is_collection_due = self._is_collection_due or self._left % COLLECT_EVERY == 0
            if self._is_collection_due and self._cpu - before < BUSY_SECONDS:
                self._is_collection_due = False
                self._collect()
            self._left -= 1
            await asyncio.to_thread(self._trim)
            self._least = self._measure()
