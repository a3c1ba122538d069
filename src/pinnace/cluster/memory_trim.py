"""Returns freed memory to the system after a large answer or a flood of them.

glibc keeps what was freed below memory that is in use, which after one flood can be several times of what the server
needs. Its `malloc_trim` gives it back, page by page. That takes some milliseconds, so it runs only after the process
has grown, and in a thread.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
from collections.abc import Callable
from pathlib import Path

CHECK_SECONDS = 5.0
GROWTH = 32 << 20
"""How much the process must have grown since the last time."""

TIMES = 24
"""How often memory is given back after that, once in `CHECK_SECONDS`: longer than any cache keeps the parts of large
answers, and than a client that reads nothing keeps its answer."""

COLLECT_EVERY = 6
"""How often garbage in cycles is collected first: Python does not while an idle process makes no objects."""

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


class MemoryTrim:
    """Gives freed memory back to the system for a while after the process has grown."""

    def __init__(
        self,
        *,
        trim: Callable[[], None] | None = None,
        measure: Callable[[], int] = process_memory,
        collect: Callable[[], object] = gc.collect,
    ) -> None:
        self._trim = trim if trim is not None else glibc_trim()
        self._collect = collect
        self._measure = measure
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
        now = self._measure()
        self._least = min(now, self._least or now)
        if now - self._least >= GROWTH:
            self._left = TIMES
        if self._left and self._trim is not None:
            if self._left % COLLECT_EVERY == 0:
                self._collect()
            self._left -= 1
            await asyncio.to_thread(self._trim)
            self._least = self._measure()
