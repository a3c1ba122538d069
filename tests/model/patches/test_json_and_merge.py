"""Patches are applied as the API server applies them, and change nothing but their result."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinnace.model.errors import ApiError, BadRequest, TooLarge
from pinnace.model.patches.json_and_merge import PatchRefused, json_patch, merge_patch, unknown_patch_fields

KEYS = st.sampled_from(["a", "b", "c/d", "e~f"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["x", "y"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(KEYS, JSON, max_size=4)


@pytest.mark.parametrize(
    ("document", "operation", "patched"),
    [
        ({}, {"op": "add", "path": "/a", "value": 1}, {"a": 1}),
        ({"a": {}}, {"op": "add", "path": "/a/b", "value": None}, {"a": {"b": None}}),
        ({}, {"op": "add", "path": "/a"}, {"a": None}),
        ({"a": [1]}, {"op": "add", "path": "/a/-", "value": 2}, {"a": [1, 2]}),
        ({"a": [1]}, {"op": "add", "path": "/a/0", "value": 2}, {"a": [2, 1]}),
        ({"a": [1]}, {"op": "add", "path": "/a/1", "value": 2}, {"a": [1, 2]}),
        ({"a": [1]}, {"op": "add", "path": "/a/-1", "value": 2}, {"a": [1, 2]}),
        ({"a": [1, 2]}, {"op": "remove", "path": "/a/-1"}, {"a": [1]}),
        ({"x/y": 1}, {"op": "remove", "path": "/x~1y"}, {}),
        ({"x~1": 1}, {"op": "remove", "path": "/x~01"}, {}),
        ({"a": 1}, {"op": "replace", "path": "/b", "value": 2}, {"a": 1, "b": 2}),
        ({"a": [1, 2]}, {"op": "replace", "path": "/a/1", "value": 3}, {"a": [1, 3]}),
        ({"a": 1}, {"op": "replace", "path": "", "value": {"b": 2}}, {"b": 2}),
        ({"a": {"b": 1}}, {"op": "move", "from": "/a/b", "path": "/c"}, {"a": {}, "c": 1}),
        ({"a": [1]}, {"op": "copy", "from": "/a", "path": "/b"}, {"a": [1], "b": [1]}),
        ({}, {"op": "copy", "from": "/none", "path": "/b"}, {"b": None}),
        ({"a": [1, {"b": "c"}]}, {"op": "test", "path": "/a", "value": [1, {"b": "c"}]}, {"a": [1, {"b": "c"}]}),
        ({}, {"op": "test", "path": "/a", "value": None}, {}),
        ({"a": 1}, {"op": "test", "path": "", "value": {"a": 1}}, {"a": 1}),
    ],
)
def test_an_operation_does_what_the_server_does(document: Any, operation: Any, patched: Any) -> None:
    assert json_patch(document, [operation]) == patched


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": "c"},
        {"op": "test", "path": "/n", "value": True},
        {"op": "test", "path": "/none/b", "value": None},
        {"op": "nope", "path": "/a", "value": "c"},
        {"path": "/a", "value": "c"},
        {"op": "add", "value": "c"},
        {"op": "add", "path": "", "value": {}},
        {"op": "add", "path": "/none/b", "value": 1},
        {"op": "add", "path": "/a/b", "value": 1},
        {"op": "add", "path": "/list/7", "value": 1},
        {"op": "add", "path": "/list/x", "value": 1},
        {"op": "replace", "path": "", "value": 5},
        {"op": "replace", "path": "/list/2", "value": 5},
        {"op": "remove", "path": "/none"},
        {"op": "remove", "path": "/list/-"},
        {"op": "move", "from": "/none", "path": "/b"},
        {"op": "copy", "path": "/b"},
        {"op": "copy", "from": "/list/9", "path": "/b"},
        None,
    ],
)
def test_an_operation_that_does_not_apply_is_refused_without_a_word_about_why(operation: Any) -> None:
    with pytest.raises(PatchRefused) as raised:
        json_patch({"a": "b", "n": 1, "list": [1, 2]}, [operation])
    assert raised.value.status == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "the server rejected our request due to an error in our request",
        "reason": "Invalid",
        "details": {},
        "code": 422,
    }
    assert raised.value.why


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ([{"op": "add", "path": 5}], "number into Go struct field jsonPatchOp.path of type string"),
        ([{"op": 5, "path": "/a"}], "number into Go struct field jsonPatchOp.op of type string"),
        ({"a": 1}, "object into Go value of type []handlers.jsonPatchOp"),
        ("x", "string into Go value of type []handlers.jsonPatchOp"),
        ([5], "number into Go value of type handlers.jsonPatchOp"),
    ],
)
def test_an_invalid_json_patch_is_a_bad_request(patch: Any, message: str) -> None:
    with pytest.raises(BadRequest) as raised:
        json_patch({}, patch)
    assert raised.value.message == f"error decoding patch: json: cannot unmarshal {message}"


def test_no_json_patch_at_all_changes_nothing() -> None:
    assert json_patch({"a": 1}, None) == {"a": 1}


def test_more_than_ten_thousand_operations_are_too_many() -> None:
    with pytest.raises(TooLarge) as raised:
        json_patch({}, [{"op": "test", "path": "/a", "value": None}] * 10_001)
    assert (
        raised.value.message
        == "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    )


def test_copies_cannot_grow_without_bound() -> None:
    document = {"a": {"text": "x" * 1000}}
    doubling = [{"op": "copy", "from": "/a", "path": f"/a/{number}"} for number in range(40)]
    with pytest.raises(PatchRefused, match="rejected"):
        json_patch(document, doubling)


TOO_DEEP = {
    "many paths": [{"op": "add", "path": "/a" * count, "value": {}} for count in range(1, 1200)],
    "copies into themselves": [{"op": "copy", "from": "/a", "path": "/a" * (1 << count)} for count in range(1, 14)],
    "a test of such a value": [
        *({"op": "copy", "from": "/a", "path": "/a" * (1 << count)} for count in range(1, 8)),
        *({"op": "copy", "from": "/a", "path": f"/{name}"} for name in ("b", "c")),
        *({"op": "move", "from": "/a", "path": f"/{name}{'/a' * 128}"} for name in ("b",)),
        {"op": "test", "path": "/b", "value": {}},
    ],
}


@pytest.mark.parametrize("operations", TOO_DEEP.values(), ids=TOO_DEEP)
def test_a_patch_whose_result_nests_too_deep_is_a_bad_request(operations: list[Any]) -> None:
    with pytest.raises((BadRequest, PatchRefused)):
        json_patch({"a": {"a": {}}}, operations)


def test_fields_that_no_operation_has_are_warned_of() -> None:
    operations = [{"op": "add", "path": "/a", "extra": 1}]
    assert unknown_patch_fields(operations) == ['json patch unknown field "[0].extra"']


@st.composite
def operations_for(draw: st.DrawFn) -> tuple[Any, list[dict[str, Any]]]:
    document = draw(OBJECTS)
    pointers = st.lists(st.sampled_from(["a", "b", "c~1d", "e~0f", "0", "1", "-"]), min_size=1, max_size=3).map(
        lambda keys: "/" + "/".join(keys)
    )
    operation = st.fixed_dictionaries(
        {"op": st.sampled_from(["add", "remove", "replace", "move", "copy"]), "path": pointers, "from": pointers},
        optional={"value": JSON},
    )
    return document, draw(st.lists(operation, max_size=6))


def _find(document: Any, pointer: str) -> tuple[Any, str]:
    *parents, last = [key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")[1:]]
    for key in parents:
        document = document.get(key) if isinstance(document, dict) else document[int(key)]
        if not isinstance(document, dict | list):
            raise LookupError
    return document, last


def _plainly(document: Any, operations: list[dict[str, Any]]) -> Any:
    """The same on a deep copy, changed in place: slow and obvious."""
    document = copy.deepcopy(document)
    for operation in operations:
        value = copy.deepcopy(operation.get("value"))
        if operation["op"] in ("move", "copy"):
            container, key = _find(document, operation["from"])
            value = copy.deepcopy(container.get(key) if isinstance(container, dict) else container[int(key)])
            if operation["op"] == "move":
                del container[key if isinstance(container, dict) else int(key)]
        container, key = _find(document, operation["path"])
        if operation["op"] == "remove":
            del container[key if isinstance(container, dict) else int(key)]
        elif isinstance(container, dict):
            container[key] = value
        elif operation["op"] == "replace":
            container[int(key)] = value
        elif key == "-":
            container.append(value)
        elif int(key) <= len(container):
            container.insert(int(key), value)
        else:
            raise LookupError
    return document


@given(case=operations_for())
def test_json_patches_agree_with_plain_changes_to_a_copy(case: tuple[Any, list[dict[str, Any]]]) -> None:
    document, operations = case
    before = copy.deepcopy((document, operations))
    try:
        expected = _plainly(document, operations)
    except (LookupError, ValueError):
        with pytest.raises(ApiError):
            json_patch(document, operations)
    else:
        assert json_patch(document, operations) == expected
    assert (document, operations) == before


def test_a_json_patch_shares_the_values_that_it_does_not_touch() -> None:
    document: dict[str, Any] = {"spec": {"a": [1]}, "metadata": {"labels": {}}}
    patched = json_patch(document, [{"op": "add", "path": "/metadata/labels/x", "value": "y"}])
    assert patched["spec"] is document["spec"]
    assert document["metadata"]["labels"] == {}


@pytest.mark.parametrize(
    ("document", "patch", "merged"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({"a": "x"}, {"a": {"b": None}}, {"a": {}}),
        ({}, {"a": [{"b": None}]}, {"a": [{}]}),
        ({"a": []}, {"a": [{"b": None}]}, {"a": [{}]}),
        ({"a": {}}, {"a": [{"b": None}]}, {"a": [{"b": None}]}),
    ],
)
def test_a_merge_patch_merges(document: Any, patch: Any, merged: Any) -> None:
    assert merge_patch(document, patch) == merged


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        (None, "Invalid JSON Patch"),
        ([1], "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"),
        ("x", "error decoding patch: json: cannot unmarshal string into Go value of type map[string]interface {}"),
        (5, "error decoding patch: json: cannot unmarshal number into Go value of type map[string]interface {}"),
    ],
)
def test_an_invalid_merge_patch_is_a_bad_request(patch: Any, message: str) -> None:
    with pytest.raises(BadRequest) as raised:
        merge_patch({}, patch)
    assert raised.value.message == message


@given(document=OBJECTS, patch=OBJECTS)
def test_merging_changes_neither_side_and_settles(document: Any, patch: Any) -> None:
    before = copy.deepcopy((document, patch))
    merged = merge_patch(document, patch)
    assert (document, patch) == before
    settled = merge_patch(merged, patch)  # Nulls inside of lists survive the first time, where an object was.
    assert merge_patch(settled, patch) == settled
    for key, value in patch.items():
        assert (key in merged) is (value is not None)
    for key in document.keys() - patch.keys():
        assert merged[key] is document[key]
