"""Objects held against the rules of their schema."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest

from pinnace.schema.cel import run as cel_run
from pinnace.schema.cel.errors import ExceedsInlineBudget
from pinnace.schema.cel.rules import rules as cel_rules
from pinnace.schema.cel.rules.rules import BUDGET, OUT_OF_BUDGET, CelRules, rules_of
from pinnace.schema.shape import Schema


def rule(text: str, **words: Any) -> dict[str, Any]:
    return {"rule": text, **words}


ITEM = {
    "type": "object",
    "required": ["k"],
    "properties": {"k": {"type": "string", "maxLength": 10}, "v": {"type": "integer"}},
    "x-kubernetes-validations": [
        rule("self.v >= oldSelf.v", message="v may not shrink"),
        rule("self.v < 100"),
    ],
}
SPEC = {
    "type": "object",
    "x-kubernetes-validations": [
        rule("self.min <= self.max", messageExpression="'min %d over %d'.format([self.min, self.max])"),
        rule("oldSelf.imm == self.imm", message="imm is immutable", fieldPath=".imm"),
        rule("!oldSelf.hasValue() || oldSelf.value().once == self.once", optionalOldSelf=True, message="once"),
        rule("self.l.all(x, x.v > self.missing)"),
        rule("self.d > 0.5 || self.ios > 3", reason="FieldValueDuplicate"),
        rule("self.m['a'] == 1", fieldPath=".m['a']", message="m.a"),
    ],
    "properties": {
        "n": {"type": "integer"},
        "min": {"type": "integer", "x-kubernetes-validations": [rule("self > 0"), rule("self <= oldSelf")]},
        "max": {"type": "integer"},
        "imm": {"type": "string", "maxLength": 5},
        "once": {"type": "string"},
        "missing": {"type": "integer"},
        "d": {"type": "number"},
        "ios": {"x-kubernetes-int-or-string": True},
        "s": {
            "type": "string",
            "maxLength": 20,
            "x-kubernetes-validations": [
                rule("self != 'bad'", messageExpression="'got \"' + self + '\"'"),
                rule("self.size() < 5", messageExpression="'' + ''", message="too long"),
            ],
        },
        "l": {
            "type": "array",
            "maxItems": 10,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": ITEM,
            "x-kubernetes-validations": [rule("self.size() < 3")],
        },
        "m": {
            "type": "object",
            "maxProperties": 5,
            "additionalProperties": {
                "type": "integer",
                "x-kubernetes-validations": [rule("self < 10"), rule("self >= oldSelf")],
            },
        },
        "at": {
            "type": "array",
            "maxItems": 10,
            "items": {"type": "string", "maxLength": 9, "x-kubernetes-validations": [rule("self != 'x'")]},
        },
    },
}
ROOT = {
    "type": "object",
    "x-kubernetes-validations": [
        rule("self.metadata.name.startsWith('a')", message="name must start with a"),
        rule("self.?spec.n.orValue(0) != 13", fieldPath=".spec.n", reason="FieldValueForbidden", message="no 13"),
    ],
    "properties": {"spec": SPEC},
}
GOOD: dict[str, Any] = {
    "min": 1,
    "max": 2,
    "imm": "a",
    "once": "o",
    "missing": 0,
    "d": 1,
    "ios": 4,
    "s": "ok",
    "l": [{"k": "a", "v": 5}, {"k": "b", "v": 6}],
    "m": {"a": 1},
    "at": ["y"],
}


def rules(schema: dict[str, Any], *, is_root: bool = False) -> CelRules:
    result = rules_of(Schema(schema), is_root=is_root)
    assert result is not None
    return result


RULES = rules(ROOT, is_root=True)


def resource(name: str = "a1", **changes: Any) -> dict[str, Any]:
    spec = {**copy.deepcopy(GOOD), **changes}
    return {"kind": "Probe", "metadata": {"name": name}, "spec": {k: v for k, v in spec.items() if v is not ...}}


def errors_of(new: dict[str, Any], old: dict[str, Any] | None = None) -> list[tuple[str, str]]:
    return [(err.field, err.message) for err in RULES.errs(new, old)]


SIGNATURE = "call arguments did not match a supported operator, function or macro signature for rule"


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (resource(), []),
        (resource("b1"), [("<nil>", "Invalid value: name must start with a")]),
        (resource(min=5), [("spec", "Invalid value: min 5 over 2")]),
        (resource(n=13), [("spec.n", "Forbidden: no 13")]),
        (
            resource(missing=...),
            [
                (
                    "spec",
                    'Invalid value: "object": no such key: missing evaluating rule: self.l.all(x, x.v > self.missing)',
                )
            ],
        ),
        (resource(d=0), []),
        (resource(d=0, ios=1), [("spec", "Duplicate value")]),
        (
            resource(d=0, ios="x"),
            [
                (
                    "spec",
                    f"Invalid value: \"object\": 'no such overload': {SIGNATURE}: self.d > 0.5 || self.ios > 3",
                )
            ],
        ),
        (resource(s="bad"), [("spec.s", 'Invalid value: "bad": got "bad"')]),
        (resource(s="toolong"), [("spec.s", 'Invalid value: "toolong": too long')]),
        (resource(m={"a": 2}), [("spec.m[a]", "Invalid value: m.a")]),
        (resource(m={"a": 1, "b": 50}), [("spec.m[b]", "Invalid value: 50: failed rule: self < 10")]),
        (
            resource(at=["x", "y", "x"]),
            [
                ("spec.at[0]", "Invalid value: \"x\": failed rule: self != 'x'"),
                ("spec.at[2]", "Invalid value: \"x\": failed rule: self != 'x'"),
            ],
        ),
        (
            resource(l=[{"k": each, "v": 500} for each in "abc"]),
            [
                ("spec.l", "Invalid value: failed rule: self.size() < 3"),
                ("spec.l[0]", "Invalid value: failed rule: self.v < 100"),
                ("spec.l[1]", "Invalid value: failed rule: self.v < 100"),
                ("spec.l[2]", "Invalid value: failed rule: self.v < 100"),
            ],
        ),
    ],
    ids=[
        *("good", "root", "message expression", "field path and reason", "missing key", "an error that does not count"),
        *("duplicate", "overload", "message of a scalar", "empty message", "path into a map", "value of a map"),
        *("items", "list and items"),
    ],
)
def test_the_rules_of_a_new_object_are_evaluated(new: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert errors_of(new) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"imm": "b"}, [("spec.imm", "Invalid value: imm is immutable")]),
        ({"once": "p"}, [("spec", "Invalid value: once")]),
        ({"min": 2, "max": 3}, [("spec.min", "Invalid value: 2: failed rule: self <= oldSelf")]),
        ({"l": [{"k": "b", "v": 1}, {"k": "a", "v": 9}]}, [("spec.l[0]", "Invalid value: v may not shrink")]),
        ({"l": [{"k": "c", "v": 1}]}, []),
        ({"m": {"a": 1, "b": 4}}, [("spec.m[b]", "Invalid value: 4: failed rule: self >= oldSelf")]),
        ({"m": {"a": 1, "c": 3}}, []),
    ],
    ids=["same", "field", "optional", "scalar", "item by key", "new item", "value by key", "new key"],
)
def test_transition_rules_compare_with_what_was_there(changes: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    old = resource(m={"a": 1, "b": 5})
    new = resource(**{"m": {"a": 1, "b": 5}, **changes})
    assert errors_of(new, old) == expected


def test_an_unchanged_invalid_value_causes_only_a_warning() -> None:
    old = resource(at=["x"], s="bad")
    warnings: list[str] = []
    assert RULES.errs(resource(at=["x"], s="bad", once="o", n=1), old, warnings=warnings) == []
    assert warnings == [
        'spec.s: Invalid value: "bad": got "bad"',
        "spec.at[0]: Invalid value: \"x\": failed rule: self != 'x'",
    ]
    assert errors_of(resource(at=["x", "y"], s="bad"), old) == [
        ("spec.at[0]", "Invalid value: \"x\": failed rule: self != 'x'")
    ]


def test_null_values_are_not_looked_at() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "nullable": True}}}
    schema["properties"]["a"]["x-kubernetes-validations"] = [rule("self == 'x'")]  # type: ignore[index]
    assert rules(schema).errs({"a": None}) == []
    assert len(rules(schema).errs({"a": "y"})) == 1


def test_a_schema_without_rules_has_none() -> None:
    assert rules_of(Schema({"type": "object", "properties": {"a": {"type": "string"}}})) is None


NUMBERS = {"type": "array", "items": {"type": "integer"}}


def test_one_call_may_not_cost_more_than_its_limit() -> None:
    checked = rules({**NUMBERS, "x-kubernetes-validations": [rule("self.all(x, self.all(y, x + y < 9000))")]})
    assert checked.errs(list(range(50))) == []
    (err,) = checked.errs(list(range(1000)))
    assert err.message == (
        "Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further validation rules will "
        "be run due to call cost exceeds limit for rule: self.all(x, self.all(y, x + y < 9000))"
    )


def test_an_object_may_not_cost_more_than_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    assert BUDGET == 10_000_000
    budget = BUDGET // 10  # Spending the whole of it would take ten seconds.
    monkeypatch.setattr(cel_rules, "BUDGET", budget)
    many = [rule("self.all(x, x >= 0)", message=f"m{number}") for number in range(300)]
    checked = rules({**NUMBERS, "x-kubernetes-validations": many})
    values = list(range(budget // 5 // 200))
    (err,) = checked.errs(values)
    assert err.message == f'Invalid value: "array": {OUT_OF_BUDGET}'
    assert checked.errs(values[: len(values) // 20]) == []


@pytest.mark.parametrize(
    ("seconds", "inline_seconds", "is_done"),
    [(0, 0.002, True), (1, 0.002, False), (1, None, True)],
    ids=["quick", "slow", "without a wait"],
)
def test_many_costly_rules_are_stopped_on_the_event_loop_when_their_time_is_over(
    seconds: int, inline_seconds: float | None, is_done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = itertools.count(1)
    monkeypatch.setattr(cel_run, "thread_time", lambda: next(moments) * seconds)
    many = [rule(f"self.all(x, x >= {-number})") for number in range(100)]
    checked = rules({**NUMBERS, "x-kubernetes-validations": many})
    values = list(range(1000))
    if is_done:
        assert checked.errs(values, inline_seconds=inline_seconds) == []
    else:
        with pytest.raises(ExceedsInlineBudget):
            checked.errs(values, inline_seconds=inline_seconds)
        assert next(moments) == 3  # The first look at the clock begins the time, and the second ends it.


def test_rules_that_cost_little_need_no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cel_run, "thread_time", lambda: pytest.fail("looked at the clock"))
    checked = rules({**NUMBERS, "x-kubernetes-validations": [rule("self.all(x, x >= 0)")] * 20})
    assert checked.errs([1, 2, 3], inline_seconds=0.002) == []


def test_embedded_resources_have_names_and_kinds() -> None:
    embedded = {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
        "x-kubernetes-validations": [rule("self.kind == 'Pod' && self.metadata.name != ''")],
    }
    checked = rules({"type": "object", "properties": {"template": embedded}})
    assert checked.errs({"template": {"kind": "Pod", "metadata": {"name": "a"}, "spec": {}}}) == []
    assert len(checked.errs({"template": {"kind": "Job", "metadata": {"name": "a"}}})) == 1
