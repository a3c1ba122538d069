"""Rules as a CustomResourceDefinition states them: which are refused, and with which words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.schema.cel.schemas import RULES_SCHEMA

from pinnace.schema.cel.rules.checks import validate_rule
from pinnace.schema.shape import Schema

CASES = [json.loads(line) for line in Path(__file__).with_name("refused_rules.jsonl").read_text().splitlines()]
PATH = "spec.versions[0].schema.openAPIV3Schema"
HUGE = "Forbidden: estimated rule cost exceeds budget by factor of more than 100x"


def errors_of(spec: dict[str, Any]) -> list[tuple[str, str]]:
    errs = validate_rule(Schema({"type": "object", "properties": {"spec": spec}}), PATH)
    return [(err.field.removeprefix(f"{PATH}.properties[spec]"), err.message) for err in errs]


def ruled(schema: dict[str, Any], rule: str, **words: Any) -> dict[str, Any]:
    return {**schema, "x-kubernetes-validations": [{"rule": rule, **words}]}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["rule"])
def test_a_rule_is_accepted_or_refused_as_kubernetes_does(case: dict[str, Any]) -> None:
    errs = errors_of(ruled(RULES_SCHEMA, case["rule"]))
    view = [message.partition("}: ")[2] if message.startswith("Invalid value: {") else message for _, message in errs]
    assert view == case["errors"]


def test_an_error_shows_the_whole_rule() -> None:
    (errs,) = errors_of(ruled(RULES_SCHEMA, "self.foo < 1", message="m"))
    assert errs[0] == ".x-kubernetes-validations[0].rule"
    assert errs[1] == (
        'Invalid value: {"Rule":"self.foo \\u003c 1","Message":"m","MessageExpression":"","Reason":null,"FieldPath":"",'
        "\"OptionalOldSelf\":null}: compilation failed: ERROR: <input>:1:5: undefined field 'foo'\n"
        " | self.foo < 1\n | ....^"
    )


ITEM: dict[str, Any] = {
    "type": "object",
    "required": ["a"],
    "properties": {"a": {"type": "string"}, "n": {"type": "integer"}},
}
KEYED = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]}


@pytest.mark.parametrize(
    ("spec", "err"),
    [
        ({"type": "array", "items": ruled(ITEM, "self.n > 0")}, ""),
        ({"type": "array", "items": ruled(ITEM, "self.a.matches('^a+$')")}, HUGE),
        ({"type": "array", "maxItems": 10, "items": ruled(ITEM, "self.a.matches('^a+$')")}, ""),
        ({"type": "object", "additionalProperties": ruled(ITEM, "self.a.contains('abc')")}, HUGE),
        ({"type": "array", "items": ruled({"type": "string"}, "self != 'abc'")}, ""),
    ],
    ids=["cheap", "pattern per item", "few items", "search per value", "short comparison"],
)
def test_rules_of_items_cost_as_often_as_there_can_be_items(spec: dict[str, Any], err: str) -> None:
    errs = errors_of(spec)
    assert (errs[0][1].partition(" (try")[0] if errs else "") == err


def test_old_values_can_be_compared_only_where_items_have_keys() -> None:
    rule = "self.n == oldSelf.n"
    assert errors_of({"type": "array", **KEYED, "items": ruled(ITEM, rule)}) == []
    (errs,) = errors_of({"type": "array", "items": ruled(ITEM, rule)})
    assert errs[1].endswith(
        f"oldSelf cannot be used on the uncorrelatable portion of the schema within {PATH}.properties[spec]"
    )


@pytest.mark.parametrize(
    ("words", "err"),
    [
        ({"messageExpression": "self.n"}, "messageExpression must evaluate to a string"),
        ({"messageExpression": "'x' + self.n"}, "found no matching overload for '_+_' applied to '(string, int)'"),
        ({"optionalOldSelf": True}, "may not be set if oldSelf is not used in rule"),
    ],
    ids=["type of message", "fault in message", "optional old that is not used"],
)
def test_message_and_field_path_of_a_rule_are_checked_too(words: dict[str, Any], err: str) -> None:
    (errs,) = errors_of(ruled(ITEM, "self.n > 0", **words))
    assert err in errs[1]


def test_an_optional_old_value_has_another_type() -> None:
    assert errors_of(ruled(ITEM, "!oldSelf.hasValue() || oldSelf.value().n < self.n", optionalOldSelf=True)) == []
    errs = errors_of(ruled(ITEM, "oldSelf.n == self.n", optionalOldSelf=True))[0]
    assert "found no matching overload for '_==_' applied to '(optional_type(int), int)'" in errs[1]


def test_a_whole_schema_may_not_cost_too_much_either() -> None:
    expensive = ruled({"type": "string", "maxLength": 100_000}, "self.matches('^[a-z]{3}$')")
    spec = {"type": "object", "properties": {f"f{number}": expensive for number in range(2000)}}
    errs = errors_of(spec)
    assert errs[-1][1].startswith(
        "Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget"
    )


def test_values_cel_cannot_see_have_no_rules() -> None:
    (errs,) = errors_of(ruled({"x-kubernetes-preserve-unknown-fields": True}, "self.x == 1"))
    assert "unable to convert structural schema to CEL declarations" in errs[1]
