"""The cost budget of one object's rules: by estimated cost, actual cost, and time on the event loop."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from pinnace.schema.cel.errors import CostExceeded, ExceedsInlineBudget
from pinnace.schema.cel.program import Program
from pinnace.schema.cel.run import CelRun

CALL_LIMIT = 1_000_000
BUDGET = 10_000_000
BLINDLY = 400_000
"""Rules with a total cost up to this take two milliseconds at most, and run without a clock."""
SECONDS_AT_ONCE = 0.001
"""How long other rules may take on the event loop. A rule that has started is finished."""


class TooCostly(Exception):
    """By the estimates of its rules the object may be over budget: its actual cost must be counted."""


class Account:
    """The rest of the budget. Unmetered, every rule is charged its estimate for an object of this size.

    On the event loop, with an `inline_budget`, time and actual cost are measured once the estimates exceed BLINDLY:
    estimates are seldom reached, so clock and meter decide whether the evaluation takes too long.
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
        """Return the value. Raise CelError, CostExceeded above a call's limit, OutOfBudget above the object's."""
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
        # The limit of a call keeps it under five milliseconds.
        if self._spent > SECONDS_AT_ONCE:
            raise ExceedsInlineBudget
        began = perf_counter()
        try:
            return program.evaluate(**bindings)
        finally:
            self._spent += perf_counter() - began

    def _evaluate_counting(self, program: Program, bindings: dict[str, Any]) -> Any:
        assert self._inline_budget is not None, "without an inline budget there is no floor"
        run = CelRun(bindings, self._inline_budget - self._counted)
        try:
            return program.evaluate_in(run)
        except CostExceeded:  # The limit of the inline budget: the limit of a call is above its estimate.
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
    """The object's budget is spent."""
