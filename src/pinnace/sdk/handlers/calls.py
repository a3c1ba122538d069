"""Call an author's function, whether it is `async def` or `def`, with as many of the arguments as it takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from pinnace.sdk.handlers.threads import HandlerThreads


async def call(handler: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function with as many of the arguments as it takes, and return its result."""
    result = handler(*arguments[: parameter_count(handler)])
    return await result if inspect.isawaitable(result) else result


async def call_in_thread(threads: HandlerThreads, handler: Callable[..., Any], *arguments: Any) -> Any:
    """The same, but a `def` function runs in a thread: it may block."""
    taken = arguments[: parameter_count(handler)]
    if is_async(handler):
        return await handler(*taken)
    result = await threads.call(handler, *taken)
    return await result if inspect.isawaitable(result) else result


@lru_cache(maxsize=1024)
def parameter_count(handler: Callable[..., Any]) -> int:
    """Return the number of positional arguments that a function takes."""
    parameters = inspect.signature(handler).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return 100
    return sum(
        parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) for parameter in parameters
    )


@lru_cache(maxsize=1024)
def is_async(handler: Callable[..., Any]) -> bool:
    """Return whether a function, or an object that is called as one, is `async def`."""
    if inspect.iscoroutinefunction(inspect.unwrap(handler)):
        return True
    return inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004 - the method itself is examined
