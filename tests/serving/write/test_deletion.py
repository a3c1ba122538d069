"""Deletion: immediate, graceful, and with finalizers; and writes in a terminating namespace."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.server.in_process import CONFIG_MAPS, PODS, SERVICES, InProcess, config_map, control_plane, pod, service

from pinnace.process.clock import SystemClock
from pinnace.serving.write import pipeline

NOW = datetime(2030, 1, 1, 12, 0, 0, tzinfo=UTC)


class StoppedClock(SystemClock):
    """Time that stands still until a test moves it."""

    moment = NOW

    def now(self) -> datetime:
        return self.moment


async def test_an_object_without_finalizers_is_gone_at_once(api: InProcess) -> None:
    made = await api.made(CONFIG_MAPS, config_map())
    reply = await api.delete(f"{CONFIG_MAPS}/settings")
    assert reply.status == 200
    assert (reply.json["kind"], reply.json["status"]) == ("Status", "Success")
    assert reply.json["details"] == {"name": "settings", "kind": "configmaps", "uid": made["metadata"]["uid"]}
    assert (await api.get(f"{CONFIG_MAPS}/settings")).status == 404
    assert (await api.delete(f"{CONFIG_MAPS}/settings")).status == 404


@pytest.mark.parametrize(
    ("preconditions", "message"),
    [
        ({"uid": "another"}, "the UID in the precondition (another) does not match the UID in record ("),
        (
            {"resourceVersion": "1"},
            "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record (",
        ),
    ],
    ids=["uid", "revision"],
)
async def test_preconditions_are_held_to(api: InProcess, preconditions: dict[str, str], message: str) -> None:
    made = await api.made(CONFIG_MAPS, config_map())
    reply = await api.delete(f"{CONFIG_MAPS}/settings", {"preconditions": preconditions})
    assert (reply.status, reply.json["reason"]) == (409, "Conflict")
    assert message in reply.message
    met = {"uid": made["metadata"]["uid"], "resourceVersion": made["metadata"]["resourceVersion"]}
    assert (await api.delete(f"{CONFIG_MAPS}/settings", {"preconditions": met})).status == 200


async def test_a_finalizer_holds_an_object_until_it_is_removed(api: InProcess) -> None:
    await api.made(CONFIG_MAPS, config_map(finalizers=["example.com/hold"]))
    reply = await api.delete(f"{CONFIG_MAPS}/settings")
    assert reply.status == 200
    assert reply.json["metadata"]["deletionGracePeriodSeconds"] == 0
    marked = (await api.get(f"{CONFIG_MAPS}/settings")).json
    assert marked["metadata"]["deletionTimestamp"]
    assert (await api.delete(f"{CONFIG_MAPS}/settings")).json == marked, "deleting again changes nothing"
    changed = await api.patch(f"{CONFIG_MAPS}/settings", {"data": {"still": "editable"}})
    assert changed.json["data"] == {"still": "editable"}
    more = await api.patch(f"{CONFIG_MAPS}/settings", {"metadata": {"finalizers": ["example.com/hold", "a.b/c"]}})
    assert more.status == 422
    assert "no new finalizers can be added if the object is being deleted" in more.message
    assert (await api.patch(f"{CONFIG_MAPS}/settings", {"metadata": {"finalizers": None}})).status == 200
    assert (await api.get(f"{CONFIG_MAPS}/settings")).status == 404


async def test_the_time_of_deletion_cannot_be_taken_back(api: InProcess) -> None:
    await api.made(CONFIG_MAPS, config_map(finalizers=["example.com/hold"]))
    marked = (await api.delete(f"{CONFIG_MAPS}/settings")).json
    reply = await api.patch(f"{CONFIG_MAPS}/settings", {"metadata": {"deletionTimestamp": None}})
    assert reply.json["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize(
    ("options", "finalizers"),
    [
        ({"propagationPolicy": "Foreground"}, ["foregroundDeletion"]),
        ({"propagationPolicy": "Orphan"}, ["orphan"]),
        ({"orphanDependents": True}, ["orphan"]),
        ({"propagationPolicy": "Background"}, None),
        ({"orphanDependents": False}, None),
        ({}, None),
    ],
    ids=["foreground", "orphan", "old orphan", "background", "old background", "default"],
)
async def test_a_propagation_policy_is_recorded_as_a_finalizer(
    api: InProcess, options: dict[str, Any], finalizers: list[str] | None
) -> None:
    await api.made(CONFIG_MAPS, config_map())
    assert (await api.delete(f"{CONFIG_MAPS}/settings", options)).status == 200
    left = await api.get(f"{CONFIG_MAPS}/settings")
    if finalizers is None:
        assert left.status == 404
    else:
        assert left.json["metadata"]["finalizers"] == finalizers


async def test_another_policy_replaces_the_one_before(api: InProcess) -> None:
    await api.made(CONFIG_MAPS, config_map(finalizers=["example.com/hold"]))
    await api.delete(f"{CONFIG_MAPS}/settings?propagationPolicy=Foreground")
    reply = await api.delete(f"{CONFIG_MAPS}/settings?propagationPolicy=Orphan")
    assert reply.json["metadata"]["finalizers"] == ["example.com/hold", "orphan"]
    reply = await api.delete(f"{CONFIG_MAPS}/settings?propagationPolicy=Background")
    assert reply.json["metadata"]["finalizers"] == ["example.com/hold"]


async def test_a_scheduled_pod_gets_its_grace_period() -> None:
    clock = StoppedClock()
    async with control_plane(clock=clock) as api:
        await api.made(PODS, pod(nodeName="node"))
        metadata = (await api.delete(f"{PODS}/web")).json["metadata"]
        assert metadata["deletionGracePeriodSeconds"] == 30
        assert metadata["deletionTimestamp"] == "2030-01-01T12:00:30Z"
        assert metadata["generation"] == 2
        assert (await api.get(f"{PODS}/web")).json["metadata"] == metadata
        again = (await api.delete(f"{PODS}/web")).json["metadata"]
        assert again == metadata, "deleting again changes nothing"
        longer = (await api.delete(f"{PODS}/web?gracePeriodSeconds=60")).json["metadata"]
        assert longer == metadata, "a grace period is never prolonged"
        shorter = (await api.delete(f"{PODS}/web?gracePeriodSeconds=5")).json["metadata"]
        assert shorter["deletionGracePeriodSeconds"] == 5
        assert shorter["deletionTimestamp"] == "2030-01-01T12:00:05Z"
        last = (await api.delete(f"{PODS}/web?gracePeriodSeconds=0")).json
        assert (last["kind"], last["metadata"]["deletionGracePeriodSeconds"]) == ("Pod", 0)
        assert (await api.get(f"{PODS}/web")).status == 404


async def test_a_shortened_grace_period_never_lies_in_the_past() -> None:
    clock = StoppedClock()
    async with control_plane(clock=clock) as api:
        await api.made(PODS, pod(nodeName="node"))
        await api.delete(f"{PODS}/web")
        clock.moment = NOW + timedelta(seconds=20)
        metadata = (await api.delete(f"{PODS}/web?gracePeriodSeconds=10")).json["metadata"]
        assert metadata["deletionTimestamp"] == "2030-01-01T12:00:20Z"
        assert metadata["deletionGracePeriodSeconds"] == 1


@pytest.mark.parametrize(
    ("spec", "query", "seconds"),
    [
        ({"nodeName": "node", "terminationGracePeriodSeconds": 7}, "", 7),
        ({"nodeName": "node"}, "?gracePeriodSeconds=3", 3),
        ({"nodeName": "node"}, "?gracePeriodSeconds=-3", 1),
        ({"nodeName": "node"}, f"?gracePeriodSeconds={2**63 - 1}", 2**63 - 1),
        ({"nodeName": "node", "terminationGracePeriodSeconds": 10**12}, "", 10**12),
    ],
    ids=["of the pod", "of the request", "never negative", "beyond the calendar", "of the pod, beyond the calendar"],
)
async def test_the_grace_period_is_the_requests_or_the_pods(
    api: InProcess, spec: dict[str, Any], query: str, seconds: int
) -> None:
    await api.made(PODS, pod(**spec))
    reply = await api.delete(f"{PODS}/web{query}")
    assert reply.json["metadata"]["deletionGracePeriodSeconds"] == seconds
    last = (await api.delete(f"{PODS}/web?gracePeriodSeconds=0")).json
    assert last["metadata"]["deletionGracePeriodSeconds"] == 0


async def test_a_pod_that_runs_nowhere_is_gone_at_once(api: InProcess) -> None:
    await api.made(PODS, pod())
    assert (await api.delete(f"{PODS}/web")).json["kind"] == "Pod"
    assert (await api.get(f"{PODS}/web")).status == 404


@pytest.mark.parametrize("spec", [{}, {"nodeName": "node"}])
async def test_watchers_hear_that_a_pods_time_is_over_before_they_hear_that_it_is_gone(
    api: InProcess, spec: dict[str, Any]
) -> None:
    await api.made(PODS, pod(**spec))
    watch = await api.watch(f"{PODS}?watch=1")
    assert (await watch.next())["type"] == "ADDED"
    await api.delete(f"{PODS}/web?gracePeriodSeconds=0&dryRun=All")
    answer = await api.delete(f"{PODS}/web?gracePeriodSeconds=0")
    over, gone = await watch.take(2)
    assert (over["type"], gone["type"]) == ("MODIFIED", "DELETED")
    for event in (over, gone):
        metadata = event["object"]["metadata"]
        assert (metadata["deletionGracePeriodSeconds"], metadata["generation"]) == (0, 2)
        assert metadata["deletionTimestamp"]
    assert int(gone["object"]["metadata"]["resourceVersion"]) == int(over["object"]["metadata"]["resourceVersion"]) + 1
    assert answer.version == gone["object"]["metadata"]["resourceVersion"]


async def test_a_controller_sees_the_mark_of_a_pod_that_is_deleted_at_once(
    api: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "MARKED_SECONDS", 0.5)  # Long enough for a busy machine.
    version = (await api.post(PODS, pod())).version
    watch = await api.watch(f"{PODS}?watch=1&resourceVersion={version}")
    deletion = asyncio.create_task(api.delete(f"{PODS}/web"))
    assert (await watch.next())["type"] == "MODIFIED"
    assert "deletionTimestamp" in (await api.get(f"{PODS}/web")).json["metadata"]
    assert (await watch.next())["type"] == "DELETED"
    assert (await deletion).status == 200
    assert (await api.get(f"{PODS}/web")).status == 404


async def test_the_endpoints_of_a_service_go_with_it(api: InProcess) -> None:
    endpoints = {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "web"}}
    await api.made(SERVICES, service("web"))
    await api.made("/api/v1/namespaces/default/endpoints", endpoints)
    await api.delete(f"{SERVICES}/web?dryRun=All")
    assert (await api.get("/api/v1/namespaces/default/endpoints/web")).status == 200
    await api.delete(f"{SERVICES}/web")
    assert (await api.get("/api/v1/namespaces/default/endpoints/web")).status == 404


async def test_removing_the_last_finalizer_returns_the_stored_revision(api: InProcess) -> None:
    await api.made(CONFIG_MAPS, {"metadata": {"name": "one", "finalizers": ["a.b/c"]}})
    held = await api.delete(f"{CONFIG_MAPS}/one")
    let_go = await api.patch(f"{CONFIG_MAPS}/one", {"metadata": {"finalizers": None}, "data": {"k": "v"}})
    assert let_go.version == held.version
    assert let_go.json["data"] == {"k": "v"}
    assert (await api.get(f"{CONFIG_MAPS}/one")).status == 404


async def test_a_pod_waits_for_its_finalizers_after_its_grace_period(api: InProcess) -> None:
    body = pod(nodeName="node")
    body["metadata"]["finalizers"] = ["example.com/hold"]
    await api.made(PODS, body)
    await api.delete(f"{PODS}/web?gracePeriodSeconds=0")
    assert (await api.get(f"{PODS}/web")).json["metadata"]["deletionGracePeriodSeconds"] == 0
    await api.patch(f"{PODS}/web", {"metadata": {"finalizers": None}})
    assert (await api.get(f"{PODS}/web")).status == 404


async def test_a_running_pod_outlives_its_finalizers(api: InProcess) -> None:
    body = pod(nodeName="node")
    body["metadata"]["finalizers"] = ["example.com/hold"]
    await api.made(PODS, body)
    await api.delete(f"{PODS}/web")
    await api.patch(f"{PODS}/web", {"metadata": {"finalizers": None}})
    assert (await api.get(f"{PODS}/web")).status == 200, "the node has not stopped it yet"
    assert (await api.delete(f"{PODS}/web?gracePeriodSeconds=0")).status == 200
    assert (await api.get(f"{PODS}/web")).status == 404


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ({"propagationPolicy": "Foo"}, 422, "propagationPolicy: Unsupported value"),
        ({"propagationPolicy": "Orphan", "orphanDependents": True}, 422, "cannot be both set"),
        ({"gracePeriodSeconds": "x"}, 400, "gracePeriodSeconds of type int64"),
        ({"preconditions": []}, 400, "preconditions of type v1.Preconditions"),
        ({"dryRun": "All"}, 400, "dryRun of type []string"),
        ({"kind": "Pod", "apiVersion": "v1"}, 400, 'no kind "Pod" is registered'),
        ([], 400, "cannot unmarshal array"),
    ],
    ids=["policy", "both", "grace", "preconditions", "dry run", "kind", "array"],
)
async def test_options_that_cannot_be_meant_are_refused(api: InProcess, options: Any, code: int, message: str) -> None:
    await api.made(CONFIG_MAPS, config_map())
    reply = await api.delete(f"{CONFIG_MAPS}/settings", options)
    assert (reply.status, message in reply.message) == (code, True), reply.body
    assert (await api.get(f"{CONFIG_MAPS}/settings")).status == 200


NAMESPACES = "/api/v1/namespaces"


async def test_a_namespace_terminates_refuses_newcomers_and_goes_when_it_is_finalized(api: InProcess) -> None:
    await api.made(NAMESPACES, {"metadata": {"name": "team"}})
    await api.made(f"{NAMESPACES}/team/configmaps", config_map())
    reply = await api.delete(f"{NAMESPACES}/team")
    assert reply.json["status"]["phase"] == "Terminating"
    assert reply.json["metadata"]["deletionTimestamp"]
    late = await api.post(f"{NAMESPACES}/team/configmaps", config_map("late"))
    assert late.status == 403
    assert late.message == (
        'configmaps "late" is forbidden: unable to create new content in namespace team because it is being terminated'
    )
    assert late.json["details"]["causes"] == [
        {
            "reason": "NamespaceTerminating",
            "message": "namespace team is being terminated",
            "field": "metadata.namespace",
        }
    ]
    assert (await api.patch(f"{NAMESPACES}/team/configmaps/settings", {"data": {"a": "1"}})).status == 200
    assert (await api.delete(f"{NAMESPACES}/team/configmaps/settings")).status == 200
    assert (await api.get(f"{NAMESPACES}/team")).status == 200
    finalized = await api.put(f"{NAMESPACES}/team/finalize", {"metadata": {"name": "team"}, "spec": {}})
    assert finalized.status == 200
    assert (await api.get(f"{NAMESPACES}/team")).status == 404


async def test_nothing_is_made_in_a_namespace_that_is_not_there(api: InProcess) -> None:
    reply = await api.post(f"{NAMESPACES}/nowhere/configmaps", config_map())
    assert (reply.status, reply.message) == (404, 'namespaces "nowhere" not found')


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_the_first_namespaces_stay(api: InProcess, name: str) -> None:
    reply = await api.delete(f"{NAMESPACES}/{name}")
    assert (reply.status, reply.message) == (
        403,
        f'namespaces "{name}" is forbidden: this namespace may not be deleted',
    )


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
async def test_a_namespace_refuses_another_precondition_in_the_words_of_a_write(api: InProcess, field: str) -> None:
    made = await api.made("/api/v1/namespaces", {"metadata": {"name": "kept"}})
    reply = await api.delete("/api/v1/namespaces/kept", {"preconditions": {field: "1"}})
    word = {"uid": "UID", "resourceVersion": "ResourceVersion"}[field]
    assert (reply.status, reply.json["details"]) == (409, {"name": "kept", "kind": "namespaces"})
    assert reply.message.endswith(
        f"Precondition failed: {word} in precondition: 1, {word} in object meta: {made['metadata'][field]}"
    )


async def test_a_failed_deletion_of_a_job_has_the_warning_about_its_pods_too(api: InProcess) -> None:
    reply = await api.delete("/apis/batch/v1/namespaces/default/jobs/missing")
    assert reply.status == 404
    assert ["child pods are preserved" in warning for warning in reply.header("warning")] == [True]
    reply = await api.delete("/apis/batch/v1/namespaces/default/jobs/missing?propagationPolicy=Background")
    assert reply.header("warning") == []
