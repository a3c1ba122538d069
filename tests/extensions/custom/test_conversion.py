"""Objects are read, watched and written in any served version, and stored in one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.extensions.definitions import BOATS, DEFINITIONS, NUMBER, TEXT, Cluster, boat, boats, shape, version
from tests.extensions.webhook import Object, Webhook, convert, refuse, serving
from tests.server.in_process import TABLE, Reply

V1, V2 = BOATS, BOATS.replace("/v1/", "/v2/")
PARTIAL = "application/json;as=PartialObjectMetadata{};v=v1;g=meta.k8s.io"
SIZED, LONG = shape(size=NUMBER, name=TEXT), shape(length=NUMBER, name=TEXT)


@pytest.fixture
async def webhook() -> AsyncIterator[Webhook]:
    async with serving("converter.default.svc") as result:
        yield result


def two_versions(webhook: Webhook, *, stored: str = "v1") -> Object:
    result = boats(
        version("v1", SIZED, storage=stored == "v1"),
        version("v2", LONG, storage=stored == "v2"),
        conversion=webhook.conversion(),
    )
    return result


async def stored_version(cluster: Cluster, key: str = "default/pinnace") -> str:
    entry = cluster.plane.fanout.cache("/registry/example.com/boats/").entries[key]
    return str(json.loads(entry.body)["apiVersion"])


async def change_storage(cluster: Cluster, name: str) -> None:
    present = (await cluster.get(f"{DEFINITIONS}/boats.example.com")).json
    for stored in present["spec"]["versions"]:
        stored["storage"] = stored["name"] == name
    reply = await cluster.put(f"{DEFINITIONS}/boats.example.com", present)
    assert reply.status == 200, reply.body


async def test_without_a_webhook_another_version_only_says_another_version(cluster: Cluster) -> None:
    await cluster.define(boats(version("v1", storage=True), version("v2", shape(size=NUMBER))))
    await cluster.made(V1, boat(size=3, name="x"))
    assert (await cluster.get(f"{V2}/pinnace")).json["apiVersion"] == "example.com/v2"
    assert (await cluster.get(f"{V2}/pinnace")).json["spec"] == {"size": 3}, "v2 has no name"
    await cluster.made(V2, boat("other", api_version="example.com/v2", size=4))
    assert await stored_version(cluster, "default/other") == "example.com/v1"
    listed = (await cluster.get(V2)).json
    assert {item["apiVersion"] for item in listed["items"]} == {"example.com/v2"}


async def test_objects_stay_as_they_were_stored_until_they_are_written_again(cluster: Cluster) -> None:
    await cluster.define(boats(version("v1", storage=True), version("v2")))
    await cluster.made(V1, boat(size=3))
    await change_storage(cluster, "v2")
    document = (await cluster.get(f"{DEFINITIONS}/boats.example.com")).json
    assert document["status"]["storedVersions"] == ["v1", "v2"]
    assert await stored_version(cluster) == "example.com/v1"
    present = (await cluster.get(f"{V1}/pinnace")).json
    assert present["apiVersion"] == "example.com/v1"
    same = await cluster.put(f"{V1}/pinnace", present)
    assert same.json["metadata"]["resourceVersion"] != present["metadata"]["resourceVersion"]
    assert await stored_version(cluster) == "example.com/v2"
    assert (await cluster.put(f"{V1}/pinnace", same.json)).version == same.version, "nothing is left to change"


async def test_a_version_that_may_still_be_stored_cannot_be_removed(cluster: Cluster) -> None:
    await cluster.define(boats(version("v1", storage=True), version("v2")))
    await change_storage(cluster, "v2")
    present = (await cluster.get(f"{DEFINITIONS}/boats.example.com")).json
    present["spec"]["versions"] = present["spec"]["versions"][1:]
    reply = await cluster.put(f"{DEFINITIONS}/boats.example.com", present)
    assert reply.status == 422
    assert "status.storedVersions[0]" in reply.message


async def test_a_webhook_converts_what_is_read_and_what_is_written(cluster: Cluster, webhook: Webhook) -> None:
    await cluster.define(two_versions(webhook))
    await cluster.made(V1, boat(size=3))
    assert webhook.requests == [], "what is stored as it is written needs no converting"
    view = (await cluster.get(f"{V2}/pinnace")).json
    assert (view["apiVersion"], view["spec"]) == ("example.com/v2", {"length": 3})
    await cluster.get(f"{V2}/pinnace")
    assert len(webhook.requests) == 1, "the answer is kept"
    made = await cluster.made(V2, boat("other", api_version="example.com/v2", length=4))
    assert made["spec"] == {"length": 4}
    assert await stored_version(cluster, "default/other") == "example.com/v1"
    changed = await cluster.patch(f"{V2}/other", {"spec": {"length": 5}})
    assert changed.json["spec"] == {"length": 5}
    assert (await cluster.get(f"{V1}/other")).json["spec"] == {"size": 5}


async def test_a_list_is_converted_in_one_question(cluster: Cluster, webhook: Webhook) -> None:
    await cluster.define(two_versions(webhook))
    for number in range(5):
        await cluster.made(V1, boat(f"boat-{number}", size=number))
    listed = (await cluster.get(V2)).json
    assert [item["spec"]["length"] for item in listed["items"]] == [0, 1, 2, 3, 4]
    assert [len(review["request"]["objects"]) for review in webhook.requests] == [5]
    table = (await cluster.get(V2, accept=TABLE)).json
    assert len(table["rows"]) == 5


async def test_a_watch_shows_every_event_in_its_version_and_in_order(cluster: Cluster, webhook: Webhook) -> None:
    await cluster.define(two_versions(webhook))
    await cluster.made(V1, boat("first", size=1))
    watch = await cluster.watch(f"{V2}?watch=true")
    seen = [await watch.next()]
    await cluster.made(V1, boat("second", size=2))
    await cluster.patch(f"{V1}/first", {"spec": {"size": 9}})
    await cluster.delete(f"{V1}/second")
    seen += await watch.take(3)
    watch.close()
    view = [(event["type"], event["object"]["metadata"]["name"], event["object"]["spec"]) for event in seen]
    assert view == [
        ("ADDED", "first", {"length": 1}),
        ("ADDED", "second", {"length": 2}),
        ("MODIFIED", "first", {"length": 9}),
        ("DELETED", "second", {"length": 2}),
    ]
    assert {event["object"]["apiVersion"] for event in seen} == {"example.com/v2"}


async def test_a_watch_that_comes_back_is_given_what_it_missed(cluster: Cluster, webhook: Webhook) -> None:
    await cluster.define(two_versions(webhook))
    since = (await cluster.made(V1, boat("first", size=1)))["metadata"]["resourceVersion"]
    await cluster.patch(f"{V1}/first", {"spec": {"size": 2}})
    watch = await cluster.watch(f"{V2}?watch=true&resourceVersion={since}")
    event = await watch.next()
    watch.close()
    assert (event["type"], event["object"]["spec"]) == ("MODIFIED", {"length": 2})


async def test_a_service_is_found_by_its_endpoints(cluster: Cluster, webhook: Webhook) -> None:
    service = {"metadata": {"name": "converter"}, "spec": {"ports": [{"port": 443}]}}
    await cluster.made("/api/v1/namespaces/default/services", service)
    key = "/registry/core/endpoints/default/converter"
    subsets = [{"addresses": [{"ip": "127.0.0.1"}], "ports": [{"port": webhook.port}]}]
    endpoints = {"kind": "Endpoints", "apiVersion": "v1", "metadata": {"name": "converter"}, "subsets": subsets}
    await cluster.plane.store.put(key, json.dumps(endpoints, separators=(",", ":")).encode(), expected=0)
    result = two_versions(webhook)
    place = {"namespace": "default", "name": "converter", "path": "/convert"}
    result["spec"]["conversion"] = webhook.conversion(service=place)
    await cluster.define(result)
    await cluster.made(V1, boat(size=3))
    assert (await cluster.get(f"{V2}/pinnace")).json["spec"] == {"length": 3}


async def rename(review: Object) -> Object:
    answer = await convert(review)
    answer["response"]["convertedObjects"][0]["metadata"]["name"] = "another"
    return answer


async def keep_version(review: Object) -> Object:
    answer = await convert(review)
    answer["response"]["convertedObjects"] = review["request"]["objects"]
    return answer


async def lose(review: Object) -> Object:
    answer = await convert(review)
    answer["response"]["convertedObjects"] = []
    return answer


async def answer_another(review: Object) -> Object:
    answer = await convert(review)
    answer["response"]["uid"] = "someone-elses"
    return answer


async def relabel(review: Object) -> Object:
    answer = await convert(review)
    answer["response"]["convertedObjects"][0]["metadata"]["labels"] = {"not a label": "x"}
    return answer


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (refuse, "conversion webhook for example.com/v1, Kind=Boat failed: this boat has sunk"),
        (rename, "must have the same name: pinnace != another"),
        (keep_version, "invalid groupVersion (expected example.com/v2, received example.com/v1)"),
        (lose, "returned 0 objects, expected 1"),
        (answer_another, "expected response.uid="),
        (relabel, "metadata.labels"),
    ],
    ids=["refuses", "renames", "keeps the version", "loses objects", "answers another", "labels wrongly"],
)
async def test_a_webhook_that_is_wrong_gives_an_error_for_those_objects_alone(
    cluster: Cluster, webhook: Webhook, wrong: Any, message: str
) -> None:
    await cluster.define(two_versions(webhook))
    await cluster.made(V1, boat(size=3))
    webhook.answer = wrong
    for target in (f"{V2}/pinnace", V2):
        reply = await cluster.get(target)
        assert reply.status == 500
        assert message in reply.message
    assert (await cluster.get(f"{V1}/pinnace")).json["spec"] == {"size": 3}
    assert (await cluster.get("/api/v1/namespaces/default/configmaps")).status == 200
    watch = await cluster.watch(f"{V2}?watch=true")
    assert (await watch.next())["type"] == "ERROR"
    webhook.answer = convert
    assert (await cluster.get(f"{V2}/pinnace")).json["spec"] == {"length": 3}


async def test_a_webhook_may_change_labels_but_no_other_metadata(cluster: Cluster, webhook: Webhook) -> None:
    async def adorn(review: Object) -> Object:
        answer = await convert(review)
        for obj in answer["response"]["convertedObjects"]:
            obj["metadata"] = {**obj["metadata"], "labels": {"new": "yes"}, "finalizers": ["x/y"], "generation": 77}
        return answer

    await cluster.define(two_versions(webhook))
    await cluster.made(V1, boat(size=3))
    webhook.answer = adorn
    metadata = (await cluster.get(f"{V2}/pinnace")).json["metadata"]
    assert metadata["labels"] == {"new": "yes"}
    assert "finalizers" not in metadata and metadata["generation"] == 1


async def test_a_webhook_that_is_down_does_not_keep_its_kind_from_being_deleted(cluster: Cluster) -> None:
    async with serving() as webhook:
        result = two_versions(webhook)
    await cluster.define(result)
    await cluster.made(V1, boat(size=3))
    reply = await cluster.get(f"{V2}/pinnace")
    assert reply.status == 500
    assert reply.message == (
        f"conversion webhook for example.com/v1, Kind=Boat failed: "
        f'Post "https://127.0.0.1:{webhook.port}/convert?timeout=30s": '
        f"dial tcp 127.0.0.1:{webhook.port}: connect: connection refused"
    )
    assert (await cluster.post(V2, boat("x", api_version="example.com/v2", length=1))).status == 500
    assert (await cluster.delete(f"{DEFINITIONS}/boats.example.com")).status == 200
    await cluster.gone(f"{DEFINITIONS}/boats.example.com")


async def test_a_webhook_that_another_authority_vouches_for_is_not_believed(cluster: Cluster, webhook: Webhook) -> None:
    async with serving() as stranger:
        result = two_versions(webhook)
        client = result["spec"]["conversion"]["webhook"]["clientConfig"]
        client["url"] = f"https://127.0.0.1:{stranger.port}/convert"
        await cluster.define(result)
        await cluster.made(V1, boat(size=3))
        reply = await cluster.get(f"{V2}/pinnace")
    assert reply.status == 500 and "tls: failed to verify certificate: " in reply.message


async def test_a_slow_webhook_is_given_up_on(cluster: Cluster, webhook: Webhook) -> None:
    never = asyncio.Event()

    async def hang(review: Object) -> Object:
        await never.wait()
        return review

    cluster.plane.custom_resources.webhook_seconds = 0.05
    await cluster.define(two_versions(webhook))
    await cluster.made(V1, boat(size=3))
    webhook.answer = hang
    for target in (f"{V2}/pinnace", V2):
        reply = await cluster.get(target)
        assert reply.status == 500 and 'convert?timeout=0.05s": context deadline exceeded' in reply.message
    watch = await cluster.watch(f"{V2}?watch=true")
    assert 'convert?timeout=0.05s": context deadline exceeded' in (await watch.next())["object"]["message"]
    assert (await cluster.get(f"{V1}/pinnace")).status == 200
    never.set()


async def test_a_large_answer_is_read_whole(cluster: Cluster, webhook: Webhook) -> None:
    await cluster.define(two_versions(webhook))
    for number in range(8):
        await cluster.made(V1, boat(f"boat-{number}", size=number, name="x" * 500_000))
    listed = (await cluster.get(V2)).json
    assert [item["spec"]["length"] for item in listed["items"]] == list(range(8))
    assert {len(item["spec"]["name"]) for item in listed["items"]} == {500_000}
    assert len(webhook.requests) == 1


# Selectors and columns apply to objects in the version of the request.


def selectable(webhook: Webhook, **second: Any) -> Object:
    """Boats that v1 knows by their size and v2 by their length."""
    return boats(
        version("v1", SIZED, storage=True, selectableFields=[{"jsonPath": ".spec.size"}]),
        version("v2", LONG, selectableFields=[{"jsonPath": ".spec.length"}], **second),
        conversion=webhook.conversion(),
    )


@pytest.mark.parametrize("accept", ["application/json", PARTIAL], ids=["objects", "metadata"])
async def test_fields_select_what_they_are_in_the_version_that_is_asked(
    cluster: Cluster, webhook: Webhook, accept: str
) -> None:
    await cluster.define(selectable(webhook))
    for number in range(3):
        await cluster.made(V1, boat(f"boat-{number}", size=number))
    for target in (f"{V2}?fieldSelector=spec.length=2", f"{V1}?fieldSelector=spec.size=2"):
        listed = (await cluster.get(target, accept=accept.format("List"))).json
        assert [item["metadata"]["name"] for item in listed["items"]] == ["boat-2"]
    assert (await cluster.get(f"{V2}?fieldSelector=spec.size=2")).status == 400
    watch = await cluster.watch(f"{V2}?watch=true&fieldSelector=spec.length=1", accept=accept.format(""))
    assert (await watch.next())["object"]["metadata"]["name"] == "boat-1"
    await cluster.patch(f"{V1}/boat-2", {"spec": {"size": 1}})
    await cluster.patch(f"{V1}/boat-1", {"spec": {"size": 2}})
    seen = await watch.take(2)
    watch.close()
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in seen] == [
        ("ADDED", "boat-2"),
        ("DELETED", "boat-1"),
    ]


async def test_a_collection_is_deleted_by_the_fields_of_the_version(cluster: Cluster, webhook: Webhook) -> None:
    await cluster.define(selectable(webhook))
    for number in range(3):
        await cluster.made(V1, boat(f"boat-{number}", size=number))
    assert (await cluster.delete(f"{V2}?fieldSelector=spec.length=1")).status == 200
    left = (await cluster.get(V1)).json["items"]
    assert [item["metadata"]["name"] for item in left] == ["boat-0", "boat-2"]


async def test_without_a_webhook_fields_select_what_is_shown(cluster: Cluster) -> None:
    field = [{"jsonPath": ".spec.size"}]
    small = shape(size={"type": "integer", "default": 3})
    await cluster.define(boats(version("v1", shape(name=TEXT), storage=True), version("v2", selectableFields=field)))
    await cluster.made(V1, boat(name="x"))
    present = (await cluster.get(f"{DEFINITIONS}/boats.example.com")).json
    present["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = small
    assert (await cluster.put(f"{DEFINITIONS}/boats.example.com", present)).status == 200
    for size, names in ((3, ["pinnace"]), (4, [])):
        listed = (await cluster.get(f"{V2}?fieldSelector=spec.size={size}")).json
        assert [item["metadata"]["name"] for item in listed["items"]] == names


@pytest.mark.parametrize("has_webhook", [True, False], ids=["webhook", "no webhook"])
async def test_defaults_are_those_of_the_stored_version(cluster: Cluster, webhook: Webhook, has_webhook: bool) -> None:
    """As on a real server: a default of the version that is asked is for what is written in it."""
    manned = shape(length=NUMBER, size=NUMBER, crew={"type": "integer", "default": 4})
    result = boats(version("v1", SIZED, storage=True), version("v2", manned))
    if has_webhook:
        result["spec"]["conversion"] = webhook.conversion()
    await cluster.define(result)
    await cluster.made(V1, boat(size=3))
    view = {"length": 3} if has_webhook else {"size": 3}
    assert (await cluster.get(f"{V2}/pinnace")).json["spec"] == view
    assert (await cluster.get(V2)).json["items"][0]["spec"] == view
    assert "crew" not in (await cluster.made(V2, boat("other", api_version="example.com/v2")))["spec"]
    stored = (await cluster.get(f"{V1}/other")).json
    assert stored["spec"] == {}, "the stored version does not know it"
    assert "f:crew" in json.dumps(stored["metadata"]["managedFields"]), "and it was written"


async def test_columns_show_the_version_that_is_asked(cluster: Cluster, webhook: Webhook) -> None:
    def columns(name: str) -> list[Object]:
        return [{"name": name, "type": "integer", "jsonPath": f".spec.{name}"}]

    await cluster.define(
        boats(
            version("v1", SIZED, storage=True, additionalPrinterColumns=columns("size")),
            version("v2", LONG, additionalPrinterColumns=columns("length")),
            conversion=webhook.conversion(),
        )
    )
    await cluster.made(V1, boat(size=3))
    for target, title in ((V1, "size"), (V2, "length"), (f"{V2}/pinnace", "length")):
        table = (await cluster.get(target, accept=TABLE)).json
        assert [column["name"] for column in table["columnDefinitions"]] == ["Name", title]
        assert table["rows"][0]["cells"] == ["pinnace", 3]


async def test_status_and_scale_are_written_in_any_version(cluster: Cluster, webhook: Webhook) -> None:
    def scaled(field: str) -> Object:
        scale = {"specReplicasPath": f".spec.{field}", "statusReplicasPath": ".status.count"}
        return {"status": {}, "scale": scale}

    await cluster.define(
        boats(
            version("v1", SIZED, storage=True, subresources=scaled("size")),
            version("v2", LONG, subresources=scaled("length")),
            conversion=webhook.conversion(),
        )
    )
    await cluster.made(V1, boat(size=3))
    assert (await cluster.get(f"{V2}/pinnace/scale")).json["spec"] == {"replicas": 3}
    assert (await cluster.patch(f"{V2}/pinnace/scale", {"spec": {"replicas": 5}})).status == 200
    assert (await cluster.patch(f"{V2}/pinnace/status", {"status": {"count": 2}})).json["spec"] == {"length": 5}
    view = (await cluster.get(f"{V1}/pinnace")).json
    assert (view["spec"], view["status"]) == ({"size": 5}, {"count": 2})
    assert await stored_version(cluster) == "example.com/v1"
    assert (await cluster.get(f"{V2}/pinnace/scale")).json["status"] == {"replicas": 2}


async def apply(cluster: Cluster, target: str, obj: Object, manager: str, *, force: bool = False) -> Reply:
    query = f"fieldManager={manager}&force={str(force).lower()}"
    return await cluster.patch(f"{target}?{query}", obj, "application/apply-patch+yaml")


async def test_owners_of_fields_know_them_by_the_names_of_their_versions(cluster: Cluster, webhook: Webhook) -> None:
    await cluster.define(two_versions(webhook))
    first, second = boat(size=3), boat(api_version="example.com/v2", length=4)
    await apply(cluster, f"{V1}/pinnace", first, "one")
    refused = await apply(cluster, f"{V2}/pinnace", second, "two")
    assert refused.status == 409, refused.body
    assert refused.message == 'Apply failed with 1 conflict: conflict with "one": .spec.size'
    taken = (await apply(cluster, f"{V2}/pinnace", second, "two", force=True)).json
    owners = {
        entry["manager"]: (entry["apiVersion"], entry["fieldsV1"]) for entry in taken["metadata"]["managedFields"]
    }
    assert owners == {"two": ("example.com/v2", {"f:spec": {"f:length": {}}})}
    given_up = await apply(cluster, f"{V2}/pinnace", boat(api_version="example.com/v2"), "two")
    assert "length" not in (given_up.json.get("spec") or {})
    assert "size" not in ((await cluster.get(f"{V1}/pinnace")).json.get("spec") or {})


async def test_an_owner_in_another_version_loses_what_is_changed_in_this_one(
    cluster: Cluster, webhook: Webhook
) -> None:
    await cluster.define(two_versions(webhook))
    await apply(cluster, f"{V2}/pinnace", boat(api_version="example.com/v2", length=4, name="x"), "two")
    changed = (await cluster.patch(f"{V1}/pinnace?fieldManager=one", {"spec": {"size": 5}})).json
    owners = {entry["manager"]: entry["fieldsV1"] for entry in changed["metadata"]["managedFields"]}
    assert owners == {"one": {"f:spec": {"f:size": {}}}, "two": {"f:spec": {"f:name": {}}}}


async def test_a_write_in_the_stored_version_does_not_need_the_webhook(cluster: Cluster, webhook: Webhook) -> None:
    await cluster.define(two_versions(webhook))
    await apply(cluster, f"{V2}/pinnace", boat(api_version="example.com/v2", length=4), "two")
    webhook.answer = refuse
    changed = await cluster.patch(f"{V1}/pinnace?fieldManager=one", {"spec": {"size": 5}})
    assert (changed.status, changed.json["spec"]) == (200, {"size": 5})
    applied = await apply(cluster, f"{V1}/pinnace", boat(size=6), "three", force=True)
    assert applied.status == 200 or "this boat has sunk" in applied.message
