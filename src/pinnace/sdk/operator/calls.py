"""Calls a user's function, whether it is `async def` or `def`, and however many of our arguments it wants."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


async def called(handler: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns, given as many of the arguments as it takes."""
    takes = len(inspect.signature(handler).parameters)
    result = handler(*arguments[:takes])
    return await result if inspect.isawaitable(result) else result
