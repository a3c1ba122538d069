"""Call an author's function, whether it is `async def` or `def`, with as many of the arguments as it takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


async def call(handler: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function with as many of the arguments as it takes, and return its result."""
    takes = len(inspect.signature(handler).parameters)
    result = handler(*arguments[:takes])
    return await result if inspect.isawaitable(result) else result
