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
    """Show a message on standard error if a block takes longer than PROGRESS_SECONDS, on a terminal with a spinner."""
    with ExitStack() as shown:
        timer = asyncio.get_running_loop().call_later(PROGRESS_SECONDS, _show, message, shown)
        try:
            yield
        finally:
            timer.cancel()


def _show(message: str, shown: ExitStack) -> None:
    if not sys.stderr.isatty():
        print(message, file=sys.stderr, flush=True)
        return
    from rich.console import Console  # noqa: PLC0415 - slow to import, and most commands never wait

    shown.enter_context(Console(stderr=True).status(message))
