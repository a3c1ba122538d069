"""What expressions of policies and webhooks may cost, so that none of them keeps the server from everybody else."""

from __future__ import annotations

import pytest

from pinnace.admission.expressions import MOST_COST_OF_ONE, Budget, compiled, tried
from pinnace.schema.cel_errors import CelError
from pinnace.schema.cel_types import DYN

CHEAP = compiled("[1, 2, 3].all(a, a > 0)")
HUNDREDFOLD = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all({0}, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all({0}{0}, {1}))"
LONG = HUNDREDFOLD.format("a", HUNDREDFOLD.format("b", "a + b > 0"))
"""Costs some 75,000."""
ENDLESS = HUNDREDFOLD.format("a", HUNDREDFOLD.format("b", HUNDREDFOLD.format("c", "a + b + c > 0")))


def test_an_expression_is_given_up_long_before_the_budget_of_all_is_spent() -> None:
    budget = Budget({})
    with pytest.raises(CelError, match="actual cost limit exceeded"):
        budget.evaluate(compiled(ENDLESS))
    assert MOST_COST_OF_ONE < budget.cost < 2 * MOST_COST_OF_ONE
    assert budget.evaluate(CHEAP) is True  # What is left is there for the others.


def test_all_expressions_together_have_a_budget_too() -> None:
    long = compiled(LONG)
    budget = Budget({}, limit=100_000)
    assert budget.evaluate(long) is True
    with pytest.raises(CelError, match="actual cost limit exceeded"):
        budget.evaluate(long)


def test_what_a_variable_costs_is_its_own() -> None:
    names = [f"variables.v{number}" for number in range(16)]
    budget = Budget({"variables": {}}, dict.fromkeys(names, tried(LONG)))
    program = compiled(" && ".join(names), dict.fromkeys(names, DYN))
    assert budget.evaluate(program) is True
    assert budget.cost > MOST_COST_OF_ONE
