"""Clients that accept protobuf read the same objects as those that accept JSON."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.server.conftest import fill
from tests.server.in_process import CONFIG_MAPS, DEPLOYMENTS, JSON, PODS, InProcess, Object, Reply, config_map, pod

from pinnace.kinds.golang.field_numbers import decode_answer
from pinnace.schema.golang.protobuf import read_event, split_events
from pinnace.serving.cache import fanout, protobuf_representation

PROTOBUF = "application/vnd.kubernetes.protobuf"
EITHER = f"{PROTOBUF},{JSON}"
METADATA = "as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
METADATA_LIST = "as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
INITIAL_EVENTS = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
DISCOVERY = "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
LABELLED = {"labels": {"app": "boat"}}
TEMPLATE: Object = {"metadata": LABELLED, "spec": pod()["spec"]}
DEPLOYMENT: Object = {
    "metadata": {"name": "web"},
    "spec": {"selector": {"matchLabels": LABELLED["labels"]}, "template": TEMPLATE},
}
BOATS: Object = {
    "metadata": {"name": "boats.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "boats", "kind": "Boat"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def content(reply: Reply) -> Object:
    """The object of an answer in protobuf."""
    assert reply.header("content-type") == [PROTOBUF], reply.body
    return decode_answer(reply.body)


async def both(api: InProcess, target: str, view: str = "") -> tuple[Any, Any]:
    """The answer to one request as protobuf and as JSON, decoded."""
    suffix = f";{view}" if view else ""
    binary = content(await api.get(target, accept=PROTOBUF + suffix))
    return binary, (await api.get(target, accept=JSON + suffix)).json


def full(value: Any) -> Any:
    """A value without what is empty: in protobuf, what Go always writes looks like what was never set."""
    if isinstance(value, list):
        return [full(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: rest for name, item in value.items() if (rest := full(item)) or rest is False or rest == 0}


@pytest.mark.parametrize(
    ("target", "view"),
    [
        (f"{PODS}/web", ""),
        (f"{DEPLOYMENTS}/web", ""),
        (f"{DEPLOYMENTS}/web/scale", ""),
        (f"{PODS}/web", METADATA),
        ("/apis/apps/v1/deployments", METADATA_LIST),
        (PODS, ""),
        (f"{PODS}?labelSelector=app%3Dboat", ""),
        (f"{PODS}?limit=1", ""),
        ("/api/v1/namespaces", ""),
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", ""),
        ("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", ""),
        ("/apis/autoscaling/v2/horizontalpodautoscalers", ""),
        ("/api/v1/componentstatuses", ""),
    ],
)
async def test_a_read_has_the_same_content_as_in_json(alone: InProcess, target: str, view: str) -> None:
    await alone.made(PODS, pod("web", labels=LABELLED["labels"]))
    await alone.made(PODS, pod("other"))
    await alone.made(DEPLOYMENTS, DEPLOYMENT)
    binary, plain = await both(alone, target, view)
    for item in plain.get("items", []):  # The items of lists have no kind in protobuf.
        item.pop("kind", None)
        item.pop("apiVersion", None)
    assert full(binary) == full(plain)


async def test_a_write_is_answered_in_protobuf(alone: InProcess) -> None:
    created = content(await alone.post(CONFIG_MAPS, config_map("one", {"a": "1"}), accept=EITHER))
    assert created["data"] == {"a": "1"}
    patched = content(await alone.patch(f"{CONFIG_MAPS}/one", {"data": {"b": "2"}}, accept=EITHER))
    assert patched["data"] == {"a": "1", "b": "2"}
    replaced = content(await alone.put(f"{CONFIG_MAPS}/one", {**created, "metadata": {"name": "one"}}, accept=EITHER))
    assert replaced["data"] == {"a": "1"}
    deleted = content(await alone.delete(f"{CONFIG_MAPS}/one", accept=EITHER))
    assert (deleted["kind"], deleted["status"], deleted["details"]["kind"]) == ("Status", "Success", "configmaps")
    collected = content(await alone.delete(CONFIG_MAPS, accept=EITHER))
    assert collected["kind"] == "ConfigMapList"


async def test_subresources_and_reviews_are_answered_in_protobuf(alone: InProcess) -> None:
    await alone.made(PODS, pod("web"))
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "web"}, "target": {"name": "node-1"}}
    assert content(await alone.post(f"{PODS}/web/binding", binding, accept=PROTOBUF))["status"] == "Success"
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}}
    assert content(await alone.post(f"{PODS}/web/eviction", eviction, accept=PROTOBUF))["status"] == "Success"
    await alone.made("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "bot"}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["here"]}}
    token = content(await alone.post("/api/v1/namespaces/default/serviceaccounts/bot/token", request, accept=PROTOBUF))
    assert token["status"]["token"].count(".") == 2
    review = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
    who = content(await alone.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review, accept=PROTOBUF))
    assert "system:masters" in who["status"]["userInfo"]["groups"]


async def test_an_error_is_a_status_in_protobuf(alone: InProcess) -> None:
    reply = await alone.get(f"{PODS}/missing", accept=EITHER)
    assert reply.status == 404
    assert content(reply) | {"metadata": {}} == (await alone.get(f"{PODS}/missing")).json
    reply = await alone.post(PODS, {"metadata": {"name": "A"}}, accept=PROTOBUF)
    assert (reply.status, content(reply)["reason"]) == (422, "Invalid")


async def test_a_table_is_never_protobuf(alone: InProcess) -> None:
    table = "as=Table;v=v1;g=meta.k8s.io"
    reply = await alone.get(PODS, accept=f"{PROTOBUF};{table},{JSON};{table},{JSON}")
    assert (reply.header("content-type"), reply.json["kind"]) == ([JSON], "Table")
    reply = await alone.get(PODS, accept=f"{PROTOBUF};{table}")
    assert (reply.status, reply.header("content-type")) == (406, [JSON])


async def test_custom_objects_are_json_and_their_metadata_protobuf(alone: InProcess) -> None:
    await alone.made("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", BOATS)
    boats = "/apis/example.com/v1/namespaces/default/boats"
    async with asyncio.timeout(60):
        while (await alone.get(boats)).status != 200:
            await asyncio.sleep(0)
    created = await alone.post(
        boats, {"apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"name": "a"}}, accept=EITHER
    )
    assert (created.status, created.header("content-type")) == (201, [JSON])
    assert (await alone.get(f"{boats}/a", accept=f"{PROTOBUF}, */*")).header("content-type") == [JSON]
    refused = await alone.get(f"{boats}/a", accept=PROTOBUF)
    assert refused.status == 406
    assert content(refused)["message"] == (
        "only the following media types are accepted: application/json, application/yaml, " + PROTOBUF
    )
    assert content(await alone.get(f"{boats}/missing", accept=EITHER))["reason"] == "NotFound"
    metadata = content(await alone.get(f"{boats}/a", accept=f"{PROTOBUF};{METADATA},{JSON}"))
    assert (metadata["kind"], metadata["metadata"]["name"]) == ("PartialObjectMetadata", "a")


@pytest.mark.parametrize("path", ["/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1"])
async def test_discovery_is_answered_in_protobuf(alone: InProcess, path: str) -> None:
    binary, plain = await both(alone, path)
    assert full(binary) == full(plain)


async def test_aggregated_discovery_names_its_format(alone: InProcess) -> None:
    reply = await alone.get("/apis", accept=f"{PROTOBUF};{DISCOVERY},{JSON};{DISCOVERY},{JSON}")
    assert reply.header("content-type") == [f"{PROTOBUF};{DISCOVERY}"]
    plain = (await alone.get("/apis", accept=f"{JSON};{DISCOVERY}")).json
    assert [group["metadata"] for group in decode_answer(reply.body)["items"]] == [
        group["metadata"] for group in plain["items"]
    ]
    # The older version was never protobuf: the next clause of the header counts.
    old = DISCOVERY.replace("v=v2", "v=v2beta1")
    assert (await alone.get("/apis", accept=f"{PROTOBUF};{old},{JSON}")).json["kind"] == "APIGroupList"


# Watches.


async def test_a_watch_sends_events_bookmarks_and_errors_in_protobuf(alone: InProcess) -> None:
    await fill(alone, 2)
    target = f"{CONFIG_MAPS}?watch=1&{INITIAL_EVENTS}"
    watch = await alone.watch(target, accept=f"{PROTOBUF};stream=watch")
    plain = await alone.watch(target)
    await alone.patch(f"{CONFIG_MAPS}/cm-0001", {"data": {"a": "2"}})
    await alone.delete(f"{CONFIG_MAPS}/cm-0000")
    events, expected = await watch.take(5), await plain.take(5)
    assert events == expected
    assert [event["type"] for event in events] == ["ADDED", "ADDED", "BOOKMARK", "MODIFIED", "DELETED"]
    assert events[2]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    watch.close()
    plain.close()


async def test_the_error_of_a_watch_is_protobuf_too(alone: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "FRESHNESS_SECONDS", 0.01)
    target = f"{CONFIG_MAPS}?watch=1&resourceVersion=99999999&{INITIAL_EVENTS}"
    watch = await alone.watch(target, accept=PROTOBUF)
    event = await watch.next()
    assert (event["type"], event["object"]["kind"], event["object"]["reason"]) == ("ERROR", "Status", "Timeout")


async def test_a_watch_of_metadata_is_protobuf_too(alone: InProcess) -> None:
    await fill(alone, 1)
    watch = await alone.watch(f"{CONFIG_MAPS}?watch=1", accept=f"{PROTOBUF};{METADATA},{JSON};{METADATA}")
    event = await watch.next()
    assert (event["type"], event["object"]["kind"]) == ("ADDED", "PartialObjectMetadata")
    assert event["object"]["metadata"]["name"] == "cm-0000"
    watch.close()


async def test_watchers_of_one_change_share_its_frame(alone: InProcess) -> None:
    since = alone.plane.fanout.revision
    await alone.made(CONFIG_MAPS, config_map("one"))
    target = f"{CONFIG_MAPS}?watch=1&resourceVersion={since}"
    watches = [await alone.watch(target, accept=accept) for accept in (PROTOBUF, EITHER, JSON)]
    events = [await watch.next() for watch in watches]
    assert events[0] == events[1] == events[2]
    cache = alone.plane.fanout.cache("/registry/core/configmaps/")
    assert len(cache.recent[-1].frames or ()) == 2, "one for protobuf and one for JSON"
    for watch in watches:
        watch.close()


async def test_the_frames_of_a_watch_are_whole_in_its_stream(alone: InProcess) -> None:
    await fill(alone, 3, size=70_000)
    watch = await alone.watch(f"{CONFIG_MAPS}?watch=1", accept=PROTOBUF)
    data = await anext(watch.stream.__aiter__())
    events = [read_event(framed) for framed in split_events(data)]
    assert [decode_answer(event.body)["metadata"]["name"] for event in events] == ["cm-0000", "cm-0001", "cm-0002"]
    watch.close()


# Large lists, and what is kept.


async def test_a_large_list_is_whole_and_its_continuation_goes_on(alone: InProcess) -> None:
    names = await fill(alone, 250)
    binary, plain = await both(alone, CONFIG_MAPS)
    assert full(binary) == full(plain)
    first = content(await alone.get(f"{CONFIG_MAPS}?limit=120", accept=PROTOBUF))
    assert first["metadata"]["remainingItemCount"] == 130
    rest = content(
        await alone.get(f"{CONFIG_MAPS}?limit=500&continue={first['metadata']['continue']}", accept=PROTOBUF)
    )
    assert [item["metadata"]["name"] for item in first["items"] + rest["items"]] == names


async def test_only_what_is_read_as_protobuf_is_kept_and_it_goes_with_the_object(alone: InProcess) -> None:
    await fill(alone, 2)
    cache = alone.plane.fanout.cache("/registry/core/configmaps/")
    before = cache.entries["default/cm-0000"]
    assert before.protobuf is None
    await alone.get(f"{CONFIG_MAPS}/cm-0000", accept=PROTOBUF)
    assert before.protobuf is not None
    assert cache.entries["default/cm-0001"].protobuf is None
    await alone.patch(f"{CONFIG_MAPS}/cm-0000", {"data": {"a": "2"}})
    assert cache.entries["default/cm-0000"].protobuf is None
    assert content(await alone.get(f"{CONFIG_MAPS}/cm-0000", accept=PROTOBUF))["data"] == {"a": "2"}


async def test_a_change_is_seen_in_the_next_list(alone: InProcess) -> None:
    await fill(alone, 3)
    for number in range(3):
        await alone.patch(f"{CONFIG_MAPS}/cm-0001", {"data": {"a": str(number)}})
        binary, plain = await both(alone, CONFIG_MAPS)
        assert full(binary) == full(plain)


# Large objects are encoded beside the loop.


async def _large(api: InProcess, name: str) -> None:
    await api.made(CONFIG_MAPS, config_map(name, {f"{number:x}": "" for number in range(15_000)}))


def _encoding_threads(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each message that is encoded from now on: whether that is in the thread of the loop."""
    loop_thread, encoded = threading.get_ident(), []
    encode = protobuf_representation._write

    def write(message: str, obj: Object) -> bytes:
        if len(obj.get("data", ())) > 1000:
            encoded.append(threading.get_ident() == loop_thread)
        return encode(message, obj)

    monkeypatch.setattr(protobuf_representation, "_write", write)
    return encoded


