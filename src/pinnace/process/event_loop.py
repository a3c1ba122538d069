"""The event loop of a process that serves: its class, its signals and limits, and imports that do not hold it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from importlib import import_module


def loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    """Return the class of uvloop's loop; None, which chooses asyncio's own, where uvloop is missing."""
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return None
    return uvloop.Loop


def allow_many_connections() -> None:
    """Raise the limit of open files: each client is one, and the usual limit is for programs with few."""
    try:
        import resource  # noqa: PLC0415 - not on every platform
    except ImportError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # Some systems report a higher limit than they grant.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def stop_signals() -> list[signal.Signals]:
    """Return Ctrl-C, SIGTERM and the end of the terminal, without those that the parent ignores: nohup does SIGHUP."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


async def import_beside_loop(name: str) -> None:
    """Import a module in a thread, if it is not loaded yet: a large library takes 0.1 s or more."""
    if name not in sys.modules:
        await asyncio.to_thread(import_module, name)
