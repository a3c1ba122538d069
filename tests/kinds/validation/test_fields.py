"""The checks that many kinds share return the errors of Kubernetes."""

from __future__ import annotations

from typing import cast

from pinnace.kinds.validation.fields import unified_diff, validate_condition, validate_immutable
from pinnace.model.typed_objects import Condition


def test_a_changed_field_is_shown_as_it_is_printed_in_go() -> None:
    (err,) = validate_immutable({"name": "b"}, {"name": "a"}, "spec", view_of=lambda value: {"Name": value["name"]})
    assert str(err) == 'spec: Invalid value: {"Name":"b"}: field is immutable'


def test_a_diff_is_unified_without_file_names() -> None:
    assert (
        unified_diff({"A": 1, "B": 2}, {"A": 1, "B": 3}) == '@@ -1,4 +1,4 @@\n {\n  "A": 1,\n- "B": 2\n+ "B": 3\n }\n'
    )


def test_a_condition_without_anything_has_every_error() -> None:
    assert [err.field for err in validate_condition([cast("Condition", {})], "status.conditions")] == [
        "status.conditions[0].type",
        "status.conditions[0].status",
        "status.conditions[0].lastTransitionTime",
        "status.conditions[0].reason",
    ]
