"""Limits on the cost of expressions in policies and webhooks: none of them blocks other requests."""

from __future__ import annotations

import pytest

from pinnace.admission.expressions import (
    MOST_COST_OF_ONE,
    Budget,
    ConditionFailed,
    all_hold,
    read_conditions,
    try_compile,
)
from pinnace.schema.cel.errors import CelError
from pinnace.schema.cel.policies import compile_policy_expression
from pinnace.schema.cel.types import DYN

CHEAP = compile_policy_expression("[1, 2, 3].all(a, a > 0)")
HUNDREDFOLD = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all({0}, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all({0}{0}, {1}))"
LONG = HUNDREDFOLD.format("a", HUNDREDFOLD.format("b", "a + b > 0"))
"""Costs some 75,000."""
ENDLESS = HUNDREDFOLD.format("a", HUNDREDFOLD.format("b", HUNDREDFOLD.format("c", "a + b + c > 0")))


def test_an_expression_is_given_up_long_before_the_budget_of_all_is_spent() -> None:
    budget = Budget({})
    with pytest.raises(CelError, match="actual cost limit exceeded"):
        budget.evaluate(compile_policy_expression(ENDLESS))
    assert MOST_COST_OF_ONE < budget.cost < 2 * MOST_COST_OF_ONE
    assert budget.evaluate(CHEAP) is True  # The other expressions have the rest.


def test_all_expressions_together_have_a_budget_too() -> None:
    long = compile_policy_expression(LONG)
    budget = Budget({}, limit=100_000)
    assert budget.evaluate(long) is True
    with pytest.raises(CelError, match="actual cost limit exceeded"):
        budget.evaluate(long)


def test_the_cost_of_a_variable_is_counted_once() -> None:
    names = [f"variables.v{number}" for number in range(16)]
    budget = Budget({"variables": {}}, dict.fromkeys(names, try_compile(LONG)))
    program = compile_policy_expression(" && ".join(names), dict.fromkeys(names, DYN))
    assert budget.evaluate(program) is True
    assert budget.cost > MOST_COST_OF_ONE


NINE_TENTHS = " && ".join([LONG] * 12)
"""Costs nearly as much as one expression may."""


@pytest.mark.parametrize("count", [2, 3])
def test_conditions_have_a_smaller_budget_than_the_rest(count: int) -> None:
    conditions = read_conditions([{"name": f"c{number}", "expression": NINE_TENTHS} for number in range(count)])
    if count == 2:
        assert all_hold(conditions, {}, fails_closed=True) is True
        return
    with pytest.raises(ConditionFailed) as failed:
        all_hold(conditions, {}, fails_closed=True)
    assert str(failed.value) == (
        "validation failed due to running out of cost budget, no further validation rules will be run"
    )
    assert all_hold(conditions, {}, fails_closed=False) is False


def test_one_condition_alone_is_refused_for_its_cost() -> None:
    conditions = read_conditions([{"name": "endless", "expression": ENDLESS}])
    with pytest.raises(ConditionFailed) as failed:
        all_hold(conditions, {}, fails_closed=True)
    assert str(failed.value) == (
        f"expression '{ENDLESS}' resulted in error: operation cancelled: actual cost limit exceeded"
    )
