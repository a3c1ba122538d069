"""The event loop and the limits of a process that serves."""

from __future__ import annotations

import asyncio
import contextlib


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
