"""Runs long pieces of work in a thread beside the event loop.

Python lets the loop run at least every 5 ms meanwhile. There is one such thread: with several, the loop would have to
wait for each of them in turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

LONG_BYTES = 64 << 10
"""Work on more input than this takes a thread. Less takes some milliseconds, at most."""

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="long-work")


async def run_beside(function: Callable[_Given, _Result], *args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
    """Return what the function returns. It must not touch the loop, nor anything that other requests change."""
    run = partial(copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_thread, run)
