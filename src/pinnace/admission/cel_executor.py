"""Evaluates CEL expressions: cheap ones on the event loop, costly ones in a thread beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from pinnace.admission.expressions import Oracles
from pinnace.model.requester import Requester
from pinnace.schema.cel.errors import ExceedsInlineBudget
from pinnace.schema.cel.library.authorizer import CelDecision, Oracle, Question

INLINE_BUDGET = 2_000
"""The largest cost of an evaluation on the event loop: one to five milliseconds. Nearly all cost a hundredth."""

_AT_A_TIME = 2
"""The number of threads; the loop gets its turns between theirs."""
_SECONDS_TO_ANSWER = 30.0

Evaluated = TypeVar("Evaluated")
Evaluation = Callable[[Oracles, int | None], Evaluated]
"""Called with the authorizers to ask, and the cost after which it raises ExceedsInlineBudget. It may be called twice,
the second time in another thread: it changes nothing but its result."""


class CelExecutor:
    """Evaluates expressions: quick ones at once, the others in a thread while the server goes on."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._known: dict[str, object] = {}

    def is_known(self, name: str, owner: object) -> bool:
        """Whether these expressions took long before. A changed policy or webhook is a new owner."""
        return self._known.get(name) is owner

    async def evaluate(
        self, name: str, owner: object, evaluation: Evaluation[Evaluated], oracles: Oracles
    ) -> Evaluated:
        """Return or raise as the evaluation does, except for ExceedsInlineBudget."""
        if self._known.get(name) is not owner:
            try:
                return evaluation(oracles, INLINE_BUDGET)
            except ExceedsInlineBudget:
                self._known[name] = owner
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="expressions")
        loop = asyncio.get_running_loop()

        def distant(user: Requester) -> _Distant:
            return _Distant(oracles(user), loop)

        return await loop.run_in_executor(self._pool, evaluation, distant, None)


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
