"""Each verb, through the front door and without a socket."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.server.in_process import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    PODS,
    InProcess,
    config_map,
    control_plane,
    deployment,
    pod,
)

from pinnace.serving import verbs
from pinnace.store.memory import MemoryStore
from pinnace.store.store import Guard

UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
MODIFIED = (
    'Operation cannot be fulfilled on configmaps "settings": the object has been modified; please apply your changes '
    "to the latest version and try again"
)


async def test_a_created_object_is_answered_with_what_the_server_adds(api: InProcess) -> None:
    reply = await api.post(CONFIG_MAPS, config_map(data={"a": "1"}))
    assert reply.status == 201
    metadata = reply.json["metadata"]
    assert UID.fullmatch(metadata["uid"])
    assert TIME.fullmatch(metadata["creationTimestamp"])
    assert metadata["namespace"] == "default"
    assert int(metadata["resourceVersion"]) == api.plane.fanout.revision
    assert reply.json["kind"] == "ConfigMap"
    assert reply.json["apiVersion"] == "v1"
    assert (await api.get(f"{CONFIG_MAPS}/settings")).json == reply.json


async def test_a_client_cannot_set_fields_of_the_server(api: InProcess) -> None:
    brought: dict[str, Any] = {
        "uid": "mine",
        "creationTimestamp": "2001-01-01T00:00:00Z",
        "deletionTimestamp": "2001-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 5,
        "selfLink": "/mine",
    }
    metadata = (await api.made(CONFIG_MAPS, config_map(**brought)))["metadata"]
    assert UID.fullmatch(metadata["uid"])
    assert not metadata["creationTimestamp"].startswith("2001")
    assert metadata.keys().isdisjoint({"deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"})


async def test_a_name_is_taken_once(api: InProcess) -> None:
    await api.made(CONFIG_MAPS, config_map())
    reply = await api.post(CONFIG_MAPS, config_map())
    assert (reply.status, reply.json["reason"]) == (409, "AlreadyExists")
    assert reply.message == 'configmaps "settings" already exists'
    assert reply.json["details"] == {"name": "settings", "kind": "configmaps"}


async def test_a_name_is_generated_where_only_its_beginning_is_given(api: InProcess) -> None:
    body = {"metadata": {"generateName": "run-"}}
    names = {(await api.made(CONFIG_MAPS, body))["metadata"]["name"] for _ in range(20)}
    assert len(names) == 20
    assert all(re.fullmatch("run-[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in names)


async def test_a_limit_range_without_a_name_is_found_by_the_one_that_it_is_given(api: InProcess) -> None:
    limit_ranges = "/api/v1/namespaces/default/limitranges"
    for _ in range(2):
        made = await api.made(limit_ranges, {"metadata": {}, "spec": {"limits": []}})
        assert (await api.get(f"{limit_ranges}/{made['metadata']['name']}")).json == made


@pytest.mark.parametrize(("api_of_events", "status"), [("/api/v1", 201), ("/apis/events.k8s.io/v1", 422)])
async def test_only_the_newer_api_cares_how_an_event_is_called(api: InProcess, api_of_events: str, status: int) -> None:
    event = {
        "metadata": {"name": "Bad_Name!", "namespace": "default"},
        "eventTime": "2024-01-01T00:00:00.000000Z",
        "reportingInstance": "test",
        "action": "Testing",
        "reason": "Test",
        "type": "Normal",
    }
    about = {"kind": "Pod", "name": "web", "namespace": "default"}
    names = {"involvedObject": about, "reportingComponent": "example.com/test"}
    if "events.k8s.io" in api_of_events:
        names = {"regarding": about, "reportingController": "example.com/test"}
    reply = await api.post(f"{api_of_events}/namespaces/default/events", {**event, **names})
    assert reply.status == status, reply.message
    target = f"{api_of_events}/namespaces/default/events"
    await api.made(target, {**event, **names, "metadata": {"name": "good"}})
    kept = await api.delete(f"{target}/good", {"preconditions": {"uid": "1"}})
    assert kept.json["details"] == {"name": "good", "kind": "Event"}, "it is an event of the core API to both"
    unnamed = await api.post(target, {**event, **names, "metadata": {}})
    assert [cause["field"] for cause in unnamed.json["details"]["causes"]] == ["metadata.name"]


@pytest.mark.parametrize(
    ("target", "spec"),
    [
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {"group": "example.com"}),
        ("/apis/apiregistration.k8s.io/v1/apiservices", {"group": "example.com", "version": "v1"}),
    ],
    ids=["definition", "API service"],
)
async def test_a_name_that_is_missing_is_not_reported_to_be_wrong_too(api: InProcess, target: str, spec: Any) -> None:
    reply = await api.post(target, {"metadata": {}, "spec": spec})
    of_name = [cause["reason"] for cause in reply.json["details"]["causes"] if cause["field"] == "metadata.name"]
    assert of_name == ["FieldValueRequired"]


async def test_a_long_beginning_leaves_room_for_the_generated_end(api: InProcess) -> None:
    made = await api.made(CONFIG_MAPS, {"metadata": {"generateName": "a" * 90}})
    assert re.fullmatch("a{58}[a-z0-9]{5}", made["metadata"]["name"])


async def test_a_generated_name_that_is_taken_is_generated_again(
    api: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = iter(["run-taken", "run-taken", "run-taken", "run-free"])
    monkeypatch.setattr(verbs, "generate_name", lambda prefix: next(names))
    body = {"metadata": {"generateName": "run-"}, "data": {"a": "1"}}
    first = await api.made(CONFIG_MAPS, body)
    second = await api.made(CONFIG_MAPS, body)
    assert (first["metadata"]["name"], second["metadata"]["name"]) == ("run-taken", "run-free")
    assert len(second["metadata"]["managedFields"]) == 1
    assert second["metadata"]["uid"] != first["metadata"]["uid"]


async def test_a_generated_name_that_is_always_taken_is_given_up(
    api: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verbs, "generate_name", lambda prefix: "run-taken")
    await api.made(CONFIG_MAPS, {"metadata": {"generateName": "run-"}})
    reply = await api.post(CONFIG_MAPS, {"metadata": {"generateName": "run-"}})
    assert (reply.status, reply.json["reason"]) == (409, "AlreadyExists")


async def test_a_replacement_replaces_everything(api: InProcess) -> None:
    made = await api.made(CONFIG_MAPS, config_map(data={"a": "1"}, labels={"x": "y"}))
    reply = await api.put(f"{CONFIG_MAPS}/settings", config_map(data={"b": "2"}))
    assert reply.status == 200
    assert reply.json["data"] == {"b": "2"}
    assert "labels" not in reply.json["metadata"]
    assert reply.json["metadata"]["uid"] == made["metadata"]["uid"]
    assert reply.json["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]
    assert int(reply.version) > int(made["metadata"]["resourceVersion"])


async def test_a_replacement_of_an_old_revision_is_refused(api: InProcess) -> None:
    old = await api.made(CONFIG_MAPS, config_map(data={"a": "1"}))
    new = await api.put(f"{CONFIG_MAPS}/settings", config_map(data={"a": "2"}))
    reply = await api.put(f"{CONFIG_MAPS}/settings", {**old, "data": {"a": "3"}})
    assert (reply.status, reply.json["reason"], reply.message) == (409, "Conflict", MODIFIED)
    assert (await api.get(f"{CONFIG_MAPS}/settings")).json == new.json


async def test_a_replacement_of_another_incarnation_is_refused(api: InProcess) -> None:
    await api.made(CONFIG_MAPS, config_map())
    reply = await api.put(f"{CONFIG_MAPS}/settings", config_map(uid="another"))
    assert reply.status == 409
    assert "UID in precondition: another" in reply.message


async def test_a_replacement_without_a_change_writes_nothing(api: InProcess) -> None:
    made = await api.made(CONFIG_MAPS, config_map(data={"a": "1"}))
    before = api.plane.store.revision
    for body in (made, config_map(data={"a": "1"})):
        assert (await api.put(f"{CONFIG_MAPS}/settings", body)).json == made
    assert api.plane.store.revision == before


async def test_a_replacement_of_nothing_is_refused_or_creates_where_the_kind_allows_it(api: InProcess) -> None:
    assert (await api.put(f"{CONFIG_MAPS}/settings", config_map())).status == 404
    lease = {"metadata": {"name": "leader"}, "spec": {"holderIdentity": "me"}}
    reply = await api.put("/apis/coordination.k8s.io/v1/namespaces/default/leases/leader", lease)
    assert reply.status == 201
    assert UID.fullmatch(reply.json["metadata"]["uid"])


async def test_an_unconditional_replacement_that_loses_a_race_is_made_of_the_newer_object() -> None:
    store = RacedStore()
    async with control_plane(store) as api:
        await api.made(CONFIG_MAPS, config_map(data={"a": "1"}))
        store.race = 1
        reply = await api.put(f"{CONFIG_MAPS}/settings", config_map(data={"a": "2"}))
        assert store.race == 0, "the race did not happen"
        assert reply.status == 200
        assert reply.json["data"] == {"a": "2"}
        assert len(reply.json["metadata"]["managedFields"]) == 1


async def test_a_conditional_replacement_that_loses_a_race_is_refused() -> None:
    store = RacedStore()
    async with control_plane(store) as api:
        made = await api.made(CONFIG_MAPS, config_map(data={"a": "1"}))
        store.race = 1
        reply = await api.put(f"{CONFIG_MAPS}/settings", {**made, "data": {"a": "2"}})
        assert store.race == 0, "the race did not happen"
        assert (reply.status, reply.message) == (409, MODIFIED)


async def test_a_patch_that_loses_races_is_made_of_the_newest_object() -> None:
    store = RacedStore()
    async with control_plane(store) as api:
        await api.made(CONFIG_MAPS, config_map(data={"a": "1"}))
        store.race = 3
        reply = await api.patch(f"{CONFIG_MAPS}/settings", {"data": {"b": "2"}})
        assert store.race == 0, "the race did not happen"
        assert reply.json["data"] == {"a": "1", "b": "2"}


async def test_a_deletion_that_loses_a_race_deletes_the_newer_object() -> None:
    store = RacedStore()
    async with control_plane(store) as api:
        await api.made(CONFIG_MAPS, config_map(data={"a": "1"}))
        store.race = 1
        assert (await api.delete(f"{CONFIG_MAPS}/settings")).status == 200
        assert store.race == 0, "the race did not happen"
        assert (await api.get(f"{CONFIG_MAPS}/settings")).status == 404


class RacedStore(MemoryStore):
    """Another writer is faster as often as `race` says: it writes the same value again just before."""

    race = 0

    async def put(self, key: str, value: bytes, *, expected: int | None, guard: Guard | None = None) -> int:
        await self._interfere(key)
        return await super().put(key, value, expected=expected)

    async def delete(self, key: str, *, expected: int | None) -> int:
        await self._interfere(key)
        return await super().delete(key, expected=expected)

    async def _interfere(self, key: str) -> None:
        record = await self.get(key)
        if self.race and record is not None:
            self.race -= 1
            await super().put(key, record.value, expected=None)


@pytest.mark.parametrize(
    ("target", "body", "message"),
    [
        (
            f"{CONFIG_MAPS}/other",
            config_map(),
            "the name of the object (settings) does not match the name on the URL (other)",
        ),
        (
            f"{CONFIG_MAPS}/settings",
            config_map(namespace="kube-system"),
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
    ],
    ids=["name", "namespace"],
)
async def test_an_update_must_say_what_its_url_says(api: InProcess, target: str, body: Any, message: str) -> None:
    await api.made(CONFIG_MAPS, config_map())
    reply = await api.put(target, body)
    assert (reply.status, reply.message) == (400, message)


async def test_the_generation_counts_changes_of_what_is_wanted(api: InProcess) -> None:
    await api.made(DEPLOYMENTS, deployment())
    steps = [
        ("", {"metadata": {"labels": {"a": "b"}}}, 1),
        ("", {"spec": {"replicas": 3}}, 2),
        ("", {"spec": {"replicas": 3}}, 2),
        ("/status", {"status": {"replicas": 3}}, 2),
        ("/scale", {"spec": {"replicas": 4}}, None),
        ("", {}, 3),
    ]
    for path, patch, generation in steps:
        reply = await api.patch(f"{DEPLOYMENTS}/web{path}", patch)
        assert reply.status == 200, reply.body
        assert reply.json["metadata"].get("generation") == generation


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("POST", f"{CONFIG_MAPS}?dryRun=All", config_map("new")),
        ("PUT", f"{CONFIG_MAPS}/settings?dryRun=All", config_map(data={"a": "2"})),
        ("PATCH", f"{CONFIG_MAPS}/settings?dryRun=All", {"data": {"a": "2"}}),
        ("DELETE", f"{CONFIG_MAPS}/settings?dryRun=All", None),
        ("DELETE", f"{CONFIG_MAPS}/settings", {"dryRun": ["All"]}),
        ("DELETE", f"{CONFIG_MAPS}?dryRun=All", None),
        ("DELETE", CONFIG_MAPS, {"dryRun": ["All"]}),
        (
            "POST",
            "/api/v1/namespaces/default/services?dryRun=All",
            {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}},
        ),
        (
            "POST",
            "/api/v1/namespaces/default/pods/web/eviction?dryRun=All",
            {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}},
        ),
        (
            "POST",
            "/api/v1/namespaces/default/pods/web/eviction",
            {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": "web"},
                "deleteOptions": {"dryRun": ["All"]},
            },
        ),
        (
            "POST",
            "/api/v1/namespaces/default/pods/web/binding?dryRun=All",
            {"metadata": {"name": "web"}, "target": {"name": "node"}},
        ),
    ],
    ids=[
        "create",
        "replace",
        "patch",
        "delete",
        "delete by body",
        "all",
        "all by body",
        "service",
        "evict",
        "evict by body",
        "bind",
    ],
)
async def test_a_dry_run_answers_as_if_and_changes_nothing(api: InProcess, method: str, target: str, body: Any) -> None:
    await api.made(CONFIG_MAPS, config_map(data={"a": "1"}))
    await api.made("/api/v1/namespaces/default/pods", pod())
    before = api.plane.store.revision
    content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
    reply = await api.call(method, target, body, content_type)
    assert reply.status in (200, 201), reply.body
    assert api.plane.store.revision == before
    assert (await api.get(f"{CONFIG_MAPS}/settings")).json["data"] == {"a": "1"}


async def test_a_dry_run_shows_what_would_be_stored(api: InProcess) -> None:
    await api.made(CONFIG_MAPS, config_map(data={"a": "1"}))
    reply = await api.patch(f"{CONFIG_MAPS}/settings?dryRun=All", {"data": {"a": "2"}})
    assert reply.json["data"] == {"a": "2"}
    created = await api.post(f"{CONFIG_MAPS}?dryRun=All", config_map("new"))
    assert "resourceVersion" not in created.json["metadata"] or created.version == "0"
    assert UID.fullmatch(created.json["metadata"]["uid"])


@pytest.mark.parametrize(
    ("method", "target", "kind"),
    [
        ("POST", CONFIG_MAPS, "CreateOptions"),
        ("PUT", f"{CONFIG_MAPS}/settings", "UpdateOptions"),
        ("PATCH", f"{CONFIG_MAPS}/settings", "PatchOptions"),
        ("DELETE", f"{CONFIG_MAPS}/settings", "DeleteOptions"),
    ],
    ids=["create", "replace", "patch", "delete"],
)
async def test_a_dry_run_is_for_all_stages_or_refused(api: InProcess, method: str, target: str, kind: str) -> None:
    await api.made(CONFIG_MAPS, config_map())
    content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
    body = None if method == "DELETE" else config_map("other" if method == "POST" else "settings")
    reply = await api.call(method, f"{target}?dryRun=Some", body, content_type)
    assert reply.status == 422
    assert "dryRun: Unsupported value" in reply.message
    assert reply.json["details"]["kind"] == kind


UNKNOWN = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "bogus": 1}


async def test_unknown_fields_are_reported_in_a_warning_by_default(api: InProcess) -> None:
    for query in ("", "?fieldValidation=Warn"):
        reply = await api.post(CONFIG_MAPS + query, {**UNKNOWN, "metadata": {"generateName": "a-"}})
        assert reply.status == 201
        assert reply.header("warning") == ['299 - "unknown field \\"bogus\\""']
        assert "bogus" not in reply.json


async def test_unknown_fields_are_refused_where_that_is_asked_for(api: InProcess) -> None:
    reply = await api.post(f"{CONFIG_MAPS}?fieldValidation=Strict", UNKNOWN)
    assert reply.status == 400
    assert reply.message.endswith('strict decoding error: unknown field "bogus"')
    assert (await api.get(f"{CONFIG_MAPS}/settings")).status == 404


async def test_unknown_fields_are_passed_over_where_that_is_asked_for(api: InProcess) -> None:
    reply = await api.post(f"{CONFIG_MAPS}?fieldValidation=Ignore", UNKNOWN)
    assert reply.status == 201
    assert reply.header("warning") == []


async def test_a_field_that_is_given_twice_is_reported_and_the_last_one_counts(api: InProcess) -> None:
    body = b'{"metadata":{"name":"settings"},"data":{"a":"1"},"data":{"a":"2"}}'
    assert (await api.post(f"{CONFIG_MAPS}?fieldValidation=Strict", body)).status == 400
    reply = await api.post(CONFIG_MAPS, body)
    assert reply.header("warning") == ['299 - "duplicate field \\"data\\""']
    assert reply.json["data"] == {"a": "2"}


async def test_an_unknown_field_validation_is_refused(api: InProcess) -> None:
    reply = await api.post(f"{CONFIG_MAPS}?fieldValidation=Foo", UNKNOWN)
    assert reply.status == 422
    assert "fieldValidation: Unsupported value" in reply.message


async def test_deprecated_versions_warn_of_themselves(api: InProcess) -> None:
    reply = await api.get("/api/v1/namespaces/default/endpoints")
    assert reply.status == 200
    assert "deprecated" in reply.header("warning")[0]


async def test_deletecollection_deletes_what_the_selectors_choose(api: InProcess) -> None:
    for name, label in (("a", "x"), ("b", "y"), ("c", "x")):
        await api.made(CONFIG_MAPS, config_map(name, labels={"l": label}))
    await api.made("/api/v1/namespaces/kube-system/configmaps", config_map("d", labels={"l": "x"}))
    reply = await api.delete(f"{CONFIG_MAPS}?labelSelector=l%3Dx")
    assert reply.status == 200
    assert (reply.json["kind"], reply.names) == ("ConfigMapList", ["a", "c"])
    assert (await api.get(f"{CONFIG_MAPS}?labelSelector=l")).names == ["b"]
    assert (await api.get("/api/v1/namespaces/kube-system/configmaps/d")).status == 200
    assert (await api.delete(f"{CONFIG_MAPS}?fieldSelector=metadata.name%3Db")).names == ["b"]
    assert (await api.get(f"{CONFIG_MAPS}/b")).status == 404


async def test_other_field_managers_share_an_object(api: InProcess) -> None:
    await api.made(f"{CONFIG_MAPS}?fieldManager=one", config_map(data={"a": "1"}))
    reply = await api.patch(f"{CONFIG_MAPS}/settings?fieldManager=two", {"data": {"b": "2"}})
    managers = {entry["manager"]: entry for entry in reply.json["metadata"]["managedFields"]}
    assert managers.keys() == {"one", "two"}
    assert managers["two"]["fieldsV1"] == {"f:data": {"f:b": {}}}
    by_agent = await api.patch(f"{CONFIG_MAPS}/settings", {"data": {"c": "3"}}, user_agent="kubectl/v1.36 (linux)")
    assert {entry["manager"] for entry in by_agent.json["metadata"]["managedFields"]} == {"one", "two", "kubectl"}


@pytest.mark.parametrize("manager", ["%01", "a" * 129], ids=["unprintable", "too long"])
async def test_a_field_manager_has_a_printable_name(api: InProcess, manager: str) -> None:
    assert (await api.post(f"{CONFIG_MAPS}?fieldManager={manager}", config_map())).status == 422


@pytest.mark.parametrize("method", ["POST", "OPTIONS", "GET", "PUT"])
@pytest.mark.parametrize(
    "path",
    ["/api/v1/namespaces/default/bindings/web", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews/web"],
    ids=["bindings", "reviews"],
)
async def test_kinds_that_are_never_stored_have_no_paths_of_objects(api: InProcess, method: str, path: str) -> None:
    reply = await api.call(method, path, {})
    assert (reply.status, reply.message) == (404, "the server could not find the requested resource")


@pytest.mark.parametrize("path", ["bindings", "pods/web/binding"])
async def test_a_binding_without_a_node_fails_without_a_reason(api: InProcess, path: str) -> None:
    await api.made(PODS, pod())
    reply = await api.post(f"/api/v1/namespaces/default/{path}", {"metadata": {"name": "web"}, "target": {}})
    assert (reply.status, reply.message) == (500, "target.name: Required value")
    assert "reason" not in reply.json


@pytest.mark.parametrize(
    ("path", "scheme"),
    [
        (CONFIG_MAPS, "pkg/api/legacyscheme/scheme.go:30"),
        ("/apis/apiregistration.k8s.io/v1/apiservices", "pkg/apiserver/scheme/scheme.go:28"),
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "pkg/apiserver/apiserver.go:55"),
    ],
)
async def test_an_unknown_kind_is_reported_with_the_scheme_of_the_group(api: InProcess, path: str, scheme: str) -> None:
    reply = await api.post(path, {"apiVersion": "v1", "kind": "Nope"})
    assert reply.status == 400
    assert reply.message.endswith(f'no kind "Nope" is registered for version "v1" in scheme "{scheme}"')
