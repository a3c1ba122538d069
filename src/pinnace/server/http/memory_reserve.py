"""Refuses requests before a limit of the process's memory is reached (`ulimit -v`, `ulimit -d`).

The JSON libraries do not survive a failed allocation: the process would end with SIGSEGV in the midst of a request.
Without such a limit, nothing is looked at.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pinnace.serving.messages import Request, Response, failure

RESERVE = 128 << 20
"""Memory that must be free for requests and for the work behind them."""
LEAST = 512 << 20
"""The need of a process with a few objects, with the reserve."""
_PER_BYTE = 16
"""The need of a body beside its own memory, in bytes for each of its bytes: it is decoded, changed and encoded."""
_STATM = Path("/proc/self/statm")


class TooLittleMemory(OSError):
    """A limit of this process is too low. The message names it and what is needed."""


@dataclass(frozen=True, slots=True)
class _Limit:
    option: str
    what: str
    column: int
    """The column of /proc/self/statm with what is used."""
    size: int


class MemoryReserve:
    """The limits of this process."""

    def __init__(self, limits: tuple[_Limit, ...]) -> None:
        self._limits = limits
        self._page = os.sysconf("SC_PAGE_SIZE")

    @classmethod
    def of_process(cls) -> MemoryReserve | None:
        """Return the limits; None if there is none."""
        try:
            import resource  # noqa: PLC0415 - not on every platform
        except ImportError:
            return None
        limits = (
            _Limit("-v", "address space", 0, resource.getrlimit(resource.RLIMIT_AS)[0]),
            _Limit("-d", "data", 5, resource.getrlimit(resource.RLIMIT_DATA)[0]),
        )
        finite = tuple(limit for limit in limits if limit.size != resource.RLIM_INFINITY)
        return cls(finite) if finite and _STATM.exists() else None

    def check_start(self) -> None:
        """Raise TooLittleMemory if a limit leaves no room to serve."""
        for limit in self._limits:
            if limit.size < LEAST:
                raise TooLittleMemory(
                    f"the limit of {limit.what} (ulimit {limit.option} {limit.size >> 10}) is too low: "
                    f"at least {LEAST >> 10} is needed, and more for many objects; raise it, or set it to unlimited"
                )

    def refuse(self, request: Request) -> Response | None:
        """Return the answer to a request for which there is not enough memory; None if there is."""
        needed = RESERVE + _PER_BYTE * len(request.body)
        used = _STATM.read_bytes().split()
        for limit in self._limits:
            left = limit.size - int(used[limit.column]) * self._page
            if left < needed:
                why = f"{max(0, left) >> 20} MiB are left of the limit of {limit.what} of the server"
                fix = f"raise ulimit {limit.option} ({limit.size >> 10} now)"
                return failure(503, "ServiceUnavailable", f"{why}, and this request may need {needed >> 20}; {fix}")
        return None


def check_memory_limits() -> None:
    """Raise TooLittleMemory if a limit of this process leaves no room to serve."""
    reserve = MemoryReserve.of_process()
    if reserve is not None:
        reserve.check_start()
