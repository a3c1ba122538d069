"""Show what a command waits for, if that takes long."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

PROGRESS_SECONDS = 2.0
"""The delay after which a waiting user sees what the command waits for."""


@contextmanager
def progress(message: str) -> Iterator[None]:
    """Show a message with a spinner if a block takes longer than PROGRESS_SECONDS.

    It is for a person at a terminal: the output of a script is the same on a slow machine.
    """
    if not sys.stderr.isatty():
        yield
        return
    with ExitStack() as status:
        timer = asyncio.get_running_loop().call_later(PROGRESS_SECONDS, _show, message, status)
        try:
            yield
        finally:
            timer.cancel()


def _show(message: str, status: ExitStack) -> None:
    from rich.console import Console  # noqa: PLC0415 - slow to import, and most commands never wait

    status.enter_context(Console(stderr=True).status(message))
