"""The work of large requests, which runs in threads beside the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from pinnace.model import errors
from pinnace.process import fair_threads
from pinnace.process.fair_threads import Abandoned, FairThreads, TooMuchWork
from pinnace.serving.compression import COMPRESSOR
from pinnace.serving.request.body import is_long_body

_TOO_MUCH = "The server has too much long work: send smaller requests, or try again later."

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def start_threads() -> None:
    """Start the threads of long work now: to start one, the loop waits until it runs, which takes long on a busy
    machine."""
    fair_threads.start_threads()
    COMPRESSOR.submit(int)


async def run_beside(
    user: str, function: Callable[_Given, _Result], *args: _Given.args, **kwargs: _Given.kwargs
) -> _Result:
    """Return what the function returns. It must not touch the loop, nor anything that other requests change."""
    try:
        return await FairThreads.of_loop().run(user, function, *args, **kwargs)
    except Abandoned:
        raise errors.Timeout("the client has closed its connection") from None
    except TooMuchWork:
        raise errors.TooManyRequests(_TOO_MUCH, retry_after=1) from None


async def decode_body(
    user: str, body: bytes, function: Callable[_Given, _Result], *args: _Given.args, **kwargs: _Given.kwargs
) -> _Result:
    """Return what a function that decodes this body returns; it runs beside the loop if the body is large."""
    if is_long_body(body):
        return await run_beside(user, function, *args, **kwargs)
    return function(*args, **kwargs)
