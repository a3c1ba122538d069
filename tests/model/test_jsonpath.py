"""The cells of printer columns, by the type of the column: recorded from a real kube-apiserver."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from pinnace.kinds.cells import since
from pinnace.model.jsonpath import JsonPathError, Steps, compile_path, fields_of, integer_at, put_at, text_at, value_at
from pinnace.model.printer_columns import MOST_STEPS_OF_ROW, RowSteps, column

NOW = datetime(2020, 1, 1, 0, 0, 5, tzinfo=UTC)
OBJECT: dict[str, Any] = {
    "metadata": {"name": "x"},
    "spec": {
        "s": "text",
        "i": 5,
        "f": 2.5,
        "big": 12345678.5,
        "b": True,
        "n": None,
        "o": {"z": 1, "a": "<&>"},
        "l": ["a", "b", "c"],
        "li": [1, 2, 3],
        "lo": [
            {"type": "Ready", "status": "True", "n": 1},
            {"type": "Other", "status": "False", "n": 2.5},
            {"type": "Third"},
        ],
        "date": "2020-01-01T00:00:00Z",
        "bad": "soon",
        "e": "",
        "a.b": "dotted",
        "esc": "it's",
        "nested": {"x": {"y": [{"z": [7, 8]}]}},
        "empty": [],
        "m": {"k1": "v1"},
    },
}
TYPES = ("string", "integer", "number", "boolean", "date")

CELLS: list[tuple[str, tuple[Any, ...]]] = [
    (".spec.s", ("text", None, None, None, "<invalid>")),
    (".spec.i", ("5", 5, 5, None, None)),
    (".spec.f", ("2.5", 2, 2.5, None, None)),
    (".spec.big", ("1.23456785e+07", 12345678, 12345678.5, None, None)),
    (".spec.b", ("true", None, None, True, None)),
    (".spec.n", ("<no value>", None, None, None, None)),
    (".spec.o", ('{"a":"\\u003c\\u0026\\u003e","z":1}', None, None, None, None)),
    (".spec.l", ('["a","b","c"]', None, None, None, None)),
    (".spec.missing", (None, None, None, None, None)),
    (".spec.l[0]", ("a", None, None, None, "<invalid>")),
    (".spec.l[-1]", ("c", None, None, None, "<invalid>")),
    (".spec.l[5]", (None, None, None, None, None)),
    (".spec.l[1:]", ("b", None, None, None, "<invalid>")),
    (".spec.l[*]", ("a", None, None, None, "<invalid>")),
    (".spec.l[0,2]", ("a", None, None, None, "<invalid>")),
    (".spec.m.*", ("v1", None, None, None, "<invalid>")),
    ('.spec.lo[?(@.type=="Ready")].status', ("True", None, None, None, "<invalid>")),
    (".spec.lo[?(@.type=='Other')].status", ("False", None, None, None, "<invalid>")),
    (".spec.lo[?(@.n==1)].type", (None, None, None, None, None)),
    (".spec.lo[?(@.n>1)].type", (None, None, None, None, None)),
    (".spec.lo[?(@.status)].type", ("Ready", None, None, None, "<invalid>")),
    ('.spec.lo[?(@.type!="Ready")].type', ("Other", None, None, None, "<invalid>")),
    (".spec['s']", ("text", None, None, None, "<invalid>")),
    (".spec['a.b']", (None, None, None, None, None)),
    (".spec.a\\.b", ("dotted", None, None, None, "<invalid>")),
    (".spec.date", ("2020-01-01T00:00:00Z", None, None, None, "5s")),
    (".spec.bad", ("soon", None, None, None, "<invalid>")),
    (".spec.e", ("", None, None, None, "<unknown>")),
    (".spec.nested.x.y[0].z[1]", ("8", 8, 8, None, None)),
    (".spec.s[0]", (None, None, None, None, None)),
    (".spec.s.t", (None, None, None, None, None)),
    (".spec.lo[?(@.missing=='x')].type", (None, None, None, None, None)),
    (".spec.empty[0]", (None, None, None, None, None)),
    (".spec.empty", ("[]", None, None, None, None)),
    (".spec.empty[*]", (None, None, None, None, None)),
    ('.spec.lo[?(@.type=="Nope")].status', (None, None, None, None, None)),
    (".spec.o[?(@.a)]", (None, None, None, None, None)),
    (".spec.li[0:2]", ("1", 1, 1, None, None)),
    (".spec.li[::2]", ("1", 1, 1, None, None)),
    (".spec.lo[0].type", ("Ready", None, None, None, "<invalid>")),
    (".spec.lo[*].type", ("Ready", None, None, None, "<invalid>")),
    ('.spec.lo[?(@.type=="Ready")].missing', (None, None, None, None, None)),
    (".spec.n.x", (None, None, None, None, None)),
    (".spec.lo[?(@.n==1.0)].type", (None, None, None, None, None)),
    (".spec.lo[?(@.status==true)].type", (None, None, None, None, None)),
    ('.spec.lo[?(@.type == "Ready")].status', ("True", None, None, None, "<invalid>")),
]


@pytest.mark.parametrize(("path", "cells"), CELLS, ids=[path for path, _ in CELLS])
def test_a_column_shows_what_kubernetes_shows(path: str, cells: tuple[Any, ...]) -> None:
    row = tuple(column(path, type, since=since)(OBJECT, NOW) for type in TYPES)
    assert row == cells


@pytest.mark.parametrize(
    ("path", "actual"),
    [
        (".spec.l.length()", [3]),
        (".spec.o.length()", [2]),
        (".spec.missing.length()", []),
        (".spec.i.length()", []),
        (".spec.empty.length()", [0]),
        (".spec.lo[*].length()", [3]),
        ('.spec.lo[?(@.status=="True")].length()', [1]),
        ('.spec.lo[?(@.status=="Nope")].length()', [0]),
        (".spec.l.join()", ["a,b,c"]),
        (".spec.l.join(/)", ["a/b/c"]),
        (r".spec.l.join(\,\ )", ["a, b, c"]),
        (".spec.lo[*].type.join()", ["Ready,Other,Third"]),
        (".spec.li.join()", ["1,2,3"]),
        (".spec.s.join()", []),
        (".spec.length().x", []),
    ],
)
def test_a_path_may_count_and_join(path: str, actual: list[Any]) -> None:
    assert compile_path(path)(OBJECT) == actual


@pytest.mark.parametrize(
    "path",
    [
        "{.a}",
        ".a[",
        ".a[x]",
        ".a[?(@.b=='x']",
        ".a[?(@.b=='x')",
        "'x",
        ".a,b",
        ".a....b",
        ".a[?(@.b==)]",
        ".a[::0]",
        ".a[?(@.b=~'x')]",
    ],
)
def test_a_path_that_cannot_be_read_is_refused(path: str) -> None:
    with pytest.raises(JsonPathError):
        compile_path(path)


@pytest.mark.parametrize("path", ["a.b", ".spec.lo[?(@.type==='y')]", "range"])
def test_a_path_that_can_be_read_but_not_followed_shows_nothing(path: str) -> None:
    assert column(path, "string", since=since)(OBJECT, NOW) is None


def test_a_recursive_path_finds_at_every_depth() -> None:
    assert sorted(map(str, compile_path("..z")(OBJECT))) == ["1", "[7, 8]"]


def test_simple_paths_read_and_write() -> None:
    obj: dict[str, Any] = {"spec": {"replicas": 3, "bad": "x", "none": None}}
    assert integer_at(obj, fields_of(".spec.replicas")) == 3
    assert integer_at(obj, fields_of(".status.replicas")) is None
    assert value_at(obj, fields_of(".spec.none.below")) is None
    assert text_at(obj, fields_of(".spec.bad")) == "x"
    put_at(obj, fields_of(".status.at.replicas"), 1)
    put_at(obj, fields_of(".spec.replicas"), None)
    put_at(obj, fields_of(".other.replicas"), None)
    assert obj == {"spec": {"bad": "x", "none": None}, "status": {"at": {"replicas": 1}}}


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (".spec.bad", ".spec.bad accessor error: x is of the type string, expected int64"),
        (".spec.bad.below", ".spec.bad.below accessor error: x is of the type string, expected map[string]interface{}"),
    ],
)
def test_a_value_of_another_type_is_refused_in_gos_words(path: str, why: str) -> None:
    with pytest.raises(JsonPathError) as refused:
        integer_at({"spec": {"bad": "x"}}, fields_of(path))
    assert str(refused.value) == why


def chain_of(depth: int) -> Any:
    value: Any = "end"
    for _ in range(depth):
        value = {"a": value}
    return value


COSTLY = {
    "five descents": ".spec..a..a..a..a..a",
    "descents in a filter": '.list[?(@..a..a..a..a=="x")].a',
    "unions": ".nested" + "[0,0,0,0,0,0,0,0]" * 9,
    "a filter of a filter": ".list[?(@..a)]..a[?(@..a)]..a",
    "a union of descents": ".spec['a','a','a','a']..a..a..a..a",
    "joined ancestors": ".spec..a..a..a.join()",
}


def nested_lists(depth: int) -> Any:
    return [nested_lists(depth - 1)] * 8 if depth else ["end"]


@pytest.mark.parametrize("path", COSTLY.values(), ids=COSTLY)
def test_a_path_that_finds_too_many_values_fails_after_so_many_steps(path: str) -> None:
    deep = chain_of(200)
    value = {"spec": deep, "list": [deep] * 200, "nested": nested_lists(9)}
    steps = Steps(MOST_STEPS_OF_ROW)
    with pytest.raises(JsonPathError):
        compile_path(path)(value, steps)
    # A step takes its values before it counts them: of one value these are the entries of an object.
    assert -MOST_STEPS_OF_ROW * 8 < steps.left < 0


def test_the_columns_of_a_row_share_its_steps() -> None:
    row = RowSteps()
    obj = {"spec": chain_of(200)}
    costly = column(".spec..a..a..a..a..a", "string", since=since, row=row)
    plain = column(".spec.a.a", "string", since=since, row=row)
    assert plain(obj, NOW) is not None
    assert costly(obj, NOW) is None
    assert plain(obj, NOW) is None
    row.begin()
    assert plain(obj, NOW) is not None


def test_a_long_path_is_not_compiled() -> None:
    cell = column(".spec" + ".a" * 2_000, "string", since=since)
    assert cell({"spec": chain_of(3_000)}, NOW) is None


def test_an_object_of_usual_size_is_searched_as_a_whole() -> None:
    pods = [{"name": f"pod-{number}", "containers": [{"image": f"i{number}"}]} for number in range(2_000)]
    assert column("..image", "string", since=since)({"spec": {"pods": pods}}, NOW) == "i0"
