"""Strategic merge patches do what a real server does with them; the cases were compared with one."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.schema.merge.samples import POD

from pinnace.schema.merge.strategic import MalformedPatch, PatchError, UnacceptablePatch, strategic_merge
from pinnace.schema.shape import Schema

LIVE: dict[str, Any] = {
    "metadata": {"name": "p", "labels": {"l": "1", "m": "2"}, "finalizers": ["f/1", "f/2", "f/3"]},
    "spec": {
        "containers": [
            {"name": "a", "image": "i", "command": ["x", "y"], "env": [{"name": "E", "value": "1"}]},
            {"name": "b", "image": "i"},
            {"name": "c", "image": "i"},
        ],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "strategy": {"type": "Rolling", "rollingUpdate": {"max": "1"}},
        "nodeSelector": {"x": "y"},
    },
}


def patched(patch: dict[str, Any]) -> dict[str, Any]:
    before = copy.deepcopy((LIVE, patch))
    result = strategic_merge(LIVE, patch, POD)
    assert (LIVE, patch) == before
    return result


def containers(patch: dict[str, Any]) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = patched({"spec": patch})["spec"]["containers"]
    return results


def names(patch: dict[str, Any]) -> str:
    return "".join(item["name"] for item in containers(patch))


ORDER = "$setElementOrder/containers"
DELETE = {"$patch": "delete"}
NAMES = [
    ("an item is merged where it stands", {"containers": [{"name": "b", "image": "z"}]}, "abc"),
    ("a new item goes to the front", {"containers": [{"name": "n"}]}, "nabc"),
    ("a new item follows the one before it in the patch", {"containers": [{"name": "b"}, {"name": "n"}]}, "abnc"),
    ("the patch's order wins", {"containers": [{"name": "c"}, {"name": "a"}]}, "bca"),
    ("an item is deleted", {"containers": [{"name": "b", **DELETE}]}, "ac"),
    ("deleting what is not there is nothing", {"containers": [{"name": "z", **DELETE}]}, "abc"),
    ("all are replaced", {"containers": [{"$patch": "replace"}, {"name": "n"}]}, "n"),
    ("an order is set", {ORDER: [{"name": "c"}, {"name": "a"}, {"name": "b"}]}, "cab"),
    (
        "an order is set for some, the others stay before what they stood before",
        {ORDER: [{"name": "c"}, {"name": "n"}], "containers": [{"name": "n"}]},
        "abcn",
    ),
    (
        "a new item takes the place of a deleted one, at the end",
        {ORDER: [{"name": "n"}, {"name": "a"}], "containers": [{"name": "b", **DELETE}, {"name": "n"}]},
        "cna",
    ),
]


@pytest.mark.parametrize(("patch", "expected"), [case[1:] for case in NAMES], ids=[case[0] for case in NAMES])
def test_a_list_with_a_merge_key_is_merged_by_it(patch: dict[str, Any], expected: str) -> None:
    assert names(patch) == expected


def test_items_are_merged_by_their_key_all_the_way_down() -> None:
    result = containers(
        {"containers": [{"name": "a", "command": ["z"], "env": [{"name": "E", **DELETE}, {"name": "F"}]}]}
    )
    assert result[0] == {"name": "a", "image": "i", "command": ["z"], "env": [{"name": "F"}]}


METADATA = [
    ("null deletes", {"labels": {"l": None, "gone": None, "n": "3"}}, "labels", {"m": "2", "n": "3"}),
    ("a map is replaced", {"labels": {"$patch": "replace", "n": "3"}}, "labels", {"n": "3"}),
    ("a map is emptied", {"labels": {"$patch": "delete"}}, "labels", {}),
    ("scalars are added once", {"finalizers": ["f/0", "f/2"]}, "finalizers", ["f/0", "f/1", "f/2", "f/3"]),
    ("scalars are deleted", {"$deleteFromPrimitiveList/finalizers": ["f/2"]}, "finalizers", ["f/1", "f/3"]),
    ("scalars are ordered", {"$setElementOrder/finalizers": ["f/3", "f/1"]}, "finalizers", ["f/2", "f/3", "f/1"]),
    (
        "all at once",
        {
            "$deleteFromPrimitiveList/finalizers": ["f/2"],
            "finalizers": ["f/9"],
            "$setElementOrder/finalizers": ["f/9", "f/3", "f/1"],
        },
        "finalizers",
        ["f/9", "f/3", "f/1"],
    ),
]


@pytest.mark.parametrize(("patch", "key", "expected"), [case[1:] for case in METADATA], ids=[c[0] for c in METADATA])
def test_directives_work_in_metadata(patch: dict[str, Any], key: str, expected: Any) -> None:
    assert patched({"metadata": patch})["metadata"][key] == expected


def test_where_nothing_was_nulls_and_directives_are_left_out() -> None:
    patch = {"spec": {"securityContext": {"runAsUser": None, "deep": {"$patch": "delete"}, "kept": [{"a": None}]}}}
    assert patched(patch)["spec"]["securityContext"] == {"kept": [{}]}


def test_retained_keys_are_all_that_stay() -> None:
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    assert patched(patch)["spec"]["strategy"] == {"type": "Recreate"}
    volume = {"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}
    assert patched({"spec": {"volumes": [volume]}})["spec"]["volumes"] == [{"name": "v", "hostPath": {"path": "/"}}]


REFUSED: list[tuple[dict[str, Any], type[PatchError], str]] = [
    (
        {"spec": {"containers": [{"image": "z"}]}},
        PatchError,
        "map: map[image:z] does not contain declared merge key: name",
    ),
    (
        {"spec": {"containers": [{"name": "a", "$patch": "foo"}]}},
        PatchError,
        "unknown patch type: foo in map: map[$patch:foo name:a]",
    ),
    ({"spec": {"$patch": "merge"}}, PatchError, "unknown patch type: merge in map: map[$patch:merge]"),
    (
        {"spec": {"containers": [{"name": "a", "$patch": "merge"}]}},
        PatchError,
        "merging lists cannot yet be specified in the patch",
    ),
    (
        {"spec": {"containers": [{"name": "n"}], ORDER: [{"name": "a"}]}},
        PatchError,
        "The order in patch list:\n[map[name:n]]\n doesn't match $setElementOrder list:\n[map[name:a]]\n",
    ),
    (
        {"metadata": {"$setElementOrder/finalizers": "a"}},
        PatchError,
        "expected a []interface {}, but received a string",
    ),
    (
        {"metadata": {"$setElementOrder/foo": []}},
        PatchError,
        'unable to find api field in struct ObjectMeta for the json field "foo"',
    ),
    (
        {"metadata": {"finalizers": ["a", 1]}},
        PatchError,
        "list element types are not identical: [[f/1 f/2 f/3] [a 1]]",
    ),
    ({"spec": {"strategy": {"$retainKeys": "type"}}}, MalformedPatch, "invalid patch format of retainKeys"),
    ({"spec": {"strategy": {"$retainKeys": [], "type": "x"}}}, MalformedPatch, "invalid patch format of retainKeys"),
    ({"metadata": {"$deleteFromPrimitiveListX": []}}, MalformedPatch, "invalid patch format of primitive list"),
    ({"metadata": {"$setElementOrderX": []}}, MalformedPatch, "invalid patch format of setElementOrder list"),
]


@pytest.mark.parametrize(("patch", "err", "message"), REFUSED)
def test_a_patch_that_does_not_apply_is_refused(patch: dict[str, Any], err: type[PatchError], message: str) -> None:
    with pytest.raises(err) as caught:
        patched(patch)
    assert str(caught.value) == message


def test_lists_of_lists_are_not_merged() -> None:
    schema = Schema({"properties": {"l": {"type": "array", "x-kubernetes-patch-strategy": "merge"}}})
    with pytest.raises(UnacceptablePatch, match="lists of lists are not supported"):
        strategic_merge({"l": [[1]]}, {"l": [[2]]}, schema)


def test_without_patch_information_lists_are_replaced() -> None:
    schema = Schema({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string"}}}})
    assert strategic_merge({"l": ["a"]}, {"l": ["b"]}, schema) == {"l": ["b"]}


item_names = st.sampled_from("abcxyz")


@given(st.lists(item_names, unique=True), st.lists(item_names, unique=True), st.sets(item_names))
def test_merged_lists_hold_what_both_hold_but_for_what_is_deleted(live: str, patch: str, deleted: set[str]) -> None:
    """Against plain sets, and in the order of the patch."""
    original = {"spec": {"containers": [{"name": name} for name in live]}}
    items = [{"name": name, **DELETE} if name in deleted else {"name": name, "image": "p"} for name in patch]
    merged = strategic_merge(original, {"spec": {"containers": items}}, POD)["spec"]["containers"]
    result = [item["name"] for item in merged]
    gone = deleted & set(patch)
    assert len(result) == len(set(result))
    assert set(result) == (set(live) | set(patch)) - gone
    assert [name for name in result if name in patch] == [name for name in patch if name not in gone]
    assert [name for name in result if name not in patch] == [name for name in live if name not in patch]
