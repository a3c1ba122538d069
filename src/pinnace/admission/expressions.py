"""Evaluates the CEL expressions of webhook conditions and policies, with their variables and cost limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pinnace.model.users import User
from pinnace.model.write_review import Review
from pinnace.schema.cel.errors import CelError, CompileError, CostExceeded, ExceedsInlineBudget
from pinnace.schema.cel.library.authorizer import REQUEST_RESOURCE, CelAuthorizer, Oracle, Question, ResourceCheck
from pinnace.schema.cel.run import CelRun

if TYPE_CHECKING:
    from pinnace.schema.cel.program import Program, Variable

MOST_COST = 10_000_000
"""The largest cost of all expressions of one policy or webhook for one write."""
MOST_COST_OF_ONE = 1_000_000
"""The largest cost of each of them."""
MOST_COST_OF_CONDITIONS = 2_500_000
"""The largest cost of all match conditions of one policy or webhook, counted apart."""
OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"

Oracles = Callable[[User], Oracle]
"""Returns the authorizer of a user, for expressions."""


def bindings(
    review: Review,
    oracles: Oracles,
    *,
    request: Mapping[str, Any],
    params: Any = None,
    namespace: Any = None,
) -> dict[str, Any]:
    """Return the CEL variables of a review, with the objects as the request shows them."""
    authorizer = CelAuthorizer(oracles(review.user))
    resource = review.resource
    question = Question(
        group=resource.group,
        resource=resource.plural,
        subresource=review.subresource,
        namespace=review.namespace,
        name=review.name,
    )
    return {
        "object": request.get("object"),
        "oldObject": request.get("oldObject"),
        "request": {name: value for name, value in request.items() if name not in ("object", "oldObject")},
        "params": params,
        "namespaceObject": namespace,
        "variables": {},
        "authorizer": authorizer,
        REQUEST_RESOURCE: ResourceCheck(authorizer, question),
    }


class _Lazy(dict[str, Any]):
    """Variables, some of which are evaluated when they are first read."""

    def __init__(self, known: Mapping[str, Any], later: Mapping[str, Program | CompileError]) -> None:
        super().__init__(known)
        self.later = later
        self.budget: Budget | None = None

    def __missing__(self, name: str) -> Any:
        program = self.later[name]
        assert self.budget is not None, "variables are read during an evaluation"
        try:
            if isinstance(program, CompileError):
                raise CelError(str(program))
            value = self[name] = self.budget.evaluate(program)
        except CelError as err:
            variable = name.partition(".")[2]
            raise CelError(f'composited variable "{variable}" fails to evaluate: {err}') from None
        return value


class Budget:
    """Variables and what looking at them may still cost.

    Raises ExceedsInlineBudget once `inline_budget` is spent: evaluate again in a thread, beside the event loop.
    """

    def __init__(
        self,
        variables: Mapping[str, Any],
        later: Mapping[str, Program | CompileError] | None = None,
        *,
        limit: int = MOST_COST,
        inline_budget: int | None = None,
    ) -> None:
        known = _Lazy(variables, later or {})
        known.budget = self
        self._run = CelRun(known, limit)
        self._limit = self._of_one = limit
        self._inline_budget = limit if inline_budget is None else min(limit, inline_budget)

    @property
    def cost(self) -> int:
        """The cost so far."""
        return self._run.cost

    @property
    def is_spent(self) -> bool:
        return self._run.cost > self._limit

    def evaluate(self, program: Program) -> Any:
        """Evaluate a program. Raise CelError. The cost of variables that it reads is not counted as its own."""
        run, outer, before = self._run, self._of_one, self._run.cost
        self._of_one = min(self._limit, before + MOST_COST_OF_ONE)
        run.limit = min(self._of_one, self._inline_budget)
        try:
            return program.evaluate_in(run)
        except CostExceeded:
            if self._inline_budget < run.cost <= self._of_one:
                raise ExceedsInlineBudget from None
            raise
        finally:
            self._of_one = min(self._limit, outer + run.cost - before)
            run.limit = min(self._of_one, self._inline_budget)


@dataclass(frozen=True, slots=True)
class Condition:
    name: str
    expression: str
    program: Program | CompileError


class ConditionFailed(Exception):
    """A match condition could not be evaluated, and the failure policy is Fail."""


def try_compile(expression: str, more: Mapping[str, Variable] | None = None) -> Program | CompileError:
    """Compile an expression. A compile error is returned, and raised when the expression is used."""
    from pinnace.schema.cel.policies import compile_policy_expression  # noqa: PLC0415 - few clusters have policies.

    try:
        return compile_policy_expression(expression, more)
    except CompileError as err:
        return err


def read_conditions(entries: Sequence[Mapping[str, Any]] | None) -> tuple[Condition, ...]:
    return tuple(
        Condition(condition.get("name", ""), condition["expression"], try_compile(condition["expression"]))
        for condition in entries or ()
    )


def all_hold(
    conditions: Sequence[Condition],
    variables: Mapping[str, Any],
    *,
    fails_closed: bool,
    inline_budget: int | None = None,
) -> bool:
    """Whether every condition is true. A false condition decides; without one, an error refuses or counts as false.

    Raises ConditionFailed, and ExceedsInlineBudget once its inline budget is spent.
    """
    if not conditions:
        return True
    errs: list[str] = []
    budget = Budget(variables, limit=MOST_COST_OF_CONDITIONS, inline_budget=inline_budget)
    for condition in conditions:
        try:
            if isinstance(condition.program, CompileError):
                raise CelError(f"compilation failed: {condition.program}")
            if budget.evaluate(condition.program) is False:
                return False
        except CelError as err:
            if budget.is_spent:
                errs = [OUT_OF_BUDGET]
                break
            errs.append(f"expression '{condition.expression}' resulted in error: {err}")
    if errs and fails_closed:
        raise ConditionFailed(errs[0] if len(errs) == 1 else f"[{', '.join(errs)}]")
    return not errs
