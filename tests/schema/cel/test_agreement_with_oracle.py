"""A compiled expression has the value, the error and the cost that a plain interpreter finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.schema.cel.oracle import interpret
from tests.schema.cel.schemas import VALUES_OBJECT, VALUES_SCHEMA

from pinnace.schema.cel.environment import EXTENDED
from pinnace.schema.cel.errors import CelError, CompileError, CostExceeded, InstantiationError
from pinnace.schema.cel.program import Program, Variable, compile_cel
from pinnace.schema.cel.run import UNLIMITED, CelRun
from pinnace.schema.cel.types import BOOL, DYN, INT, list_of
from pinnace.schema.shape import Schema

SCHEMA = Schema(
    {
        "type": "object",
        "properties": {
            **VALUES_SCHEMA["properties"],
            "nulls": {"type": "array", "items": {"type": "integer", "nullable": True}},
            "flags": {"type": "array", "items": {"type": "boolean", "nullable": True}},
            "nulmap": {"type": "object", "additionalProperties": {"type": "string", "nullable": True}},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
)
OBJECT = {
    **VALUES_OBJECT,
    "nulls": [1, None, 3],
    "flags": [True, None, False],
    "nulmap": {"a": "x", "b": None},
    "any": {"n": 1, "b": True},
}
DYNAMIC = {"n": 1, "f": 2.5, "s": "text", "b": True, "none": None, "l": [1, "a", None, [2]], "m": {"a": {"b": [0, 1]}}}
NUMBERS = [0, 1, 2, 3]
VARIABLES: dict[str, Variable] = {"self": SCHEMA, "x": DYN, "ints": list_of(INT), "missing": INT, "flag": BOOL}
VALUES: dict[str, Any] = {"self": OBJECT, "x": DYNAMIC, "ints": NUMBERS, "flag": True}
CASES = [json.loads(line)["expression"] for line in Path(__file__).with_name("values.jsonl").read_text().splitlines()]


def compiled(expression: str) -> Program | None:
    try:
        return compile_cel(expression, VARIABLES, environment=EXTENDED)
    except (CompileError, InstantiationError):
        return None


def outcome(program: Program, limit: int) -> tuple[Any, int]:
    run = CelRun(VALUES, limit)
    try:
        return program.evaluate_in(run), run.cost
    except CelError as error:
        return error, run.cost


def assert_agrees(expression: str, limit: int = UNLIMITED) -> None:
    program = compiled(expression)
    if program is None:
        return
    expected, expected_cost = interpret(program, dict(VALUES), EXTENDED, limit)
    value, cost = outcome(program, limit)
    assert (type(value), repr(value)) == (type(expected), repr(expected)), expression
    if isinstance(expected, CostExceeded):
        assert cost > limit  # The interpreter stops at the step, a compiled expression a few steps later.
    else:
        assert cost == expected_cost, expression


@pytest.mark.parametrize("expression", CASES)
def test_every_recorded_expression_costs_what_it_costs_step_by_step(expression: str) -> None:
    assert_agrees(expression)


BOOLEANS = st.sampled_from(
    [
        *("true", "false", "flag", "missing == 1", "self.s == 'notatime'", "self.missing == ''", "has(self.o)"),
        *("has(self.missing)", "x.b", "x.n", "x.none", "x.nothing", "self.l[0] == 1", "self.l[9] == 1", "1 / 0 == 1"),
        *("self.flags[0]", "self.flags[1]", "self.any == self.any", "self.o == self.o", "self.set == ['b', 'a']"),
        *("self.t < timestamp('2021-01-01T00:00:00Z')", "self.ml == self.ml2", "dyn(1) == dyn(1.0)", "x == x"),
    ]
)
INTEGERS = st.sampled_from(
    [
        *("0", "1", "-7", "9223372036854775807", "self.l[0]", "self.l[7]", "self.m['a']", "self.m.a", "self.m.z"),
        *(
            "self.nulls[0]",
            "self.nulls[1]",
            "x.n",
            "x.s",
            "x.f",
            "x.l[0]",
            "x.l[2]",
            "x.m.a.b[1]",
            "missing",
            "ints[3]",
        ),
        *("size(self.s)", "self.o.?n.orValue(4)", "self.?missing.hasValue() ? 1 : 2", "int(self.d)", "self.ml[1].v"),
    ]
)
TEXTS = st.sampled_from(
    [
        *(
            "''",
            "'a'",
            "'notatime'",
            "self.s",
            "self.missing",
            "self.nul",
            "x.s",
            "x.n",
            "self.nulmap['a']",
            "self['s']",
        ),
        *(
            "self.nulmap.b",
            "string(self.t)",
            "self.?s.orValue('z')",
            "self.by",
            "string(self.dur)",
            "self.__namespace__",
        ),
    ]
)
LISTS = st.sampled_from(
    ["self.l", "self.l2", "ints", "[3, 1, 2]", "[]", "self.nulls", "x.l", "x.m", "self.m", "x.n", "self.bad"]
)


QUANTIFIERS = st.sampled_from(["all", "exists", "exists_one"])
CONTAINERS = st.sampled_from(["self.set", "self.m", "x", "x.m", "self.nulmap", "['a']"])
OPTIONALS = st.sampled_from(["self.?s", "optional.none()", "x.?n", "x.?q.r"])


def larger_booleans(smaller: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    numbers = larger_integers(INTEGERS)
    return st.one_of(
        st.builds("({} {} {})".format, smaller, st.sampled_from(["&&", "||", "==", "!="]), smaller),
        st.builds("!({})".format, smaller),
        st.builds("({} ? {} : {})".format, smaller, smaller, smaller),
        st.builds("({} {} {})".format, numbers, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), numbers),
        st.builds("{}.{}(i, {})".format, LISTS, QUANTIFIERS, smaller),
        st.builds("{}.{}(i, i {} {})".format, LISTS, QUANTIFIERS, st.sampled_from([">", "=="]), numbers),
        st.builds("{}.{}(k, v, {} || v == k)".format, LISTS, QUANTIFIERS, smaller),
        st.builds("{}.{}({})".format, TEXTS, st.sampled_from(["contains", "startsWith", "endsWith", "matches"]), TEXTS),
        st.builds("{} in {}".format, numbers, LISTS),
        st.builds("{} in {}".format, TEXTS, CONTAINERS),
        st.builds("cel.bind(b, {}, b || {})".format, smaller, smaller),
        st.builds("{}.optMap(o, {}).orValue({})".format, OPTIONALS, smaller, smaller),
        st.builds("[{}, {}][{}]".format, smaller, smaller, numbers),
        st.builds("dyn({})".format, smaller),
        st.builds("[{}].map(j, j && {}).all(j, j)".format, smaller, smaller),
    )


def larger_integers(smaller: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        smaller,
        st.builds("({} {} {})".format, smaller, st.sampled_from(["+", "-", "*", "/", "%"]), smaller),
        st.builds("{}.map(i, {}).size()".format, LISTS, smaller),
        st.builds("{}.map(i, i != {}, i).size()".format, LISTS, smaller),
        st.builds("{}.filter(i, i < {}).size()".format, LISTS, smaller),
        st.builds("{}.transformMap(k, v, v != {}, v).size()".format, LISTS, smaller),
        st.builds("{}.transformMapEntry(k, v, {{string(v): {}}}).size()".format, LISTS, smaller),
        st.builds("size({} + {})".format, TEXTS, TEXTS),
        st.builds("{{'a': {}, ?'b': self.?{}}}.size()".format, smaller, st.sampled_from(["s", "missing", "l"])),
        st.builds("[{}, ?x.?{}].size()".format, smaller, st.sampled_from(["s", "missing", "m"])),
        st.builds("[{}, {}].{}()".format, smaller, smaller, st.sampled_from(["sum", "max", "min"])),
        st.builds("{}.sortBy(i, i)[{}]".format, LISTS, smaller),
        st.builds("-({})".format, smaller),
    )


EXPRESSIONS = st.recursive(BOOLEANS, larger_booleans, max_leaves=6)


@given(EXPRESSIONS, st.sampled_from([UNLIMITED, UNLIMITED, 5, 30, 100]))
@example("(missing == 1 && [x.n, x.s].sum() in self.l)", UNLIMITED)
@example("((0 < [x.n, x.s].sum()) && flag)", UNLIMITED)
def test_an_expression_of_any_shape_gives_the_same(expression: str, limit: int) -> None:
    assert_agrees(expression, limit)
