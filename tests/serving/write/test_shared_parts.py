"""A patched object shares its unchanged parts with the old object. The changed parts are checked as ever."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.in_process import CONFIG_MAPS, MERGE, OPERATIONS, PODS, STRATEGIC, InProcess, pod

from pinnace.model.objects import Object

POD = f"{PODS}/web"
IGNORED = ("managedFields", "resourceVersion", "generation")


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """The scalars of an object by their paths, without what the server writes itself."""
    if isinstance(value, dict) and value:
        return {
            at: leaf
            for name, inner in value.items()
            if path != ".metadata" or name not in IGNORED
            for at, leaf in leaves(inner, f"{path}.{name}").items()
        }
    if isinstance(value, list) and value:
        return {
            at: leaf for number, inner in enumerate(value) for at, leaf in leaves(inner, f"{path}[{number}]").items()
        }
    return {path: value}


async def make_pod(api: InProcess) -> Object:
    made = pod("web")
    made["metadata"]["finalizers"] = ["example.com/hold"]
    made["metadata"]["labels"] = {"app": "web"}
    await api.made(PODS, made)
    reply = await api.patch(f"{POD}/status", {"status": {"phase": "Running", "podIP": "10.0.0.1"}}, MERGE)
    patched: Object = reply.json
    return patched


@pytest.mark.parametrize(
    ("below", "form", "document", "changed"),
    [
        (
            "",
            STRATEGIC,
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/hold"]}},
            {".metadata.finalizers[0]"},
        ),
        ("", MERGE, {"metadata": {"labels": {"color": "red"}}}, {".metadata.labels.color"}),
        ("", MERGE, {"spec": {"activeDeadlineSeconds": 7}}, {".spec.activeDeadlineSeconds"}),
        (
            "",
            OPERATIONS,
            [{"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}],
            {".metadata.annotations.a"},
        ),
        ("/status", MERGE, {"status": {"phase": "Succeeded"}}, {".status.phase"}),
        ("/status", STRATEGIC, {"status": {"message": "done"}}, {".status.message"}),
    ],
    ids=["finalizer", "label", "deadline", "annotation", "phase", "message"],
)
async def test_a_patch_changes_nothing_but_its_fields(
    api: InProcess, below: str, form: str, document: Any, changed: set[str]
) -> None:
    before = await make_pod(api)
    reply = await api.patch(f"{POD}{below}", document, form)
    assert reply.status == 200
    old, new = leaves(before), leaves(reply.json)
    assert {at for at in {*old, *new} if old.get(at) != new.get(at)} == changed
    assert leaves((await api.get(POD)).json) == new


@pytest.mark.parametrize("form", [MERGE, STRATEGIC])
@pytest.mark.parametrize(
    ("document", "changed"),
    [
        ({"data": {"a": "2"}}, {".data.a"}),
        ({"data": {"b": None, "c": "3"}}, {".data.b", ".data.c"}),
        ({"metadata": {"labels": {"color": "red"}}}, {".metadata.labels.color"}),
        ({"binaryData": {"d": "eA=="}}, {".binaryData.d"}),
    ],
    ids=["value", "keys", "label", "field"],
)
async def test_a_patch_of_a_kind_without_defaults_changes_nothing_but_its_fields(
    api: InProcess, form: str, document: Object, changed: set[str]
) -> None:
    made = {"metadata": {"name": "settings", "labels": {"app": "web"}}, "data": {"a": "1", "b": "2"}}
    before = await api.made(CONFIG_MAPS, made)
    reply = await api.patch(f"{CONFIG_MAPS}/settings", document, form)
    assert reply.status == 200
    old, new = leaves(before), leaves(reply.json)
    assert {at for at in {*old, *new} if old.get(at) != new.get(at)} == changed
    assert leaves((await api.get(f"{CONFIG_MAPS}/settings")).json) == new


@pytest.mark.parametrize("form", [MERGE, STRATEGIC])
async def test_a_patch_that_changes_nothing_is_not_stored(api: InProcess, form: str) -> None:
    before = await make_pod(api)
    for document in ({}, {"metadata": {"labels": {"app": "web"}}}, {"status": {"phase": "Failed"}}):
        reply = await api.patch(POD, document, form)
        assert reply.json["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"spec": {"activeDeadlineSeconds": "soon"}}, "activeDeadlineSeconds"),
        ({"spec": {"hostname": "Not A Name"}}, "spec.hostname"),
        ({"spec": {"hostNetwork": True}}, "pod updates may not change fields"),
        ({"metadata": {"labels": {"app": "not a value!"}}}, "metadata.labels"),
        ({"metadata": {"finalizers": ["unqualified name"]}}, "metadata.finalizers"),
    ],
    ids=["type", "hostname", "immutable", "label", "finalizer"],
)
async def test_a_changed_part_is_validated(api: InProcess, document: Object, message: str) -> None:
    before = await make_pod(api)
    reply = await api.patch(POD, document, MERGE)
    assert reply.status == 422
    assert message in reply.json["message"]
    assert (await api.get(POD)).json == before


async def test_an_unknown_field_is_dropped_with_a_warning(api: InProcess) -> None:
    before = await make_pod(api)
    reply = await api.patch(POD, {"spec": {"colour": "red"}, "extra": 1}, MERGE)
    assert reply.status == 200
    assert leaves(reply.json) == leaves(before)


async def test_the_manager_of_a_patch_owns_only_what_it_changed(api: InProcess) -> None:
    await make_pod(api)
    reply = await api.patch(f"{POD}?fieldManager=painter", {"metadata": {"labels": {"color": "red"}}}, MERGE)
    (entry,) = [known for known in reply.json["metadata"]["managedFields"] if known["manager"] == "painter"]
    assert entry["fieldsV1"] == {"f:metadata": {"f:labels": {"f:color": {}}}}
