"""Random patches of lists, against models that are too plain to be wrong."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pinnace.kinds.definitions import Definitions
from pinnace.model.objects import Kind
from pinnace.model.patches.json_and_merge import PatchRefused, json_patch
from pinnace.model.patches.strategic import strategic_merge_patch

POD = Definitions.load("1.36").of_kind(Kind("", "v1", "Pod"))
DEPLOYMENT = Definitions.load("1.36").of_kind(Kind("apps", "v1", "Deployment"))

Operation = tuple[str, int, int, int]
"""Of a list: what to do, at which of its places, from which other, with which value."""

OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "append", "remove", "replace", "move", "copy", "test"]),
        st.integers(0, 4),
        st.integers(0, 4),
        st.integers(0, 3),
    ),
    max_size=6,
)


def wire(operation: Operation) -> dict[str, Any]:
    verb, at, other, value = operation
    match verb:
        case "append":
            return {"op": "add", "path": "/items/-", "value": value}
        case "remove":
            return {"op": "remove", "path": f"/items/{at}"}
        case "move" | "copy":
            return {"op": verb, "from": f"/items/{other}", "path": f"/items/{at}"}
    return {"op": verb, "path": f"/items/{at}", "value": value}


def plainly(items: list[int], operation: Operation) -> bool:
    """Do it to a Python list; False where it cannot be done."""
    verb, at, other, value = operation
    if verb in ("move", "copy"):
        if other >= len(items):
            return False
        value = items.pop(other) if verb == "move" else items[other]
        verb = "add"
    if verb == "append":
        items.append(value)
    elif verb == "add":
        if at > len(items):
            return False
        items.insert(at, value)
    elif at >= len(items):
        return False
    elif verb == "remove":
        del items[at]
    elif verb == "replace":
        items[at] = value
    else:
        return items[at] == value
    return True


@given(items=st.lists(st.integers(0, 3), max_size=4), operations=OPERATIONS)
def test_operations_on_a_list_do_what_python_does(items: list[int], operations: list[Operation]) -> None:
    document, expected = {"items": items, "rest": {"a": 1}}, list(items)
    before = copy.deepcopy(document)
    is_done = all(plainly(expected, operation) for operation in operations)
    try:
        result = json_patch(document, [wire(operation) for operation in operations])
    except PatchRefused:
        assert not is_done
    else:
        assert is_done
        assert result == {"items": expected, "rest": {"a": 1}}
    assert document == before


# Strategic merges: lists that are maps by the names of their items, and lists that are sets.

NAMES = st.sampled_from("abc")
VALUES = st.one_of(st.none(), st.sampled_from("xyz"))
Items = dict[str, dict[str, Any]]


def named(items: Items, leaves: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, **fields, **leaves.get(name, {})} for name, fields in items.items()]


def without_nulls(fields: dict[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in fields.items() if value is not None}


FIELDS = st.fixed_dictionaries({}, optional={"image": VALUES, "workingDir": VALUES})
SETTINGS = st.dictionaries(NAMES, st.fixed_dictionaries({}, optional={"value": VALUES}), max_size=3)
COMMANDS = st.one_of(st.none(), st.lists(st.sampled_from("pq"), max_size=2))


@given(
    live=st.dictionaries(NAMES, FIELDS, max_size=3),
    change=st.dictionaries(NAMES, FIELDS, max_size=3),
    live_settings=SETTINGS,
    change_settings=SETTINGS,
    gone=st.sets(NAMES),
    commands=st.tuples(COMMANDS, COMMANDS),
)
def test_items_are_merged_by_their_names(
    live: Items,
    change: Items,
    live_settings: Items,
    change_settings: Items,
    gone: set[str],
    commands: tuple[list[str] | None, list[str] | None],
) -> None:
    assert POD is not None
    live = {name: without_nulls(fields) for name, fields in live.items()}
    live_settings = {name: without_nulls(fields) for name, fields in live_settings.items()}
    # One container has settings, which are a list by names in a list by names, and a command, which is replaced whole.
    live["main"] = {"env": named(live_settings, {}), **without_nulls({"command": commands[0]})}
    deleted: dict[str, Any] = {name: {"$patch": "delete"} for name in gone}
    sent = {name: {} if name in gone else fields for name, fields in change.items()} | {name: {} for name in gone}
    sent["main"] = {"env": named(change_settings, {}), "command": commands[1]}
    patch = {"spec": {"containers": named(sent, deleted)}}
    document = {"spec": {"containers": named(live, {})}}
    before = copy.deepcopy((document, patch))
    merged = strategic_merge_patch(document, patch, POD)
    assert (document, patch) == before
    # Items that are new keep their nulls, here as on a real server, until they are read as what they are.
    by_name = {item.pop("name"): without_nulls(item) for item in copy.deepcopy(merged["spec"]["containers"])}

    expected = {
        name: without_nulls({**live.get(name, {}), **change.get(name, {})})
        for name in (live.keys() | change.keys()) - gone - {"main"}
    }
    settings = {
        name: without_nulls({**live_settings.get(name, {}), **change_settings.get(name, {})})
        for name in live_settings.keys() | change_settings.keys()
    }
    main = by_name.pop("main")
    assert by_name == expected
    assert {item["name"]: without_nulls({"value": item.get("value")}) for item in main.get("env", [])} == settings
    assert main.get("command") == commands[1]


@given(live=st.sets(NAMES), added=st.lists(NAMES, unique=True), removed=st.sets(NAMES))
def test_finalizers_are_a_set(live: set[str], added: list[str], removed: set[str]) -> None:
    assert POD is not None
    document = {"metadata": {"finalizers": sorted(live)}}
    patch: dict[str, Any] = {"metadata": {"finalizers": added, "$deleteFromPrimitiveList/finalizers": sorted(removed)}}
    result = strategic_merge_patch(document, patch, POD)["metadata"]["finalizers"]
    assert sorted(result) == sorted((live - removed) | set(added))


@given(kept=st.sets(st.sampled_from(["type", "rollingUpdate"])))
def test_only_the_keys_that_are_retained_stay(kept: set[str]) -> None:
    assert DEPLOYMENT is not None
    live = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}
    patch = {"spec": {"strategy": {"$retainKeys": sorted(kept)}}}
    result = strategic_merge_patch({"spec": {"strategy": live}}, patch, DEPLOYMENT)["spec"]["strategy"]
    assert result == {key: value for key, value in live.items() if key in kept}
