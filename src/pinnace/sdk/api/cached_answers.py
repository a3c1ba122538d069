"""Answers that are kept for some seconds, and shared by all who ask for the same meanwhile."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from pinnace.process.clock import Clock
from pinnace.process.tasks import Tasks

MOST_CACHED = 4096
Value = TypeVar("Value")


class CachedAnswers(Generic[Value]):
    """Answers that are cached for `seconds`. Concurrent identical questions share one call."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._tasks = Tasks(expected=(Exception,))  # The requests that wait for an answer get its error.
        self._known: OrderedDict[Hashable, tuple[float, asyncio.Task[Value]]] = OrderedDict()

    async def get(self, question: Any, ask: Callable[[Any], Coroutine[Any, Any, Value]]) -> Value:
        """Return the answer to a question, by `ask(question)` unless one is known. Raise the error of that call."""
        now = self._clock.now().timestamp()
        until, task = self._known.get(question, (0.0, None))
        if task is None or (task.done() and (until <= now or task.cancelled() or task.exception() is not None)):
            task = self._tasks.start(ask(question))
            self._known[question] = (now + self._seconds, task)
            self._known.move_to_end(question)
            if len(self._known) > MOST_CACHED:
                self._known.popitem(last=False)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel the calls that are on their way."""
        await self._tasks.close()
