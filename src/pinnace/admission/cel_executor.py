"""Expressions that take long are evaluated beside the event loop, so that nobody else waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from pinnace.admission.chain import Requester
from pinnace.admission.expressions import Oracles
from pinnace.schema.cel.errors import ExceedsInlineBudget
from pinnace.schema.cel.library.authorizer import Decision, Oracle, Question

INLINE_BUDGET = 2_000
"""What an evaluation may cost while everybody waits for it: one to five milliseconds. Nearly all cost a hundredth."""

_AT_A_TIME = 2
"""So many go on beside the loop, which gets its turns between theirs."""
_SECONDS_TO_ANSWER = 30.0

Evaluated = TypeVar("Evaluated")
Evaluation = Callable[[Oracles, int | None], Evaluated]
"""Called with the authorizers to ask, and the cost after which it raises ExceedsInlineBudget. It may be called twice,
the second time in another thread: it changes nothing but its result."""


class CelExecutor:
    """Has expressions evaluated: those that are quick at once, the others while the rest of the server goes on."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._known: dict[str, object] = {}

    def is_known(self, name: str, owner: object) -> bool:
        """Whether the owner of these expressions has taken long before. One that has changed is a new one."""
        return self._known.get(name) is owner

    async def evaluate(
        self, name: str, owner: object, evaluation: Evaluation[Evaluated], oracles: Oracles
    ) -> Evaluated:
        """What the evaluation returns, or raises but for ExceedsInlineBudget."""
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
    """Whoever answers on the event loop, asked from a thread."""

    def __init__(self, near: Oracle, loop: asyncio.AbstractEventLoop) -> None:
        self._near = near
        self._loop = loop

    def decide(self, question: Question) -> Decision:
        answer: Future[Decision] = Future()

        def ask() -> None:
            try:
                answer.set_result(self._near.decide(question))
            except Exception as error:
                answer.set_exception(error)

        self._loop.call_soon_threadsafe(ask)
        return answer.result(_SECONDS_TO_ANSWER)
