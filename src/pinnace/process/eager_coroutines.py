"""Coroutines that are begun at once and finished later, without a task each: the writes of one batch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from types import coroutine
from typing import Any, Generic, TypeAlias, TypeVar

Result = TypeVar("Result")

NowOrLater: TypeAlias = Result | Awaitable[Result]
"""The result itself, or an awaitable of it: a function that can mostly answer at once then costs no task."""


def begin(work: Coroutine[Any, Any, Result]) -> NowOrLater[Result]:
    """Run a coroutine in the turn of the caller. Return its result, or the rest to await from its `leave` on."""
    try:
        work.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    return _rest(work)


@coroutine
def leave() -> Generator[None, None, None]:
    """End the part of a coroutine that `begin` runs: the rest runs in a task. In a task, give way to others once."""
    yield


async def _rest(work: Coroutine[Any, Any, Result]) -> Result:
    return await _resume(work)


@coroutine
def _resume(work: Coroutine[Any, Any, Result]) -> Generator[Any, None, Result]:
    """Go on with a coroutine that has begun, which `await` refuses."""
    result: Result = yield from work
    return result


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
    begun = [EagerCoroutine(coroutine) for coroutine in coroutines]
    try:
        waiting = [started for started in begun if not started.is_done]
        while waiting:
            for started in waiting:
                await started.advance()
            waiting = [started for started in waiting if not started.is_done]
    finally:
        for started in begun:
            if not started.is_done:
                started.close()
    return [started.outcome for started in begun]
