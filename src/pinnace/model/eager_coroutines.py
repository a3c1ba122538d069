"""Coroutines that are begun at once and finished later, without a task each: the writes of one batch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable
from types import coroutine
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class EagerCoroutine(Generic[Result]):
    """A coroutine that runs up to its first wait now. Await it for its result; `close` it otherwise.

    Several of these can wait for the same commit of the store at the same time: a task for each would cost more than
    most writes.
    """

    __slots__ = ("_coroutine", "_error", "_value", "_waits_for", "is_done")

    _value: Result

    def __init__(self, coroutine: Coroutine[Any, Any, Result]) -> None:
        self._coroutine = coroutine
        self._error: Exception | None = None
        self._waits_for: Any = None
        self.is_done = False
        self._run(coroutine.send, None)

    def _run(self, resume: Callable[[Any], Any], value: object) -> None:
        """Run the coroutine up to its next wait or its end."""
        try:
            self._waits_for = resume(value)
            if asyncio.isfuture(self._waits_for):
                self._waits_for._asyncio_future_blocking = False  # Others may wait for it too: `_go_on` sets it.
        except StopIteration as end:
            self.is_done, self._value = True, end.value
        except Exception as error:
            self.is_done, self._error = True, error

    def __await__(self) -> Generator[Any, Any, Result]:
        if not self.is_done:
            self.is_done = True
            return (yield from _go_on(self._coroutine, self._waits_for))
        if self._error is not None:
            raise self._error
        return self._value

    @property
    def outcome(self) -> Result | Exception:
        """The result or the exception of a coroutine that is done."""
        return self._value if self._error is None else self._error

    @coroutine
    def advance(self) -> Generator[Any, Any, None]:
        """Wait once, then run the coroutine up to its next wait or its end; await it afterwards for its result."""
        if self.is_done:
            return
        answer: Any = None
        try:
            if not asyncio.isfuture(self._waits_for):
                answer = yield self._waits_for
            elif not self._waits_for.done():
                self._waits_for._asyncio_future_blocking = True
                yield self._waits_for
        except GeneratorExit:
            self._coroutine.close()
            raise
        except BaseException as error:
            self._run(self._coroutine.throw, error)
        else:
            self._run(self._coroutine.send, answer)

    def close(self) -> None:
        """End the coroutine where it waits, if it does."""
        self._coroutine.close()


def _go_on(coroutine: Coroutine[Any, Any, Result], waits_for: Any) -> Generator[Any, Any, Result]:
    """Yield whatever a coroutine waits for until it ends."""
    while True:
        answer: Any = None
        try:
            if asyncio.isfuture(waits_for):
                if not waits_for.done():
                    waits_for._asyncio_future_blocking = True  # As `await` does: the task asks for it.
                    yield waits_for
            else:
                answer = yield waits_for
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:
            failure: BaseException | None = error
        else:
            failure = None
        try:
            waits_for = coroutine.send(answer) if failure is None else coroutine.throw(failure)
        except StopIteration as end:
            result: Result = end.value
            return result


async def run_together(coroutines: Iterable[Coroutine[Any, Any, Result]]) -> list[Result | Exception]:
    """Run coroutines side by side without a task each; return the result of each, or its exception."""
    begun = [EagerCoroutine(one) for one in coroutines]
    try:
        waiting = [one for one in begun if not one.is_done]
        while waiting:
            for one in waiting:
                await one.advance()
            waiting = [one for one in waiting if not one.is_done]
    finally:
        for one in begun:
            if not one.is_done:
                one.close()
    return [one.outcome for one in begun]
