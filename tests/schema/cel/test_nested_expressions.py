"""Expressions nested in each other are compiled in time that grows with their length, and give the right value."""

from __future__ import annotations

import pytest
from tests.growth import is_linear

from pinnace.schema.cel.errors import CelError
from pinnace.schema.cel.program import Program, compile_cel
from pinnace.schema.cel.types import INT, STRING, list_of

DEPTH = 48
FORMS = {
    "all": "[1].all(x, {})",
    "exists": "[1].exists(x, {})",
    "exists_one": "[1].exists_one(x, {})",
    "all of a map": "{{'a': 1}}.all(k, v, {})",
    "map": "[1].map(x, {})[0]",
    "map with a condition": "[1].map(x, {}, true).size() > 0",
    "filter": "[1].filter(x, {}).size() > 0",
    "transformMap": "{{'a': 1}}.transformMap(k, v, {})['a']",
    "range": "[{}].all(x, x)",
    "choice": "(true ? {} : false)",
    "condition": "({} ? true : false)",
    "and": "(true && {})",
    "optional index": "[{}][?0].orValue(false)",
    "optMap of a nested target": "optional.of({}).optMap(x, x).orValue(false)",
    "optMap of a nested value": "optional.of(1).optMap(x, {}).orValue(false)",
    "optFlatMap": "optional.of({}).optFlatMap(x, optional.of(x)).orValue(false)",
}


def nest(form: str, depth: int) -> str:
    expression = "self == 1"
    for _ in range(depth):
        expression = form.format(expression)
    return expression


def compiled(expression: str) -> Program:
    return compile_cel(expression, {"self": INT})


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_time_to_compile_grows_with_the_depth(form: str) -> None:
    assert is_linear(compiled, lambda depth: nest(form, depth), 12)
    assert is_linear(compiled, lambda depth: nest(form, depth), DEPTH // 2)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_nested_expression_has_the_value_of_the_innermost(form: str) -> None:
    program = compiled(nest(form, 12))
    for given, value in ((1, True), (2, False)):
        assert program.evaluate(self=given) is value


def test_a_chain_of_optional_values_is_mapped_in_turn() -> None:
    chain = "optional.of(self)" + "".join(f".optMap(x{n}, x{n} + {n})" for n in range(40)) + ".value()"
    assert compiled(chain).evaluate(self=1) == 1 + sum(range(40))


@pytest.mark.parametrize(
    "expression",
    [
        "text" + f".replace('a', '{'a' * 100}')" * 5 + ".size() > 0",
        "text.replace('a', text.replace('a', '{'))".replace("{", "a" * 10_000) + ".size() > 0",
        "".join(f"[{n}].all(x{n}, " for n in range(2)) + "[text, text, text].join(text).size() > 0))",
    ],
    ids=["replace", "replace by a long text", "join"],
)
def test_a_value_that_is_too_large_is_refused_before_it_is_made(expression: str) -> None:
    program = compile_cel(expression, {"text": STRING})
    with pytest.raises(CelError, match="larger than 10000000"):
        program.evaluate(text="a" * 4_000_000)


def test_a_list_that_is_doubled_is_refused_before_it_is_made() -> None:
    program = compile_cel("numbers + numbers", {"numbers": list_of(INT)})
    with pytest.raises(CelError, match="larger than 1000000"):
        program.evaluate(numbers=[1] * 600_000)
    assert program.evaluate(numbers=[1]) == [1, 1]


def test_a_range_that_is_too_long_is_refused_before_it_is_made() -> None:
    program = compile_cel("lists.range(self)", {"self": INT})
    with pytest.raises(CelError, match="larger than 1000000"):
        program.evaluate(self=2_000_000_000)
    assert program.evaluate(self=2) == [0, 1]


@pytest.mark.parametrize(
    "expression",
    [
        "numbers.map(x, x + 1).size() > 0",
        "numbers.filter(x, x > 0).size() > 0",
        "numbers.transformMap(i, x, x).size() > 0",
    ],
    ids=["map", "filter", "transformMap"],
)
def test_the_time_to_make_a_list_or_map_grows_with_its_items(expression: str) -> None:
    program = compile_cel(expression, {"numbers": list_of(INT)})
    assert is_linear(lambda given: program.evaluate(numbers=given), lambda size: list(range(size)), 10_000)


def test_a_macro_makes_a_new_list_each_time() -> None:
    program = compile_cel("numbers.map(x, numbers.map(y, y)) == [[1, 2], [1, 2]]", {"numbers": list_of(INT)})
    for _ in range(2):
        assert program.evaluate(numbers=[1, 2]) is True
