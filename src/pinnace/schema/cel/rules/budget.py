"""What the rules of one object may cost: by what they could, by what they do, and by how long somebody waits for it."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from pinnace.schema.cel.errors import CostExceeded, ExceedsInlineBudget
from pinnace.schema.cel.interpret import CelRun
from pinnace.schema.cel.program import Program

CALL_LIMIT = 1_000_000
BUDGET = 10_000_000
BLINDLY = 400_000
"""Rules that cost no more than this together are done in two milliseconds at worst."""
SECONDS_AT_ONCE = 0.001
"""How long the others may take while somebody waits for them. What has been begun is finished."""


class TooCostly(Exception):
    """By the bounds of its rules the object might be over budget: its real cost has to be counted."""


class Account:
    """What may still be spent. Unmetered, every rule is charged the most it could cost an object of this size.

    On the event loop, that is, with an `inline_budget`, real cost is measured once the bounds come to BLINDLY: the
    bounds are seldom reached, so the clock and the meter decide whether the evaluation takes long.
    """

    def __init__(self, size: int, *, metered: bool, inline_budget: int | None) -> None:
        self.left = BUDGET
        self._inline_budget = inline_budget
        self._size = size
        self._metered = metered
        self._floor = 0 if inline_budget is None else BUDGET - BLINDLY
        self._spent = 0.0
        self._counted = 0

    def evaluate(self, program: Program, bindings: dict[str, Any]) -> Any:
        """Raises CelError; CostExceeded beyond the limit of a call, OutOfBudget beyond that of the object."""
        if self._metered:
            return self._evaluate_metered(program, bindings)
        bound = program.most_cost(self._size)
        self.left -= bound
        if bound > CALL_LIMIT or self.left < self._floor:
            return self._evaluate_carefully(program, bindings, bound)
        return program.evaluate(**bindings)

    def _evaluate_carefully(self, program: Program, bindings: dict[str, Any], bound: int) -> Any:
        if bound > CALL_LIMIT or self.left < 0:
            raise TooCostly
        is_first = bound == BUDGET - self.left
        if bound > BLINDLY and not is_first:
            return self._evaluate_counting(program, bindings)
        # By the limit of a call none takes more than five milliseconds by itself.
        if self._spent > SECONDS_AT_ONCE:
            raise ExceedsInlineBudget
        began = perf_counter()
        try:
            return program.evaluate(**bindings)
        finally:
            self._spent += perf_counter() - began

    def _evaluate_counting(self, program: Program, bindings: dict[str, Any]) -> Any:
        assert self._inline_budget is not None, "there is no floor where nobody waits"
        run = CelRun(bindings, self._inline_budget - self._counted)
        try:
            return program.evaluate_in(run)
        except CostExceeded:  # Not of what a call may cost, which is more than its bound.
            raise ExceedsInlineBudget from None
        finally:
            self._counted += run.cost

    def _evaluate_metered(self, program: Program, bindings: dict[str, Any]) -> Any:
        inline_budget = BUDGET if self._inline_budget is None else self._inline_budget
        run = CelRun(bindings, min(CALL_LIMIT, inline_budget))
        try:
            return program.evaluate_in(run)
        finally:
            self.left -= run.cost
            if BUDGET - self.left > inline_budget and self._inline_budget is not None:
                raise ExceedsInlineBudget
            if self.left < 0:
                raise OutOfBudget


class OutOfBudget(Exception):
    """The object has cost all it may."""
