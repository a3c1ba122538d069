"""Which patch stores what a handler did to a status."""

from __future__ import annotations

from typing import Any

import pytest

from pinnace.sdk.operator.statuses import status_changes

Object = dict[str, Any]


@pytest.mark.parametrize(
    ("stored", "before", "after", "said", "patch"),
    [
        ({"a": 1}, {"a": 1}, {"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {"a": 1}, {"a": 2}, {"a": 2}, {"a": 2}),
        ({}, {"a": 0}, {"a": 0}, {}, {}),
        ({}, {"a": 0}, {"a": 0}, {"a": 0}, {"a": 0}),
        ({}, {"a": []}, {"a": [1]}, {}, {"a": [1]}),
        ({"a": 1}, {"a": 1}, {}, {}, {"a": None}),
        ({"other": 1, "a": 1}, {"a": 1}, {"a": 2}, {"a": 2}, {"a": 2}),
        ({"a": {"b": 1, "c": 1}}, {"a": {"b": 1}}, {"a": {"b": 2}}, {"a": {"b": 2}}, {"a": {"b": 2}}),
    ],
    ids=[
        *("nothing-changed", "a-value-changed", "a-default-that-nobody-set", "a-default-that-was-set"),
        *("a-list-changed-in-place", "a-field-removed", "unknown-fields-stay", "only-the-inner-change"),
    ],
)
def test_only_what_the_handler_did_is_stored(
    stored: Object, before: Object, after: Object, said: Object, patch: Object
) -> None:
    assert status_changes(stored, before, after, said) == patch
