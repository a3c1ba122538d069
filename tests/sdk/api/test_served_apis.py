"""APIs that an operator serves itself, through the cluster's server: written as any other kind, by any client."""

from __future__ import annotations

import pytest
from tests.sdk.recipes import KIND, client, recipe

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.objects import Object

__all__ = ["client"]


async def test_objects_are_made_read_changed_and_deleted(client: Client) -> None:
    made = await client.create(recipe(minutes=20))
    assert made["spec"] == {"minutes": 20, "steps": [], "dish": "plate"}
    assert made["metadata"]["generation"] == 1 and made["metadata"]["uid"]
    made["spec"]["minutes"] = 30
    changed = await client.update(made)
    assert (changed["spec"]["minutes"], changed["metadata"]["generation"]) == (30, 2)
    assert await client.get(KIND, "soup") == changed
    assert [obj["metadata"]["name"] for obj in await client.list(KIND)] == ["soup"]
    await client.delete(KIND, "soup")
    assert await client.get_or_none(KIND, "soup") is None
    with pytest.raises(errors.NotFound, match='"soup" not found'):
        await client.delete(KIND, "soup")


async def test_no_definition_is_made_of_a_kind_that_is_served(client: Client) -> None:
    assert await client.list("apiextensions.k8s.io/v1/CustomResourceDefinition") == []


async def test_an_object_is_made_once(client: Client) -> None:
    await client.create(recipe())
    with pytest.raises(errors.AlreadyExists):
        await client.create(recipe())


async def test_a_write_with_an_older_revision_conflicts(client: Client) -> None:
    first = await client.create(recipe())
    await client.update({**first, "spec": {"minutes": 1}})
    with pytest.raises(errors.Conflict, match="the object has been modified"):
        await client.update({**first, "spec": {"minutes": 2}})


async def test_patches_change_what_they_say(client: Client) -> None:
    await client.create(recipe(minutes=5, steps=["cut"]))
    merged = await client.patch(KIND, "soup", {"spec": {"minutes": None, "dish": "bowl"}})
    assert merged["spec"] == {"minutes": 10, "steps": ["cut"], "dish": "bowl"}
    operations = [{"op": "add", "path": "/spec/steps/-", "value": "boil"}]
    assert (await client.patch(KIND, "soup", operations, form="json"))["spec"]["steps"] == ["cut", "boil"]


async def test_server_side_apply_makes_owns_and_contends(client: Client) -> None:
    applied = await client.apply(recipe(minutes=5), field_manager="ann")
    assert [entry["manager"] for entry in applied["metadata"]["managedFields"]] == ["ann"]
    with pytest.raises(errors.ApplyConflict, match='conflict with "ann"'):
        await client.apply(recipe(minutes=6), field_manager="bob")
    taken = await client.apply(recipe(minutes=6), field_manager="bob", force=True)
    assert taken["spec"]["minutes"] == 6
    released = await client.apply(recipe(), field_manager="bob")
    assert released["spec"]["minutes"] == 10


async def test_a_dry_run_changes_nothing(client: Client) -> None:
    assert (await client.create(recipe(), dry_run=True))["metadata"]["uid"]
    assert await client.list(KIND) == []
    await client.create(recipe())
    patched = await client.patch(KIND, "soup", {"spec": {"minutes": 99}}, dry_run=True)
    assert patched["spec"]["minutes"] == 99
    assert (await client.get(KIND, "soup"))["spec"]["minutes"] == 10
    await client.delete(KIND, "soup", dry_run=True)
    assert await client.get(KIND, "soup")


async def test_the_status_is_changed_through_its_own_url_alone(client: Client) -> None:
    made = await client.create({**recipe(), "status": {"cooked": 7}})
    assert made["status"] == {"cooked": 0}
    message = await client.patch(KIND, "soup", {"spec": {"minutes": 3}, "status": {"cooked": 1}}, subresource="status")
    assert (message["spec"]["minutes"], message["status"], message["metadata"]["generation"]) == (10, {"cooked": 1}, 1)
    kept = await client.patch(KIND, "soup", {"status": {"cooked": 9}, "spec": {"minutes": 4}})
    assert (kept["status"], kept["metadata"]["generation"]) == ({"cooked": 1}, 2)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param({"minutes": 0}, "spec.minutes in body should be greater than or equal to 1", id="schema"),
        pytest.param({"minutes": "x"}, "must be of type integer", id="type"),
        pytest.param({"dish": "dirty"}, 'spec.dish: Invalid value: "dirty": wash it first', id="the class itself"),
    ],
)
async def test_an_invalid_object_is_refused_with_the_field(client: Client, spec: Object, message: str) -> None:
    with pytest.raises(errors.Invalid) as refused:
        await client.create(recipe(**spec))
    assert message in refused.value.message
    assert await client.list(KIND) == []


@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": {"name": "other"}},
        {"metadata": {"namespace": "other"}},
        {"metadata": {"labels": {"a b": "c"}}},
        {"metadata": {"labels": 5}},
        {"metadata": None},
        {"apiVersion": "v1"},
        {"kind": None},
        {"spec": []},
        {"spec": {"steps": [1, {}]}},
    ],
    ids=str,
)
async def test_odd_changes_are_refused_and_nothing_is_changed(client: Client, patch: Object) -> None:
    made = await client.create(recipe())
    with pytest.raises(errors.ApiError) as refused:
        await client.patch(KIND, "soup", patch)
    assert 400 <= refused.value.code < 500
    assert await client.get(KIND, "soup") == made


async def test_fields_of_the_server_cannot_be_changed(client: Client) -> None:
    made = await client.create({**recipe(), "metadata": {"name": "soup", "uid": "mine", "generation": 9}})
    assert made["metadata"]["uid"] != "mine" and made["metadata"]["generation"] == 1
    forged = {"creationTimestamp": "2001-01-01T00:00:00Z", "generation": 5}
    changed = await client.patch(KIND, "soup", {"metadata": {**forged, "labels": {"a": "b"}}})
    kept = {name: value for name, value in changed["metadata"].items() if name not in ("labels", "resourceVersion")}
    before = {name: value for name, value in made["metadata"].items() if name != "resourceVersion"}
    assert {**kept, "managedFields": None} == {**before, "managedFields": None}
    with pytest.raises(errors.Invalid, match="deletionTimestamp: Invalid value"):
        await client.patch(KIND, "soup", {"metadata": {"deletionTimestamp": "2001-01-01T00:00:00Z"}})
    with pytest.raises(errors.Invalid, match="uid: Invalid value"):
        await client.patch(KIND, "soup", {"metadata": {"uid": "another"}})
