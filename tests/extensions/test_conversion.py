"""Objects are read, watched and written in any served version, and stored in one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.extensions.definitions import BOATS, DEFINITIONS, NUMBER, TEXT, Cluster, boat, boats, shape, version
from tests.extensions.webhook import Object, Webhook, convert, serving
from tests.server.in_process import TABLE

V1, V2 = BOATS, BOATS.replace("/v1/", "/v2/")
SIZED, LONG = shape(size=NUMBER, name=TEXT), shape(length=NUMBER, name=TEXT)


@pytest.fixture
async def webhook() -> AsyncIterator[Webhook]:
    async with serving("converter.default.svc") as found:
        yield found


def two_versions(webhook: Webhook, *, stored: str = "v1") -> Object:
    found = boats(
        version("v1", SIZED, storage=stored == "v1"),
        version("v2", LONG, storage=stored == "v2"),
        conversion=webhook.conversion(),
    )
    return found


async def stored_version(cluster: Cluster, key: str = "default/pinnace") -> str:
    entry = cluster.plane.fanout.shelf("/registry/example.com/boats/").entries[key]
    return str(json.loads(entry.body)["apiVersion"])


async def change_storage(cluster: Cluster, name: str) -> None:
    present = (await cluster.get(f"{DEFINITIONS}/boats.example.com")).json
    for one in present["spec"]["versions"]:
        one["storage"] = one["name"] == name
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
    told = (await cluster.get(f"{DEFINITIONS}/boats.example.com")).json
    assert told["status"]["storedVersions"] == ["v1", "v2"]
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
    assert webhook.asked == [], "what is stored as it is written needs no converting"
    shown = (await cluster.get(f"{V2}/pinnace")).json
    assert (shown["apiVersion"], shown["spec"]) == ("example.com/v2", {"length": 3})
    await cluster.get(f"{V2}/pinnace")
    assert len(webhook.asked) == 1, "the answer is kept"
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
    assert [len(review["request"]["objects"]) for review in webhook.asked] == [5]
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
    shown = [(event["type"], event["object"]["metadata"]["name"], event["object"]["spec"]) for event in seen]
    assert shown == [
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
    found = two_versions(webhook)
    place = {"namespace": "default", "name": "converter", "path": "/convert"}
    found["spec"]["conversion"] = webhook.conversion(service=place)
    await cluster.define(found)
    await cluster.made(V1, boat(size=3))
    assert (await cluster.get(f"{V2}/pinnace")).json["spec"] == {"length": 3}


async def refuse(review: Object) -> Object:
    answer = await convert(review)
    answer["response"]["result"] = {"status": "Failed", "message": "this boat has sunk"}
    return answer


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
        found = two_versions(webhook)
    await cluster.define(found)
    await cluster.made(V1, boat(size=3))
    reply = await cluster.get(f"{V2}/pinnace")
    assert reply.status == 500 and "conversion webhook for example.com/v1, Kind=Boat failed: " in reply.message
    assert (await cluster.post(V2, boat("x", api_version="example.com/v2", length=1))).status == 500
    assert (await cluster.delete(f"{DEFINITIONS}/boats.example.com")).status == 200
    await cluster.gone(f"{DEFINITIONS}/boats.example.com")


async def test_a_slow_webhook_is_given_up_on(cluster: Cluster, webhook: Webhook) -> None:
    never = asyncio.Event()

    async def hang(review: Object) -> Object:
        await never.wait()
        return review

    cluster.plane.custom_resources.give_up_after(0.05)
    await cluster.define(two_versions(webhook))
    await cluster.made(V1, boat(size=3))
    webhook.answer = hang
    reply = await cluster.get(f"{V2}/pinnace")
    never.set()
    assert reply.status == 500 and "no answer within 0.05 seconds" in reply.message
