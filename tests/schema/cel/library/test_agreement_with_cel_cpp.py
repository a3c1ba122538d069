"""Expressions of the standard language give what Google's implementation in C++ gives."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import pytest
from cel_expr_python import cel  # type: ignore[import-untyped]

from pinnace.schema.cel.environment import Environment
from pinnace.schema.cel.errors import CelError, CompileError, InstantiationError
from pinnace.schema.cel.library.optional import OPTIONALS
from pinnace.schema.cel.library.standard import STANDARD
from pinnace.schema.cel.program import compile_cel
from pinnace.schema.cel.types import DYN
from pinnace.schema.cel.values import NANOS, Duration, Timestamp, TypeValue

STANDARD_ONLY = Environment((STANDARD, OPTIONALS))
OPERANDS = [
    *("0", "1", "-7", "3", "9223372036854775807", "2u", "18446744073709551615u", "0.5", "-2.0", "'a'", "'b'", "''"),
    *(
        "b'a'",
        "true",
        "false",
        "null",
        "[1, 2]",
        "[]",
        "{'a': 1}",
        "duration('1h')",
        "timestamp('2020-01-01T00:00:00Z')",
    ),
]
OPERATORS = ["+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "in", "&&", "||"]


def is_known_to_differ(expression: str) -> bool:
    """Where C++ and Go differ, and Kubernetes is written in Go: keys no map can have, and three conversions."""
    if " in dyn({" in expression:
        return expression.startswith(("dyn([", "dyn(b'", "dyn(null", "dyn(duration", "dyn(timestamp", "dyn({"))
    return expression.startswith(("int(dyn(duration", "int(dyn(true", "int(dyn(false")) or (
        expression.startswith("duration(dyn(") and "'" not in expression
    )


FAILED = "an error"


def plain(value: Any) -> Any:
    """A value of ours in the oracle's terms, told from others of the same size by its type."""
    if isinstance(value, Duration):
        return ("duration", value.nanos // 1000)
    if isinstance(value, Timestamp):
        return ("timestamp", value.nanos // 1000)
    if isinstance(value, TypeValue):
        return ("type", value.name)
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return ("number", float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else value


def theirs(value: Any) -> Any:
    if isinstance(value, datetime.timedelta):
        return ("duration", value // datetime.timedelta(microseconds=1))
    if isinstance(value, datetime.datetime):
        return ("timestamp", int(value.timestamp()) * (NANOS // 1000) + value.microsecond)
    if isinstance(value, cel.Type):
        return ("type", value.name())
    if isinstance(value, list):
        return [theirs(each) for each in value]
    if isinstance(value, dict):
        return {key: theirs(each) for key, each in value.items()}
    return ("number", float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else value


def ours_of(expression: str) -> Any:
    try:
        return plain(compile_cel(expression, {"x": DYN}, environment=STANDARD_ONLY).evaluate(x=0))
    except (CelError, CompileError, InstantiationError):
        return FAILED


def theirs_of(environment: Any, expression: str) -> Any:
    try:
        value = environment.compile(expression).eval(data={"x": 0})
    except Exception:
        return FAILED
    return FAILED if value.type() == cel.Type.ERROR else theirs(value.plain_value())


@pytest.fixture(scope="module")
def environment() -> Any:
    return cel.NewEnv(variables={"x": cel.Type.DYN})


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator_gives_the_same_for_every_pair_of_values(environment: Any, operator: str) -> None:
    pairs = itertools.product(OPERANDS, OPERANDS)
    expressions = [f"dyn({left}) {operator} dyn({right})" for left, right in pairs]
    different = {
        expression: (ours_of(expression), theirs_of(environment, expression))
        for expression in expressions
        if not is_known_to_differ(expression) and ours_of(expression) != theirs_of(environment, expression)
    }
    assert different == {}


CONVERSIONS = ["int", "uint", "double", "string", "bytes", "bool", "duration", "timestamp", "size", "!", "-"]


@pytest.mark.parametrize("function", CONVERSIONS)
def test_a_conversion_gives_the_same_for_every_value(environment: Any, function: str) -> None:
    more = ["'12'", "'-3'", "'1.5'", "'true'", "'1h30m'", "'2020-02-29T00:00:00Z'", "1e30", "b'\\xff'", "'x'"]
    different = {}
    for operand in [*OPERANDS, *more]:
        expression = f"{function}(dyn({operand}))"
        if not is_known_to_differ(expression) and ours_of(expression) != theirs_of(environment, expression):
            different[expression] = (ours_of(expression), theirs_of(environment, expression))
    assert different == {}


@pytest.mark.parametrize(
    "expression",
    [
        "[1, 2, 3].all(v, v > 0)",
        "[1, 2, 3].exists(v, v == 2)",
        "[0, 2].exists(v, 4 / v == 2)",
        "[1, 0].all(v, 1 / v == 2)",
        "[0, 1].all(v, 1 / v == 1)",
        "[1, 2, 3].exists_one(v, v > 2)",
        "[0, 1].exists_one(v, 1 / v == 1)",
        "[1, 2, 3].map(v, v * v)",
        "[1, 2, 3].map(v, v > 1, v * v)",
        "[1, 2, 3].filter(v, v % 2 == 1)",
        "{'a': 1, 'b': 2}.all(k, k < 'c')",
        "{'a': 1}.exists(k, k == 'a')",
        "has({'a': 1}.a)",
        "has({'a': 1}.b)",
        "{'a': {'b': 2}}.a.b",
        "{'a': 1}.b",
        "[1, 2][1]",
        "[1, 2][2]",
        "x == 0 || 1 / x > 0",
        "1 / x > 0 || x == 0",
        "1 / x > 0 && x == 1",
        "x == 0 ? 'zero' : 'other'",
        "1 in [1, 2] && 'a' in {'a': 1}",
        "'abc'.matches('a.c') && 'abc'.startsWith('ab') && 'abc'.endsWith('bc') && 'abc'.contains('b')",
        "size('héllo') + size(b'h\\xc3\\xa9') + [1, 2].size()",
        "timestamp('2020-02-29T12:34:56Z').getDayOfYear()",
        "timestamp('2020-02-29T12:34:56Z').getHours('Asia/Kolkata')",
        "duration('100m').getHours()",
        "[[1, 2], [3]].map(v, v.map(w, w + 1))",
        "[[1, 2], [3]] == [[1, 2], [3]]",
        "type(1) == int && type([]) == list && type(type(1)) == type",
    ],
)
def test_macros_and_functions_give_the_same(environment: Any, expression: str) -> None:
    assert ours_of(expression) == theirs_of(environment, expression)
