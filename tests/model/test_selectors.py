"""Selectors mean what Kubernetes says they mean, and refuse text in its words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.growth import cpu_seconds, is_linear

from pinnace.model.errors import BadRequest
from pinnace.model.selectors import (
    EVERYTHING,
    NOTHING,
    field_selector,
    from_labels,
    from_object,
    label_selector,
    validate_label_selector,
)

KEYS = st.sampled_from(["a", "b", "app.kubernetes.io/name", "in", "notin"])
VALUES = st.sampled_from(["", "x", "y", "1", "7", "in"])
LABELS = st.dictionaries(KEYS, VALUES)
BAD_KEY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
BAD_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("", {}, True),
        ("a=b", {"a": "b"}, True),
        ("a==b", {"a": "b", "c": "d"}, True),
        ("a=b", {"a": "c"}, False),
        ("a=b", {}, False),
        ("a=", {"a": ""}, True),
        ("a=", {}, False),
        ("a!=b", {}, True),
        ("a!=b", {"a": "b"}, False),
        ("a in (x, y)", {"a": "y"}, True),
        ("a in (x,y)", {"a": "z"}, False),
        ("a in ()", {"a": ""}, True),
        ("a in (,x)", {"a": ""}, True),
        ("a in (x,)", {"a": ""}, True),
        ("a in (x,y)", {"a": ""}, False),
        ("a notin (x)", {}, True),
        ("a notin (x)", {"a": "x"}, False),
        ("a", {"a": ""}, True),
        ("a", {}, False),
        ("!a", {}, True),
        ("! a", {"a": ""}, False),
        ("a>5", {"a": "6"}, True),
        ("a>5", {"a": "5"}, False),
        ("a<5", {"a": "-7"}, True),
        ("a<5", {"a": "four"}, False),
        ("a<5", {}, False),
        ("a<5", {"a": "-9223372036854775809"}, False),
        ("in in (in),notin notin (notin)", {"in": "in"}, True),
        (" a = b , c != d ", {"a": "b", "c": "e"}, True),
    ],
)
def test_a_label_selector_matches_what_it_says(text: str, labels: Mapping[str, str], matches: bool) -> None:
    assert label_selector(text).matches(labels) is matches


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=b,", "found '', expected: identifier after ','"),
        ("=b", "found '=', expected: !, identifier, or 'end of string'"),
        ("a in x", "unable to parse requirement: found 'x' expected: '('"),
        ("a in (x", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (x,", "unable to parse requirement: found '', expected: ',', or identifier"),
        ("a in (x y)", "unable to parse requirement: found 'y', expected: ',' or ')'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        (
            "a>b",
            "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value must be "
            "an integer",
        ),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a=b,,c", "found ',', expected: identifier after ','"),
        ("a=@", f'unable to parse requirement: values[0][a]: Invalid value: "@": {BAD_VALUE}'),
        ("/a", 'unable to parse requirement: <nil>: Invalid value: "/a": prefix part must be non-empty'),
        ("a&b", f'unable to parse requirement: <nil>: Invalid value: "a&b": {BAD_KEY}'),
        (
            "A/B/C=x",
            'unable to parse requirement: <nil>: Invalid value: "A/B/C": a valid label key must consist of '
            "alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. "
            "'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
            "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. "
            "'example.com/MyName')",
        ),
        ("a=(b)", "unable to parse requirement: found '(', expected: identifier"),
        ("x in", "unable to parse requirement: found '' expected: '('"),
        ("a===b", "unable to parse requirement: found '=', expected: identifier"),
        ("<a", "found '<', expected: !, identifier, or 'end of string'"),
        ("!!a", "unable to parse requirement: found '!', expected: identifier"),
        ("a in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        ("a in (x,=)", "unable to parse requirement: found '=', expected: ',', or identifier"),
    ],
)
def test_text_that_is_no_label_selector_is_refused_in_the_words_of_the_parser(text: str, message: str) -> None:
    with pytest.raises(BadRequest) as raised:
        label_selector(text)
    assert raised.value.message == message


Term = tuple[str, str, list[str]]
TERMS = st.lists(
    st.one_of(
        st.tuples(KEYS, st.sampled_from(["In", "NotIn"]), st.lists(VALUES, min_size=1, max_size=3)),
        st.tuples(KEYS, st.sampled_from(["Exists", "DoesNotExist"]), st.just([])),
    )
)


def _matches(terms: list[Term], labels: Mapping[str, str]) -> bool:
    for key, operator, values in terms:
        holds = {
            "In": key in labels and labels[key] in values,
            "NotIn": key not in labels or labels[key] not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        if not holds[operator]:
            return False
    return True


def _as_text(terms: list[Term]) -> str:
    shapes = {"In": "{} in ({})", "NotIn": "{} notin ({})", "Exists": "{}", "DoesNotExist": "!{}"}
    return ",".join(shapes[operator].format(key, ",".join(values)) for key, operator, values in terms)


@given(terms=TERMS, required=LABELS, labels=LABELS)
def test_selectors_as_objects_and_as_text_agree_with_a_plain_reading(
    terms: list[Term], required: dict[str, str], labels: dict[str, str]
) -> None:
    expressions = [{"key": key, "operator": operator, "values": values} for key, operator, values in terms]
    wanted = _matches(terms, labels) and required.items() <= labels.items()
    assert from_object({"matchLabels": required, "matchExpressions": expressions}).matches(labels) is wanted
    assert label_selector(_as_text(terms)).matches(labels) is _matches(terms, labels)
    assert label_selector(str(label_selector(_as_text(terms)))).matches(labels) is _matches(terms, labels)


@given(required=LABELS, labels=LABELS)
def test_equalities_hold_for_every_match(required: dict[str, str], labels: dict[str, str]) -> None:
    selector = from_labels(required)
    assert selector.equalities() == required
    assert selector.matches(labels) is (required.items() <= labels.items())


def test_no_selector_matches_nothing_and_an_empty_one_everything() -> None:
    assert from_object(None) is NOTHING
    assert not NOTHING.matches({"a": "b"})
    assert not NOTHING.matches_everything
    assert from_object({}) is EVERYTHING
    assert EVERYTHING.matches({})
    assert EVERYTHING.matches_everything


def test_an_operator_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match='"Like" is not a valid label selector operator'):
        from_object({"matchExpressions": [{"key": "a", "operator": "Like"}]})


def test_no_value_of_an_object_becomes_code() -> None:
    tricky = "'] or True or ['\\\"\n"
    selector = from_object({"matchLabels": {tricky: tricky}})
    assert selector.matches({tricky: tricky})
    assert not selector.matches({"a": "b"})


def test_the_same_text_is_compiled_once() -> None:
    assert label_selector("a=b,c!=d") is label_selector("a=b,c!=d")


@pytest.mark.parametrize(
    ("selector", "errs"),
    [
        (None, []),
        ({"matchLabels": {"a": "b"}}, []),
        ({"matchLabels": {"a": "@"}}, [f's.matchLabels: Invalid value: "@": {BAD_VALUE}']),
        (
            {"matchExpressions": [{"key": "a", "operator": "In"}]},
            ["s.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"],
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]},
            [
                "s.matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or "
                "'DoesNotExist'"
            ],
        ),
        (
            {"matchExpressions": [{"key": "&", "operator": "Like", "values": ["@"]}]},
            [
                's.matchExpressions[0].operator: Invalid value: "Like": not a valid selector operator',
                f's.matchExpressions[0].key: Invalid value: "&": {BAD_KEY}',
                f's.matchExpressions[0].values[0]: Invalid value: "@": {BAD_VALUE}',
            ],
        ),
    ],
)
def test_errors_of_a_selector_object_are_reported(selector: dict[str, Any] | None, errs: list[str]) -> None:
    assert [str(cause) for cause in validate_label_selector(selector, "s")] == errs


@pytest.mark.parametrize(
    ("text", "requirements"),
    [
        ("", []),
        ("metadata.name=x,spec.nodeName!=y", [("metadata.name", "=", "x"), ("spec.nodeName", "!=", "y")]),
        ("a==b", [("a", "=", "b")]),
        (r"a=b\,c\=d\\", [("a", "=", "b,c=d\\")]),
        ("a=", [("a", "=", "")]),
        ("a=b,,=", [("a", "=", "b")]),
    ],
)
def test_a_field_selector_is_read_into_its_requirements(text: str, requirements: list[tuple[str, str, str]]) -> None:
    assert list(field_selector(text).requirements) == requirements


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
        ("metadata.name=a\\", "invalid field selector: invalid escape sequence: \\"),
        ("metadata.name=a\\x", "invalid field selector: invalid escape sequence: \\x"),
        ("metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
    ],
)
def test_text_that_is_no_field_selector_is_refused_in_the_words_of_the_parser(text: str, message: str) -> None:
    with pytest.raises(BadRequest) as raised:
        field_selector(text)
    assert raised.value.message == message


@given(fields=st.dictionaries(st.sampled_from(["a", "b.c"]), st.text(alphabet="x,=\\", max_size=4)))
def test_a_field_selector_survives_being_written_and_read_again(fields: dict[str, str]) -> None:
    escaped = {field: re.sub(r"([,=\\])", r"\\\1", value) for field, value in fields.items()}
    text = ",".join(f"{field}={value}" for field, value in escaped.items())
    selector = field_selector(text)
    assert {field: value for field, _, value in selector.requirements} == fields
    assert field_selector(str(selector)) == selector
    assert selector.matches(lambda field: fields.get(field, ""))
    assert all(selector.exact(field) == value for field, value in fields.items())


def test_a_field_selector_matches_values_that_are_reported() -> None:
    selector = field_selector("a=x,b!=y")
    assert selector.matches({"a": "x", "b": "z"}.__getitem__)
    assert not selector.matches({"a": "x", "b": "y"}.__getitem__)


@given(
    sign=st.sampled_from("<>"),
    bound=st.integers(0, 3),
    value=st.one_of(st.none(), st.integers(-4, 4).map(str), st.sampled_from(["", "x", "1.5", "0x1", str(2**63), "٣"])),
)
def test_numbers_are_compared_as_numbers_and_nothing_else_is(sign: str, bound: int, value: str | None) -> None:
    labels = {} if value is None else {"n": value}
    number = int(value) if value is not None and value.lstrip("-").isascii() and value.lstrip("-").isdigit() else None
    if number is not None and number >= 2**63:
        number = None  # More than Go's int64 holds.
    expected = number is not None and (number > bound if sign == ">" else number < bound)
    assert label_selector(f"n{sign}{bound}").matches(labels) is expected


_TERM = st.builds(
    lambda key, rest: f"!{key}" if rest == "!" else f"{key}{rest}",
    KEYS.filter(lambda key: key not in ("in", "notin")),
    st.sampled_from(["", "!", "=x", "!=x", "=1", "!=1", " in (x,y,1)", " notin (x,7)", ">0", "<5", ">6"]),
)


@given(st.lists(_TERM, min_size=1, max_size=4), LABELS)
def test_a_selector_of_many_terms_means_the_same(terms: list[str], labels: Mapping[str, str]) -> None:
    few, many = label_selector(",".join(terms)), label_selector(",".join(terms * 100))
    assert few.matches(labels) is many.matches(labels)


@pytest.mark.parametrize("operator", ["in", "notin"])
@pytest.mark.parametrize("count", [10, 10_000])
def test_a_selector_of_many_values_means_the_same(operator: str, count: int) -> None:
    selector = label_selector(f"a {operator} ({','.join(f'v{number}' for number in range(count))}),b")
    assert selector.matches({"a": "v3", "b": ""}) is (operator == "in")
    assert selector.matches({"a": "other", "b": ""}) is (operator == "notin")
    assert selector.matches({"b": ""}) is (operator == "notin")
    assert not selector.matches({"a": "v3" if operator == "in" else "other"})


@pytest.mark.parametrize("term", ["a{}=b", "a{}!=b", "a{}", "!a{}", "a{}>1", "a{} in (x,y)", "a notin (x{})"])
def test_time_is_linear_in_the_terms(term: str) -> None:
    labels = {f"k{number}": "v" for number in range(10)}

    def select(text: str) -> None:
        selector = label_selector(text)
        for _ in range(1_000):
            selector.matches(labels)

    assert is_linear(select, lambda count: ",".join(map(term.format, range(count))), 6_000)


def test_a_selector_of_many_terms_costs_as_much_for_an_object_as_one_of_few() -> None:
    labels = {"app": "web"}

    def match_often(count: int) -> float:
        selector = label_selector(",".join(f"a{number}!=b" for number in range(count)))
        return cpu_seconds(lambda labels: [selector.matches(labels) for _ in range(5_000)], labels)

    assert match_often(20_000) < 20 * match_often(100) + 0.1


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["=", "!="]), st.sampled_from("xy")), max_size=4),
    st.dictionaries(st.sampled_from("ab"), st.sampled_from("xyz")),
)
def test_a_field_selector_matches_if_each_of_its_terms_does(
    terms: list[tuple[str, str, str]], fields: dict[str, str]
) -> None:
    selector = field_selector(",".join(map("".join, terms)))
    each = all((fields.get(name, "") == value) == (operator == "=") for name, operator, value in terms)
    assert selector.matches(lambda name: fields.get(name, "")) is each
