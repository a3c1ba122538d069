"""The cost of expressions, actual and estimated, in Kubernetes' units."""

from __future__ import annotations

import pytest
from tests.schema.cel.schemas import VALUES_OBJECT, VALUES_SCHEMA

from pinnace.schema.cel import run as cel_run
from pinnace.schema.cel.cost.ranges import UNLIMITED
from pinnace.schema.cel.errors import CostExceeded
from pinnace.schema.cel.program import compile_cel
from pinnace.schema.cel.run import CelRun
from pinnace.schema.cel.types import INT, list_of
from pinnace.schema.shape import Schema

SCHEMA = Schema(VALUES_SCHEMA)


@pytest.mark.parametrize(
    ("expression", "cost", "most"),
    [
        ("self.l[0] == 1", 4, 3),
        ('self.s == "notatime"', 3, 3),
        ('self.s.startsWith("not")', 3, 3),
        ('self.s.matches("^[a-z]+$")', 4, 44),
        ('self.s.contains("at")', 3, 22),
        ("self.l.all(x, x > 0)", 13, 28),
        ("self.l.exists(x, x == 2)", 15, 28),
        ("self.l.exists_one(x, x == 2)", 10, 19),
        ("self.l.map(x, x + 1).size() == 2", 33, 85),
        ("self.l.filter(x, x > 1).size() == 1", 22, 90),
        ("self.m.all(k, self.m[k] > 0)", 17, 43),
        ("self.m.transformMap(k, v, v + 1).size() == 2", 15, 60),
        ("self.l.all(x, self.l2.all(y, x + y > 0))", 43, 208),
        ("has(self.s) && has(self.o.t)", 3, 3),
        ('self.?missing.orValue("x") == "x"', 2, 4),
        ('self.?s.orValue("x") == "notatime"', 3, 4),
        ('self.set == ["b", "a"]', 3, 13),
        ('self.s + self.s == "x" || true', 7, 45),
        ("[1, 2, 3].sum() == 6", 4, 14),
        ("self.l.sort() == [1, 2]", 22, 74),
        ('self.set.join(",") == "a,b"', 4, 104),
        ('self.s.split("a").size() == 2', 6, 44),
        ("sets.contains(self.l, [1])", 5, 18),
        ('quantity("1Gi").isGreaterThan(quantity("1G"))', 3, 3),
        ("self.d > 1.0 ? true : self.d < 0.0", 3, 6),
        ('duration("1h") < self.dur', 3, 4),
        ('dyn(self.s) == "x" || true', 4, 4),
    ],
)
def test_an_expression_costs_what_it_costs_in_kubernetes(expression: str, cost: int, most: int) -> None:
    program = compile_cel(expression, {"self": SCHEMA})
    run = CelRun({"self": VALUES_OBJECT})
    program.evaluate_in(run)
    assert run.cost == cost
    assert program.estimated_cost().most == most


def test_values_without_a_limit_can_cost_without_limit() -> None:
    program = compile_cel('self.l.map(x, string(x)).join(",") == ""', {"self": SCHEMA})
    assert program.estimated_cost().most > UNLIMITED // 100


def test_evaluation_stops_at_its_limit_and_no_operator_hides_it() -> None:
    program = compile_cel(
        "self.all(x, x > 0) || true", {"self": Schema({"type": "array", "items": {"type": "integer"}})}
    )
    assert program.evaluate_in(CelRun({"self": [1] * 10}, 100)) is True
    with pytest.raises(CostExceeded):
        program.evaluate_in(CelRun({"self": [1] * 100}, 100))


def test_steps_that_cost_nothing_are_paused_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = []
    monkeypatch.setattr(cel_run, "give_way", lambda: pauses.append(1))
    program = compile_cel("self.all(x, self.exists_one(y, false) || x == 1)", {"self": list_of(INT)})
    run = CelRun({"self": [1] * 400})
    assert program.evaluate_in(run) is True
    assert run.cost < 10_000
    assert len(pauses) > 100  # 160,000 steps of the inner loop.
