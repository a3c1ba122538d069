"""The owners of fields after each write. The expected entries are those of a real server."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.schema.merge.samples import CONFIG_MAP, CUSTOM, POD

from pinnace.model.errors import ApplyConflict, BadRequest
from pinnace.model.objects import Object
from pinnace.model.patches.apply import ApplyFailed, apply
from pinnace.model.patches.last_applied import LAST_APPLIED
from pinnace.model.patches.managed_fields import Ownership, after_update, ignoring, only
from pinnace.schema.shape import Schema

T1, T2, T3 = "2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z", "2026-01-01T00:00:03Z"
CONFIG = Ownership(schema=CONFIG_MAP, api_version="v1")
PODS = Ownership(schema=POD, api_version="v1", tracked=ignoring(("status",)))
POD_STATUS = Ownership(schema=POD, api_version="v1", subresource="status", tracked=only("status"))


def config_map(**data: Any) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}, "data": data}


def created(obj: Object, by: str = "a", at: str = T1, ownership: Ownership = CONFIG) -> Object:
    obj = copy.deepcopy(obj)
    after_update(None, obj, ownership, manager=by, now=at)
    obj["metadata"]["uid"] = "u"
    return obj


def updated(live: Object, by: str, at: str = T2, ownership: Ownership = CONFIG, **changes: Any) -> Object:
    new = {**copy.deepcopy(live), **changes}
    before = copy.deepcopy(live)
    after_update(live, new, ownership, manager=by, now=at)
    assert live == before
    return new


def applied(live: Object | None, config: Object, by: str, at: str = T2, force: bool = False, **other: Any) -> Object:
    before = copy.deepcopy((live, config))
    result = apply(live, config, other.pop("ownership", CONFIG), manager=by, now=at, force=force)
    assert (live, config) == before
    return result


def owners(obj: Object) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in obj["metadata"].get("managedFields", [])}


def test_the_creator_owns_all_but_what_says_who_the_object_is() -> None:
    obj = created({**config_map(a="1"), "metadata": {"name": "c", "uid": "u", "labels": {"x": "y"}}})
    assert obj["metadata"]["managedFields"] == [
        {
            "manager": "a",
            "operation": "Update",
            "apiVersion": "v1",
            "time": T1,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {".": {}, "f:a": {}}, "f:metadata": {"f:labels": {".": {}, "f:x": {}}}},
        }
    ]


def test_structs_that_are_always_there_have_no_manager() -> None:
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "a"}], "securityContext": {}},
        "status": {"phase": "x"},
    }
    assert owners(created(pod, ownership=PODS)) == {
        "a": {
            "f:spec": {"f:containers": {'k:{"name":"a"}': {".": {}, "f:name": {}}}, "f:securityContext": {}},
        }
    }


def test_in_a_custom_kind_nothing_is_there_before_it_is_set() -> None:
    custom = {"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "c"}, "spec": {"free": 1}}
    assert owners(created(custom, ownership=Ownership(schema=CUSTOM, api_version="x/v1"))) == {
        "a": {"f:spec": {".": {}, "f:free": {}}}
    }


def test_a_changed_field_changes_its_manager_and_a_removed_one_has_none() -> None:
    live = created(config_map(a="1", b="2", c="3"))
    new = updated(live, "b", data={"a": "1", "b": "other", "d": "4"})
    assert owners(new) == {
        "a": {"f:data": {".": {}, "f:a": {}}},
        "b": {"f:data": {"f:b": {}, "f:d": {}}},
    }
    assert [entry["time"] for entry in new["metadata"]["managedFields"]] == [T1, T2]


def test_only_removing_makes_no_entry_and_an_entry_without_fields_goes() -> None:
    live = copy.deepcopy(created(config_map(a="1")))
    del live["metadata"]["managedFields"][0]["fieldsV1"]["f:data"]["."]
    assert "managedFields" not in updated(live, "b", data={})["metadata"]


@pytest.mark.parametrize(
    "objects",
    [
        ({"a": {"x": 1}, "b": 1}, {"a": 1, "b": {"x": 1}}),
        ({"a": {}, "b": {"a": 1}}, {"a": {"b": 1}, "b": {}}),
        ({"a": [1], "b": None}, {"a": None, "b": [1]}, {"b": [1], "a": None}),
        ({"a": {"b": {"c": 1}}}, {"a": {"b": {}, "c": 1}}, {"a": {"b": {"c": {}}}}),
    ],
    ids=["another place", "emptiness", "lists", "depth"],
)
def test_the_fields_of_a_creator_do_not_depend_on_earlier_objects(objects: tuple[Object, ...]) -> None:
    schema = Schema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    met = Ownership(schema=schema, api_version="v1")
    for spec in (*objects, *objects):
        obj = {"apiVersion": "v1", "kind": "K", "metadata": {"name": "n"}, "spec": spec}
        fresh = created(copy.deepcopy(obj), ownership=Ownership(schema=schema, api_version="v1"))
        assert created(copy.deepcopy(obj), ownership=met) == fresh


def test_the_cache_of_created_objects_is_bounded() -> None:
    ownership = Ownership(schema=CONFIG_MAP, api_version="v1")
    for number in range(300):
        created(config_map(**{f"key{number}": "x"}), ownership=ownership)
    created(config_map(**{f"key{number}": "x" for number in range(5000)}), ownership=ownership)
    assert len(ownership.made) <= 64
    assert len(orjson.dumps(list(ownership.made))) < 100_000


def test_an_update_that_changes_nothing_keeps_the_entries_as_they_are() -> None:
    live = created(config_map(a="1"))
    assert updated(live, "b") == live


def test_a_client_that_sends_no_managers_keeps_those_there_are() -> None:
    live = created(config_map(a="1"))
    new = copy.deepcopy(live)
    del new["metadata"]["managedFields"]
    after_update(live, new, CONFIG, manager="b", now=T2)
    assert new == live


@pytest.mark.parametrize("sent", [[], [{}]])
def test_managers_are_reset_by_sending_none_at_all(sent: list[Any]) -> None:
    live = created(config_map(a="1"))
    new = copy.deepcopy(live)
    new["metadata"]["managedFields"] = sent
    new["data"]["a"] = "2"
    after_update(live, new, CONFIG, manager="b", now=T2)
    assert "managedFields" not in new["metadata"]
    again = updated(new, "b", T3, data={"a": "3"})
    assert "managedFields" not in again["metadata"]


def test_managers_that_a_client_edits_are_taken_over() -> None:
    live = created(config_map(a="1"))
    new = copy.deepcopy(live)
    new["metadata"]["managedFields"][0]["manager"] = "renamed"
    after_update(live, new, CONFIG, manager="b", now=T2)
    assert list(owners(new)) == ["renamed"]


@pytest.mark.parametrize(
    "err", [{"operation": "Other"}, {"apiVersion": ""}, {"fieldsType": "V9"}, {"fieldsV1": {"x": {}}}]
)
def test_managers_that_make_no_sense_are_not(err: dict[str, Any]) -> None:
    live = created(config_map(a="1"))
    new = copy.deepcopy(live)
    new["metadata"]["managedFields"][0].update(err)
    after_update(live, new, CONFIG, manager="b", now=T2)
    assert new == live


def test_through_a_subresource_managers_cannot_be_edited() -> None:
    live = created({"metadata": {"name": "p"}, "spec": {"hostname": "h"}}, ownership=PODS)
    new = copy.deepcopy(live)
    new["metadata"]["managedFields"] = []
    new["status"] = {"phase": "Running"}
    after_update(live, new, POD_STATUS, manager="kubelet", now=T2)
    assert owners(new) == {"a": {"f:spec": {"f:hostname": {}}}, "kubelet": {"f:status": {".": {}, "f:phase": {}}}}
    assert new["metadata"]["managedFields"][1]["subresource"] == "status"


def test_entries_are_sorted_by_operation_time_and_name() -> None:
    live = created(config_map(a="1"), by="z")
    live = updated(live, "b", T3, data={**live["data"], "b": "1"})
    live = updated(live, "c", T2, data={**live["data"], "c": "1"})
    live = applied(live, config_map(d="1"), "y", T3)
    live = applied(live, config_map(e="1"), "x", T3)
    assert list(owners(live)) == ["x", "y", "z", "c", "b"]


def test_beyond_ten_updaters_the_oldest_become_one() -> None:
    live = created(config_map(k0="v"), by="m00")
    for number in range(1, 13):
        data = {**live["data"], f"k{number}": "v"}
        live = updated(live, f"m{number:02}", f"2026-01-01T00:01:{number:02}Z", data=data)
    assert list(owners(live)) == ["ancient-changes", *(f"m{n:02}" for n in range(4, 13))]
    assert owners(live)["ancient-changes"] == {"f:data": {".": {}, **{f"f:k{n}": {} for n in range(4)}}}


def test_entries_of_versions_that_are_gone_are_dropped() -> None:
    live = created(config_map(a="1", b="2"))
    live["metadata"]["managedFields"][0]["apiVersion"] = "v1beta1"
    assert owners(updated(live, "b", data={"a": "x", "b": "2"})) == {"b": {"f:data": {"f:a": {}}}}
    known = Ownership(schema=CONFIG_MAP, api_version="v1", schema_for=lambda version: CONFIG_MAP)
    new = updated(live, "b", ownership=known, data={"a": "x", "b": "2"})
    assert owners(new) == {"a": {"f:data": {".": {}, "f:b": {}}}, "b": {"f:data": {"f:a": {}}}}


def in_other_version(obj: Object, api_version: str) -> Object:
    """v2 calls `entries` what v1 calls `data`."""
    old, new = ("data", "entries") if api_version == "v2" else ("entries", "data")
    return {new if key == old else key: value for key, value in obj.items()}


CONFIG_V2_SCHEMA = Schema(
    {
        **CONFIG_MAP.raw,
        "properties": {"entries" if k == "data" else k: v for k, v in CONFIG_MAP.raw["properties"].items()},
    },
    CONFIG_MAP.resolve,
    "core.v2.ConfigMap",
)
CONFIG_V2 = Ownership(
    schema=CONFIG_V2_SCHEMA,
    api_version="v2",
    schema_for={"v1": CONFIG_MAP}.get,
    convert=in_other_version,
)


def test_entries_of_another_version_are_compared_in_that_version() -> None:
    live = {**in_other_version(created(config_map(a="1", b="2")), "v2"), "apiVersion": "v2"}
    new = updated(live, "b", ownership=CONFIG_V2, entries={"a": "x", "b": "2"})
    assert owners(new) == {"a": {"f:data": {".": {}, "f:b": {}}}, "b": {"f:entries": {"f:a": {}}}}


def test_an_applier_that_goes_over_to_another_version_keeps_its_entry() -> None:
    live = applied(None, config_map(a="1", b="2"), "x", T1)
    live = {**in_other_version(live, "v2"), "apiVersion": "v2"}
    config = {**in_other_version(config_map(a="1"), "v2"), "apiVersion": "v2"}
    obj = applied(live, config, "x", T2, ownership=CONFIG_V2)
    assert (obj["apiVersion"], obj["entries"]) == ("v2", {"a": "1"})
    assert [(e["manager"], e["apiVersion"], e["fieldsV1"]) for e in obj["metadata"]["managedFields"]] == [
        ("x", "v2", {"f:entries": {"f:a": {}}})
    ]


# --- Apply


def test_applying_creates() -> None:
    obj = applied(None, config_map(a="1"), "x", T1)
    assert obj["data"] == {"a": "1"}
    assert obj["metadata"]["managedFields"] == [
        {
            "manager": "x",
            "operation": "Apply",
            "apiVersion": "v1",
            "time": T1,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:a": {}}},
        }
    ]


def test_applying_the_same_again_changes_nothing() -> None:
    live = applied(None, config_map(a="1"), "x", T1)
    assert applied(live, config_map(a="1"), "x", T2) == live


def test_equal_values_are_owned_together() -> None:
    live = created(config_map(a="1"))
    obj = applied(live, config_map(a="1"), "x")
    assert owners(obj) == {"x": {"f:data": {"f:a": {}}}, "a": {"f:data": {".": {}, "f:a": {}}}}
    assert "time" not in obj["metadata"]["managedFields"][0]  # As it is: nothing was changed at any time.


def test_one_conflict_is_reported_in_one_sentence() -> None:
    live = created(config_map(a="1"), by="kubectl-edit")
    with pytest.raises(ApplyConflict) as caught:
        applied(live, config_map(a="2"), "x")
    assert caught.value.message == 'Apply failed with 1 conflict: conflict with "kubectl-edit" using v1: .data.a'
    assert caught.value.status["details"] == {
        "causes": [
            {
                "reason": "FieldManagerConflict",
                "message": 'conflict with "kubectl-edit" using v1',
                "field": ".data.a",
            }
        ]
    }


def test_several_conflicts_are_listed_by_manager() -> None:
    live = applied(created(config_map(a="1", b="2")), config_map(a="1"), "other")
    with pytest.raises(ApplyConflict) as caught:
        applied(live, config_map(a="x", b="y"), "x")
    assert caught.value.message == (
        'Apply failed with 3 conflicts: conflicts with "a" using v1:\n- .data.a\n- .data.b\n'
        'conflicts with "other":\n- .data.a'
    )


def test_a_conflict_names_the_subresource() -> None:
    live = created({"metadata": {"name": "p"}, "spec": {"hostname": "h"}}, ownership=PODS)
    live = updated(live, "kubelet", ownership=POD_STATUS, status={"phase": "Running"})
    config = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "status": {"phase": "Failed"}}
    with pytest.raises(
        ApplyConflict, match=r'conflict with "kubelet" with subresource "status" using v1: \.status\.phase'
    ):
        applied(live, config, "x", ownership=POD_STATUS)


def test_force_takes_what_is_contested() -> None:
    live = created(config_map(a="1", b="2"))
    obj = applied(live, config_map(a="x"), "x", force=True)
    assert obj["data"] == {"a": "x", "b": "2"}
    assert owners(obj) == {"x": {"f:data": {"f:a": {}}}, "a": {"f:data": {".": {}, "f:b": {}}}}


def test_a_field_that_is_no_longer_applied_is_removed_unless_another_manager_owns_it() -> None:
    live = applied(None, config_map(a="1", b="2", c="3"), "x", T1)
    live = applied(live, config_map(b="2"), "y", T2)
    obj = applied(live, config_map(a="1"), "x", T3)
    assert obj["data"] == {"a": "1", "b": "2"}
    assert owners(obj) == {"x": {"f:data": {"f:a": {}}}, "y": {"f:data": {"f:b": {}}}}


def test_items_are_removed_with_all_that_their_only_applier_gave_them() -> None:
    def pod(*names: str) -> Object:
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": n} for n in names]},
        }

    live = applied(None, pod("a", "b"), "x", T1, ownership=PODS)
    for container in live["spec"]["containers"]:
        container["image"] = "defaulted"  # It has no owner.
    obj = applied(live, pod("b"), "x", T2, ownership=PODS)
    assert obj["spec"]["containers"] == [{"name": "b", "image": "defaulted"}]


def test_dropping_everything_drops_the_entry() -> None:
    live = applied(created(config_map(z="1")), config_map(a="1"), "x")
    bare = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}}
    obj = applied(live, bare, "x", T3)
    assert obj["data"] == {"z": "1"}
    assert list(owners(obj)) == ["a"]


def test_the_first_apply_finds_a_manager_for_untracked_fields() -> None:
    live = config_map(a="1")
    with pytest.raises(ApplyConflict, match=r'conflict with "before-first-apply" using v1: \.data\.a'):
        applied(live, config_map(a="2"), "x")
    assert owners(applied(live, config_map(b="2"), "x")) == {
        "x": {"f:data": {"f:b": {}}},
        "before-first-apply": {"f:data": {".": {}, "f:a": {}}},
    }


def test_a_configuration_may_not_name_managers() -> None:
    config = config_map()
    config["metadata"]["managedFields"] = []
    with pytest.raises(BadRequest, match=r"metadata\.managedFields must be nil"):
        applied(None, config, "x")


def test_a_configuration_must_fit_the_schema() -> None:
    with pytest.raises(ApplyFailed) as caught:
        applied(None, {**config_map(), "dat": {}}, "x")
    assert caught.value.status == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "failed to create typed patch object (n/c; /v1, Kind=ConfigMap): .dat: field not declared in schema",
        "code": 500,
    }


def test_ignored_fields_are_not_owned_by_an_applier() -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"hostname": "h"},
        "status": {"phase": "x"},
    }
    assert owners(applied(None, config, "x", ownership=PODS)) == {"x": {"f:spec": {"f:hostname": {}}}}


def client_side_applied(**data: Any) -> Object:
    config = config_map(**data)
    obj = config_map(**data)
    obj["metadata"]["annotations"] = {LAST_APPLIED: orjson.dumps(config).decode()}
    return created(obj, by="kubectl-client-side-apply")


def test_kubectl_may_take_over_what_its_client_side_apply_owns_and_keeps_the_annotation_true() -> None:
    live = client_side_applied(a="1")
    obj = applied(live, config_map(a="2"), "kubectl")
    assert obj["data"] == {"a": "2"}
    assert obj["metadata"]["annotations"][LAST_APPLIED] == (
        '{"apiVersion":"v1","data":{"a":"2"},"kind":"ConfigMap","metadata":{"name":"c","namespace":"n"}}\n'
    )
    with pytest.raises(ApplyConflict):
        applied(live, config_map(a="2"), "another")


def test_kubectl_may_not_take_over_what_has_changed_since() -> None:
    live = updated(client_side_applied(a="1"), "b", data={"a": "changed"})
    with pytest.raises(ApplyConflict, match=r'conflict with "b" using v1: \.data\.a'):
        applied(live, config_map(a="2"), "kubectl")


data_maps = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("12"), max_size=4)
writes = st.lists(
    st.tuples(st.sampled_from(["update", "apply", "force"]), st.sampled_from("xy"), data_maps), max_size=8
)


@given(writes)
def test_after_any_writes_every_entry_is_owned_by_those_who_last_set_it(
    steps: list[tuple[str, str, dict[str, str]]],
) -> None:
    """Against a plain model: key -> owners, where an owner is (operation, manager)."""
    live = created({**config_map(z="0"), "data": {"z": "0"}}, by="first")
    values, owned = {"z": "0"}, {"z": {("Update", "first")}}
    for how, who, data in steps:
        if how == "update":
            data = {**data, "z": "0"}
            live = updated(live, who, data=data)
            owned = {key: owned[key] if values.get(key) == data[key] else {("Update", who)} for key in data}
            values = data
            continue
        me = ("Apply", who)
        contested = [k for k, v in data.items() if k in values and values[k] != v and owned[k] - {me}]
        if contested and how == "apply":
            with pytest.raises(ApplyConflict):
                applied(live, config_map(**data), who)
            continue
        live = applied(live, config_map(**data), who, force=how == "force")
        for key in [key for key, by in owned.items() if me in by and key not in data]:
            owned[key] = owned[key] - {me}
            if not owned[key]:
                del owned[key], values[key]
        for key, value in data.items():
            owned[key] = {me} if values.get(key) != value else owned[key] | {me}
            values[key] = value
    by_name: dict[str, set[tuple[str, str]]] = {key: set() for key in live["data"]}
    for entry in live["metadata"].get("managedFields", []):
        for element in entry["fieldsV1"].get("f:data", {}):
            if element != ".":
                by_name[element[2:]].add((entry["operation"], entry["manager"]))
    assert live["data"] == values
    assert by_name == owned
