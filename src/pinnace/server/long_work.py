"""Runs long pieces of work in a thread beside the event loop.

There is one such thread: with several, the loop would have to wait for each of them in turn. While it works, Python's
lock changes hands fifty times as often as usual, because a request takes the lock several times and waits each time.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

from pinnace.server.http.compression import COMPRESSOR

LONG_BYTES = 64 << 10
"""Work on more input than this takes a thread. Less takes some milliseconds, at most."""
LONG_TEXT_BYTES = 8 << 10
"""The same for YAML and protobuf, which take ten times as long to decode as JSON."""
SWITCH_SECONDS = 0.0001
"""How long the loop waits for Python's lock while there is long work."""

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="long-work")


def start_threads() -> None:
    """Start the threads of long work now: to start one, the loop waits until it runs, which takes long on a busy
    machine."""
    for executor in (_thread, COMPRESSOR):
        executor.submit(int)


def is_long_body(body: bytes) -> bool:
    """Whether the body of a request is decoded beside the loop."""
    return len(body) > LONG_TEXT_BYTES and (len(body) > LONG_BYTES or body[:1] != b"{")


async def run_beside(function: Callable[_Given, _Result], *args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
    """Return what the function returns. It must not touch the loop, nor anything that other requests change."""
    work = partial(copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_thread, _run, work)


async def decode_body(
    body: bytes, function: Callable[_Given, _Result], *args: _Given.args, **kwargs: _Given.kwargs
) -> _Result:
    """Return what a function that decodes this body returns; it runs beside the loop if the body is large."""
    return await run_beside(function, *args, **kwargs) if is_long_body(body) else function(*args, **kwargs)


def _run(work: Callable[[], _Result]) -> _Result:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(min(usual, SWITCH_SECONDS))
    try:
        return work()
    finally:
        sys.setswitchinterval(usual)
