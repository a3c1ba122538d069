"""Expressions and what they give, the same as a kube-apiserver 1.36 and cel-go say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.schema.cel.schemas import VALUES_OBJECT, VALUES_SCHEMA

from pinnace.schema.cel.environment import EXTENDED, KUBERNETES
from pinnace.schema.cel.errors import CelError, CompileError, InstantiationError
from pinnace.schema.cel.format import format_template
from pinnace.schema.cel.program import compile_cel
from pinnace.schema.cel.types import DYN, INT
from pinnace.schema.cel.values import Duration, Timestamp, Uint
from pinnace.schema.shape import Schema

SCHEMA = Schema(VALUES_SCHEMA)
CASES = [json.loads(line) for line in Path(__file__).with_name("values.jsonl").read_text().splitlines()]


def outcome(expression: str) -> dict[str, Any]:
    """Return the result of the expression, as the table writes it."""
    try:
        program = compile_cel(expression, {"self": SCHEMA})
    except (CompileError, InstantiationError) as error:
        return {"refused": str(error)}
    try:
        value = program.evaluate(self=VALUES_OBJECT)
    except CelError as error:
        return {"error": str(error)}
    return {"shown": format_template("%s", [value])}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["expression"])
def test_an_expression_gives_what_kubernetes_gives(case: dict[str, Any]) -> None:
    expected = {key: value for key, value in case.items() if key != "expression"}
    assert outcome(case["expression"]) == expected


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("r\"\\d\" + R'a'", "\\da"),
        ('"""a"b\nc"""', 'a"b\nc'),
        ("'''it's'''", "it's"),
        ('"\\u00e9\\U0001F600\\x41\\101\\n\\?"', "é😀AA\n?"),
        ('b"\\xff\\101é"', b"\xffA\xc3\xa9"),
        ("0x1F", 31),
        ("-0x10", -16),
        ("7u", Uint(7)),
        (".5 + 1e2", 100.5),
        ("1 // a comment\n + 2", 3),
        ("[1, 2,]", [1, 2]),
        ("{'a': 1,}", {"a": 1}),
        ("- -5", 5),
        ("!!true", True),
        ("1 < 2 == true", True),
        ("1 + 2 * 3 - 4 / 2", 5),
        ("duration('1m')", Duration(60_000_000_000)),
        ("timestamp('1970-01-01T00:00:01Z')", Timestamp(1_000_000_000)),
    ],
)
def test_literals_and_precedence_are_read_as_the_language_says(expression: str, value: Any) -> None:
    result = compile_cel(expression, {}).evaluate()
    assert result == value
    assert type(result) is type(value)


def test_bind_is_known_only_where_it_is_asked_for() -> None:
    expression = "cel.bind(x, 2 + 3, x * x)"
    assert compile_cel(expression, {}, environment=EXTENDED).evaluate() == 25
    with pytest.raises(CompileError, match="undeclared reference to 'bind'"):
        compile_cel(expression, {}, environment=KUBERNETES)


def test_a_bound_value_that_is_not_used_cannot_fail() -> None:
    assert compile_cel("cel.bind(x, 1 / 0, 3)", {}, environment=EXTENDED).evaluate() == 3


def test_variables_of_unknown_type_are_judged_when_they_are_seen() -> None:
    program = compile_cel("object.spec.replicas > 2 && object.metadata.name == 'a'", {"object": DYN})
    assert program.evaluate(object={"spec": {"replicas": 3}, "metadata": {"name": "a"}}) is True
    with pytest.raises(CelError, match="no such key: spec"):
        program.evaluate(object={"metadata": {"name": "a"}})
    assert program.evaluate(object={"metadata": {"name": "b"}}) is False


def test_a_variable_that_is_not_given_is_an_error_only_where_it_counts() -> None:
    program = compile_cel("a > 1 || b > 1", {"a": INT, "b": INT})
    assert program.evaluate(a=2) is True
    with pytest.raises(CelError, match="no such attribute"):
        program.evaluate(a=1)


def test_very_deep_expressions_are_refused_or_evaluated_but_never_crash() -> None:
    assert compile_cel("(" * 60 + "1" + ")" * 60, {}).evaluate() == 1
    with pytest.raises(CompileError, match="recursion limit"):
        compile_cel("(" * 5000 + "1" + ")" * 5000, {})
    assert compile_cel(" && ".join(["true"] * 500), {}).evaluate() is True


@pytest.mark.parametrize("zone", ["America/New_York", "-02:00"])
def test_a_local_time_before_the_first_year_is_an_error_of_the_expression(zone: str) -> None:
    wrong = outcome(f"timestamp('0001-01-01T00:00:00Z').getFullYear('{zone}')")
    assert wrong == {"error": "timestamp is out of range in this time zone"}
