"""Evaluates CEL expressions: cheap ones on the event loop, costly ones beside it, those of several users in turns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from pinnace.admission.expressions import Oracles
from pinnace.model.users import User
from pinnace.model.write_review import Review
from pinnace.schema.cel.errors import ExceedsInlineBudget
from pinnace.schema.cel.library.authorizer import CelDecision, Oracle, Question

INLINE_BUDGET = 2_000
"""The largest cost of an evaluation on the event loop: less than a millisecond of most functions, five of the slowest.
Nearly all expressions cost a hundredth."""

INLINE_SECONDS = 0.005
"""After so much CPU time, a write's other expressions do not run on the event loop: there may be thousands of bindings
and parameters, each of them cheap."""
_SECONDS_TO_ANSWER = 30.0

Evaluated = TypeVar("Evaluated")
Evaluation = Callable[[Oracles, int | None], Evaluated]
"""Called with the authorizers to ask, and the cost after which it raises ExceedsInlineBudget. It may be called twice,
the second time in another thread: it changes nothing but its result."""


RunBeside = Callable[[str, Evaluation[Any], Oracles, int | None], Awaitable[Any]]
"""Runs long work of a user beside the event loop, in turns with that of others, until its request ends."""


class CelExecutor:
    """Evaluates expressions: quick ones at once, the others beside the event loop while the server goes on."""

    def __init__(self, run_beside: RunBeside) -> None:
        self._run_beside = run_beside
        self._known: dict[str, object] = {}

    def is_known(self, name: str, owner: object) -> bool:
        """Whether these expressions took long before. A changed policy or webhook is a new owner."""
        return self._known.get(name) is owner

    async def evaluate(
        self, review: Review, name: str, owner: object, evaluation: Evaluation[Evaluated], oracles: Oracles
    ) -> Evaluated:
        """Return or raise as the evaluation does, except for ExceedsInlineBudget."""
        if self._known.get(name) is not owner and review.inline_seconds < INLINE_SECONDS:
            before = time.thread_time()
            try:
                return evaluation(oracles, INLINE_BUDGET)
            except ExceedsInlineBudget:
                self._known[name] = owner
            finally:
                review.inline_seconds += time.thread_time() - before
        loop = asyncio.get_running_loop()

        def distant(user: User) -> _Distant:
            return _Distant(oracles(user), loop)

        result: Evaluated = await self._run_beside(review.user.name, evaluation, distant, None)
        return result


class _Distant:
    """An authorizer of the event loop, called from a thread."""

    def __init__(self, near: Oracle, loop: asyncio.AbstractEventLoop) -> None:
        self._near = near
        self._loop = loop

    def decide(self, question: Question) -> CelDecision:
        answer: Future[CelDecision] = Future()

        def ask() -> None:
            try:
                answer.set_result(self._near.decide(question))
            except Exception as error:
                answer.set_exception(error)

        self._loop.call_soon_threadsafe(ask)
        return answer.result(_SECONDS_TO_ANSWER)
