"""The client's verbs, each in process and over the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.client.connecting import WAYS, connected
from tests.server.in_process import config_map, deployment, pod

from pinnace.client.client import Client
from pinnace.client.mapping import NoSuchKind, ServedKind
from pinnace.model import errors
from pinnace.model.objects import Key, Kind, Object


@pytest.fixture(params=WAYS)
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    async with connected(request.param) as client:
        yield client


async def test_a_created_object_can_be_read(client: Client) -> None:
    made = await client.create(config_map("settings", {"colour": "blue"}))
    assert await client.get("v1/ConfigMap", "settings") == made
    assert made["metadata"]["namespace"] == "default"


@pytest.mark.parametrize(
    "name", ["apps/v1/Deployment", Kind("apps", "v1", "Deployment"), ("apps", "v1", "Deployment")], ids=repr
)
async def test_a_kind_can_be_named_in_three_ways(client: Client, name: str) -> None:
    await client.create(deployment("web"))
    assert (await client.get(name, "web"))["kind"] == "Deployment"


async def test_a_name_that_is_no_kind_says_how_to_write_one(client: Client) -> None:
    with pytest.raises(ValueError, match="apps/v1/Deployment"):
        await client.get("Deployment", "web")


async def test_a_kind_that_is_not_served_is_distinguished_from_an_object_that_is_not_there(client: Client) -> None:
    with pytest.raises(NoSuchKind, match=r"no Website in example\.com/v1"):
        await client.get("example.com/v1/Website", "web")
    with pytest.raises(errors.NotFound, match='configmaps "web" not found'):
        await client.get("v1/ConfigMap", "web")
    assert await client.get_or_none("v1/ConfigMap", "web") is None


@pytest.mark.parametrize("name", ["", ".", "..", "web/status", "../kube-system", "web%2Fstatus"])
async def test_a_name_that_no_object_can_have_is_not_found_and_leads_to_no_other_path(
    client: Client, name: str
) -> None:
    await client.create(deployment("web"))
    assert await client.get_or_none("apps/v1/Deployment", name) is None
    with pytest.raises(errors.NotFound):
        await client.delete("apps/v1/Deployment", name)
    with pytest.raises(errors.NotFound):
        await client.patch("apps/v1/Deployment", name, {"spec": {"replicas": 3}})
    assert (await client.get("apps/v1/Deployment", "web"))["spec"]["replicas"] == 2


async def test_refusals_are_the_errors_that_the_server_meant(client: Client) -> None:
    made = await client.create(config_map("settings"))
    with pytest.raises(errors.AlreadyExists):
        await client.create(config_map("settings"))
    await client.patch("v1/ConfigMap", "settings", {"data": {"a": "1"}})
    with pytest.raises(errors.Conflict):
        await client.update(made)
    with pytest.raises(errors.Invalid) as raised:
        await client.create(config_map("not/a/name"))
    assert [cause.field for cause in raised.value.causes] == ["metadata.name"]
    assert raised.value.status["reason"] == "Invalid"


async def test_lists_choose_by_namespace_label_and_field(client: Client) -> None:
    await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    await client.create(pod("a", labels={"tier": "front"}))
    await client.create(pod("b"))
    await client.create(pod("c", labels={"tier": "front"}), namespace="other")

    async def names(**choice: str | dict[str, str]) -> list[str]:
        return [item["metadata"]["name"] for item in await client.list("v1/Pod", **choice)]  # type: ignore[call-overload]

    assert await names() == ["a", "b", "c"]
    assert await names(namespace="other") == ["c"]
    assert await names(labels="tier=front") == ["a", "c"]
    assert await names(labels={"tier": "front"}) == ["a", "c"]
    assert await names(labels={"tier": "front", "app": "none"}) == []
    assert await names(fields="metadata.name=b") == ["b"]


async def test_items_of_a_list_say_what_they_are(client: Client) -> None:
    await client.create(pod("a"))
    (item,) = await client.list("v1/Pod")
    assert (item["apiVersion"], item["kind"]) == ("v1", "Pod")


async def test_a_long_list_comes_in_pages_of_one_version(client: Client) -> None:
    for number in range(5):
        await client.create(config_map(f"n{number}"))
    pages = [page async for page in client.pages("v1/ConfigMap", namespace="default", limit=2)]
    assert [len(page.items) for page in pages] == [2, 2, 1]
    assert [page.remaining for page in pages] == [3, 1, 0]
    assert len({page.version for page in pages}) == 1


async def test_metadata_can_be_had_alone(client: Client) -> None:
    await client.create(config_map("settings", {"colour": "blue"}, labels={"a": "b"}))
    (item,) = await client.list("v1/ConfigMap", labels="a=b", metadata_only=True)
    assert item["kind"] == "PartialObjectMetadata"
    assert "data" not in item


async def test_patches_have_three_forms(client: Client) -> None:
    await client.create(deployment("web"))
    kind = "apps/v1/Deployment"
    assert (await client.patch(kind, "web", {"spec": {"replicas": 3}}))["spec"]["replicas"] == 3
    operations = [{"op": "replace", "path": "/spec/replicas", "value": 4}]
    assert (await client.patch(kind, "web", operations, form="json"))["spec"]["replicas"] == 4
    container = {"name": "main", "env": [{"name": "A", "value": "1"}]}
    strategic = {"spec": {"template": {"spec": {"containers": [container]}}}}
    patched = await client.patch(kind, "web", strategic, form="strategic")
    assert patched["spec"]["template"]["spec"]["containers"][0]["image"] == "example.com/web:1"


async def test_apply_makes_owns_and_refuses_what_others_own(client: Client) -> None:
    wanted = config_map("settings", {"colour": "blue"})
    await client.apply(wanted, field_manager="one")
    other = config_map("settings", {"colour": "red"})
    with pytest.raises(errors.ApplyConflict, match="one") as refused:
        await client.apply(other, field_manager="two")
    assert isinstance(refused.value, errors.Conflict)
    assert (await client.apply(other, field_manager="two", force=True))["data"] == {"colour": "red"}


async def test_status_and_scale_are_written_through_their_own_urls(client: Client) -> None:
    made = await client.create(deployment("web"))
    made["status"] = {"replicas": 2}
    made["spec"]["replicas"] = 99
    assert (await client.update_status(made))["spec"]["replicas"] == 2
    assert (await client.scale("apps/v1/Deployment", "web", 5))["spec"]["replicas"] == 5
    assert (await client.get("apps/v1/Deployment", "web", subresource="scale"))["kind"] == "Scale"


async def test_a_dry_run_changes_nothing(client: Client) -> None:
    await client.create(config_map("settings"), dry_run=True)
    assert await client.get_or_none("v1/ConfigMap", "settings") is None


async def test_a_deletion_can_be_bound_to_what_was_seen(client: Client) -> None:
    made = await client.create(config_map("settings"))
    with pytest.raises(errors.Conflict):
        await client.delete("v1/ConfigMap", "settings", uid="another")
    await client.delete("v1/ConfigMap", "settings", uid=made["metadata"]["uid"], propagation="Background")
    assert await client.get_or_none("v1/ConfigMap", "settings") is None


async def test_collections_are_deleted_by_selection(client: Client) -> None:
    await client.create(config_map("a", labels={"drop": "yes"}))
    await client.create(config_map("b"))
    await client.delete_collection("v1/ConfigMap", namespace="default", labels="drop=yes")
    left = [item["metadata"]["name"] for item in await client.list("v1/ConfigMap", namespace="default")]
    assert "a" not in left
    assert "b" in left


async def test_subresources_can_be_created(client: Client) -> None:
    await client.create(pod("web"))
    target = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "web"}, "target": {"name": "node-1"}}
    await client.create_below("v1/Pod", "web", "binding", target)
    assert (await client.get("v1/Pod", "web"))["spec"]["nodeName"] == "node-1"


async def test_a_review_is_answered_although_it_has_no_name(client: Client) -> None:
    reported: list[Object] = []
    review: Object = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    review["spec"] = {"user": "ann", "resourceAttributes": {"verb": "get", "resource": "pods"}}
    answer = await client.telling(lambda served, key, obj, encoded: reported.append(obj)).create(review)
    assert answer["status"]["allowed"] is False
    assert reported == []


async def test_writes_are_reported_to_those_who_listen(client: Client) -> None:
    reported: list[tuple[str, Key, str]] = []

    def listen(served: ServedKind, key: Key, answer: Object, encoded: bytes) -> None:
        reported.append((served.plural, key, answer["kind"]))

    listening = client.telling(listen)
    await listening.create(config_map("a"))
    await listening.create(config_map("b"), dry_run=True)
    await listening.delete("v1/ConfigMap", "a")
    await client.create(config_map("c"))
    assert reported == [
        ("configmaps", Key("default", "a"), "ConfigMap"),
        ("configmaps", Key("default", "a"), "Status"),
    ]


async def test_a_watch_tells_what_happens_after_a_version(client: Client) -> None:
    made = await client.create(config_map("settings"))
    await client.delete("v1/ConfigMap", "settings")
    watch = client.watch("v1/ConfigMap", version=made["metadata"]["resourceVersion"])
    event = await anext(watch)
    assert (event.type, event.snapshot.key) == ("DELETED", Key("default", "settings"))
    await watch.aclose()


async def test_every_kind_can_be_listed_by_its_names(client: Client) -> None:
    kinds = {served.kind: served for served in await client.kinds.all()}
    assert kinds[Kind("apps", "v1", "Deployment")].short_names == ("deploy",)
    assert "binding" in kinds[Kind("", "v1", "Pod")].subresources
    assert not kinds[Kind("", "v1", "Namespace")].namespaced


async def test_warnings_of_the_server_are_logged_once(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        await client.list("v1/Endpoints")
    assert [record.message for record in caplog.records if "deprecated" in record.message] == [
        "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
    ]