@pytest.mark.parametrize("target", [f"{CONFIG_MAPS}/large", CONFIG_MAPS])
async def test_a_large_object_is_read_while_others_are_served(
    alone: InProcess, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _large(alone, "large")
    encoded = _encoding_threads(monkeypatch)
    binary, plain = await both(alone, target)
    assert full(binary) == full(plain)
    assert encoded == [False]


async def test_a_write_of_a_large_object_is_answered_from_a_thread(
    alone: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = _encoding_threads(monkeypatch)
    body = config_map("large", {f"{number:x}": "" for number in range(15_000)})
    assert content(await alone.post(CONFIG_MAPS, body, accept=PROTOBUF))["data"] == body["data"]
    assert encoded == [False]


async def test_events_after_a_large_object_wait_for_it(alone: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = _encoding_threads(monkeypatch)
    watches = [await alone.watch(f"{CONFIG_MAPS}?watch=1", accept=accept) for accept in (PROTOBUF, PROTOBUF, JSON)]
    await _large(alone, "large")
    await alone.made(CONFIG_MAPS, config_map("small"))
    await alone.patch(f"{CONFIG_MAPS}/large", {"metadata": {"labels": {"a": "b"}}})
    await alone.delete(f"{CONFIG_MAPS}/large")
    await alone.delete(f"{CONFIG_MAPS}/small")
    first, second, expected = [await watch.take(5) for watch in watches]
    assert first == second == expected
    assert [event["type"] for event in expected] == ["ADDED", "ADDED", "MODIFIED", "DELETED", "DELETED"]
    assert not any(encoded)
    for watch in watches:
        watch.close()


async def test_a_watch_begins_with_large_objects_too(alone: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    await _large(alone, "one")
    await _large(alone, "two")
    encoded = _encoding_threads(monkeypatch)
    watch = await alone.watch(f"{CONFIG_MAPS}?watch=1", accept=PROTOBUF)
    names = [event["object"]["metadata"]["name"] for event in await watch.take(2)]
    assert (names, encoded) == (["one", "two"], [False, False])
    watch.close()


async def test_a_bookmark_does_not_overtake_a_large_object(alone: InProcess) -> None:
    target = f"{CONFIG_MAPS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=3"
    watch = await alone.watch(target, accept=PROTOBUF)  # The last bookmark comes two seconds before the end.
    await _large(alone, "large")
    seen = 0
    for event in await watch.rest():
        revision = int(event["object"]["metadata"]["resourceVersion"])
        assert revision >= seen
        seen = revision
    assert seen >= alone.plane.fanout.cache("/registry/core/configmaps/").changed
