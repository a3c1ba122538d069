"""The resources that an operator opens once for all of its handlers: sessions, connection pools, configuration."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from pinnace.sdk.handlers.calls import call_in_thread
from pinnace.sdk.handlers.threads import HandlerThreads

Value = TypeVar("Value")


class Shared:
    """The values that `@operator.startup` functions have returned, each found by its type: `ctx.shared[Session]`."""

    def __init__(self) -> None:
        self._values: list[Any] = []

    def __getitem__(self, of: type[Value]) -> Value:
        """Return the value of this type. Raise LookupError if there is none, or more than one."""
        found = [value for value in self._values if isinstance(value, of)]
        if len(found) == 1:
            return found[0]
        known = ", ".join(type(value).__name__ for value in self._values) or "nothing"
        number = "no @operator.startup function returns" if not found else "several @operator.startup functions return"
        raise LookupError(f"{number} a {of.__name__}; they return {known}")

    def add(self, value: Any) -> None:
        """Add a value."""
        self._values.append(value)


@asynccontextmanager
async def open_shared(
    startups: Sequence[Callable[..., Any]], shutdowns: Sequence[Callable[..., Any]], threads: HandlerThreads
) -> AsyncIterator[Shared]:
    """Call the startup functions in order; at the end the shutdown functions, then finish generators in reverse."""
    shared = Shared()
    generators: list[AsyncGenerator[Any, None]] = []
    try:
        for function in startups:
            if inspect.isasyncgenfunction(function):
                generator = function(shared) if inspect.signature(function).parameters else function()
                value = await anext(generator)
                generators.append(generator)
            else:
                value = await call_in_thread(threads, function, shared)
            if value is not None:
                shared.add(value)
        yield shared
        for function in shutdowns:
            await call_in_thread(threads, function, shared)
    finally:
        for generator in reversed(generators):
            await _finish(generator)


async def _finish(generator: AsyncGenerator[Any, None]) -> None:
    async for _ in generator:
        await generator.aclose()
        raise RuntimeError("a startup function has yielded twice; it yields its value once")
