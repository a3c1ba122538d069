"""The resources that an operator opens once for all of its handlers: sessions, connection pools, configuration."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pinnace.sdk.handlers.calls import call_in_thread
from pinnace.sdk.handlers.threads import HandlerThreads

Value = TypeVar("Value")


class StartupFailed(Exception):
    """A startup function of an operator has failed. The message names it and the line of the error."""


class Shared:
    """The values that `@operator.startup` functions have returned, each found by its type: `ctx.shared[Session]`."""

    def __init__(self) -> None:
        self._values: list[Any] = []

    def __getitem__(self, of: type[Value]) -> Value:
        """Return the value of this type. Raise LookupError if there is none, or more than one."""
        values = [value for value in self._values if isinstance(value, of)]
        if len(values) == 1:
            return values[0]
        known = ", ".join(type(value).__name__ for value in self._values) or "nothing"
        number = "no @operator.startup function returns" if not values else "several @operator.startup functions return"
        raise LookupError(f"{number} a {of.__name__}; they return {known}")

    def __setitem__(self, of: type[Value], value: Value) -> NoReturn:
        raise TypeError(
            f"a value is shared by returning it: write `return {of.__name__}(...)` in a function with @operator.startup"
        )

    def add(self, value: Any) -> None:
        """Add a value."""
        self._values.append(value)


@asynccontextmanager
async def open_shared(
    startups: Sequence[Callable[..., Any]], shutdowns: Sequence[Callable[..., Any]], threads: HandlerThreads
) -> AsyncIterator[Shared]:
    """Call the startup functions in order; at the end the shutdown functions, then finish generators in reverse.

    Raise StartupFailed if a startup function raises.
    """
    shared = Shared()
    generators: list[AsyncGenerator[Any, None]] = []
    try:
        for function in startups:
            try:
                value = await _start(function, shared, threads, generators)
            except Exception as error:  # It is the user's code.
                raise StartupFailed(_describe(function, error)) from error
            if value is not None:
                shared.add(value)
        try:
            yield shared
        finally:
            for function in shutdowns:
                await call_in_thread(threads, function, shared)
    finally:
        for generator in reversed(generators):
            await _finish(generator)


async def _start(
    function: Callable[..., Any], shared: Shared, threads: HandlerThreads, generators: list[AsyncGenerator[Any, None]]
) -> Any:
    if not inspect.isasyncgenfunction(function):
        return await call_in_thread(threads, function, shared)
    generator = function(shared) if inspect.signature(function).parameters else function()
    value = await anext(generator)
    generators.append(generator)
    return value


def _describe(function: Callable[..., Any], error: Exception) -> str:
    """Return a line with the place of an error in the user's file."""
    file = inspect.getsourcefile(function) or ""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    where = f" at {Path(file).name}:{lines[-1]}" if lines else ""
    return f"the startup function {function.__name__} failed{where}: {type(error).__name__}: {error}"


async def _finish(generator: AsyncGenerator[Any, None]) -> None:
    async for _ in generator:
        await generator.aclose()
        raise RuntimeError("a startup function has yielded twice; it yields its value once")
