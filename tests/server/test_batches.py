"""Several objects that are created at once by a part of this process."""

from __future__ import annotations

import pytest
from tests.testing.both_ways import cluster, in_process_only

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.testing.cluster import Cluster

__all__ = ["cluster"]

POD = "v1/Pod"
AUTOSCALER = "autoscaling/v2/HorizontalPodAutoscaler"


def pod(name: str) -> Object:
    spec = {"containers": [{"name": "c", "image": "i"}], "schedulerName": "absent"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def event(name: str, **fields: object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "Tested",
        **fields,
    }


def binding(name: str, node: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": "default"},
        "target": {"kind": "Node", "name": node},
    }


async def bind(client: Client, *bindings: Object) -> list[str]:
    """Bind pods at once; return the messages of their errors."""
    result = await client.create_many(POD, bindings, namespace="default", subresource="binding")
    assert result is not None
    return [str(error) if error is not None else "" for error in result]


@in_process_only
async def test_each_object_of_a_batch_is_stored_or_has_its_own_error(cluster: Cluster) -> None:
    await cluster.client.create(event("b"))
    result = await cluster.client.create_many(
        "v1/Event", [event("a"), event("b"), event("c", type="Odd/", reportingComponent="x")], namespace="default"
    )
    assert result is not None
    assert [type(error).__name__ for error in result] == ["NoneType", "AlreadyExists", "NoneType"]
    made = await cluster.client.get("v1/Event", "a", namespace="default")
    assert made["metadata"]["managedFields"][0]["manager"] == cluster.client.field_manager
    assert made["metadata"]["uid"]


@in_process_only
async def test_pods_are_bound_at_once_and_each_conflict_is_reported(cluster: Cluster) -> None:
    for name in ("a", "b"):
        await cluster.client.create(pod(name))
    await cluster.client.patch(POD, "b", {"status": {"nominatedNodeName": "n2"}}, subresource="status")
    before = (await cluster.client.get(POD, "a"))["metadata"]["managedFields"]
    result = await bind(cluster.client, binding("a", "n1"), binding("b", "n1"), binding("gone", "n1"))
    assert result == ["", "", 'pods "gone" not found']
    assert "already assigned to node" in (await bind(cluster.client, binding("a", "n2")))[0]
    first, second = [await cluster.client.get(POD, name) for name in ("a", "b")]
    assert [obj["spec"]["nodeName"] for obj in (first, second)] == ["n1", "n1"]
    assert first["metadata"]["managedFields"] == before, "as in Kubernetes, a binding has no field manager"
    assert "nominatedNodeName" not in second["status"]
    [condition] = first["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")


@in_process_only
async def test_a_user_who_may_not_create_all_of_them_has_to_ask_for_each(cluster: Cluster) -> None:
    await cluster.client.create(pod("a"))
    mallory = cluster.client_as("mallory")
    assert await mallory.create_many(POD, [binding("a", "n1")], namespace="default", subresource="binding") is None
    assert "nodeName" not in (await cluster.client.get(POD, "a"))["spec"]


@in_process_only
async def test_a_fault_rule_sees_every_single_request(cluster: Cluster) -> None:
    cluster.faults.error(resource="events")
    assert await cluster.client.create_many("v1/Event", [event("a")], namespace="default") is None
    with pytest.raises(errors.InternalError):
        await cluster.client.create(event("a"))


@pytest.mark.parametrize("cluster", ["over http"], indirect=True)
async def test_over_http_each_object_needs_its_own_request(cluster: Cluster) -> None:
    assert await cluster.client.create_many("v1/Event", [event("a")], namespace="default") is None


def condition(name: str, type: str, **metadata: str) -> Object:
    patch = {"conditions": [{"type": type, "status": "True"}]}
    return {"metadata": {"name": name, **metadata}, "status": patch}


@in_process_only
async def test_each_patch_of_a_batch_merges_or_has_its_own_error(cluster: Cluster) -> None:
    for name in ("a", "b"):
        await cluster.client.create(pod(name))
    await cluster.client.patch(
        POD, "a", condition("a", "example.com/one"), form="strategic", subresource="status", namespace="default"
    )
    patches = [condition("a", "example.com/two"), condition("b", "Ready", uid="another"), condition("gone", "Ready")]
    result = await cluster.client.patch_many(POD, patches, namespace="default", subresource="status")
    assert result is not None
    assert [type(error).__name__ for error in result] == ["NoneType", "Invalid", "NotFound"]
    changed = await cluster.client.get(POD, "a")
    assert {condition["type"] for condition in changed["status"]["conditions"]} == {
        "example.com/one",
        "example.com/two",
    }
    assert {entry["subresource"] for entry in changed["metadata"]["managedFields"] if "subresource" in entry} == {
        "status"
    }
    assert not (await cluster.client.get(POD, "b"))["status"].get("conditions")


@in_process_only
async def test_each_object_of_a_batch_is_deleted_marked_or_has_its_own_error(cluster: Cluster) -> None:
    uids = {}
    for name in ("a", "b", "c"):
        made = pod(name)
        if name == "b":
            made["metadata"]["finalizers"] = ["example.com/held"]
        uids[name] = (await cluster.client.create(made))["metadata"]["uid"]
    result = await cluster.client.delete_many(POD, {**uids, "c": "another", "gone": "x"}, namespace="default")
    assert result is not None
    assert [type(error).__name__ for error in result] == ["NoneType", "NoneType", "Conflict", "NotFound"]
    left = {obj["metadata"]["name"]: obj for obj in await cluster.client.list(POD, namespace="default")}
    assert set(left) == {"b", "c"}
    assert "deletionTimestamp" in left["b"]["metadata"]
    assert "deletionTimestamp" not in left["c"]["metadata"]


def autoscaler(name: str) -> Object:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": AUTOSCALER.rpartition("/")[2],
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"scaleTargetRef": target, "maxReplicas": 3},
    }


def with_status(made: Object) -> Object:
    condition = {"type": "AbleToScale", "status": "True", "reason": "Tested", "message": "m"}
    condition["lastTransitionTime"] = "2026-01-02T03:04:05Z"
    usage = {"averageUtilization": 50, "averageValue": "50m"}
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "current": usage}}]
    status = {"currentReplicas": 1, "desiredReplicas": 2, "conditions": [condition], "currentMetrics": metrics}
    return {**made, "spec": {**made["spec"], "maxReplicas": 99}, "status": status}


@in_process_only
async def test_each_replacement_of_a_batch_is_stored_or_has_its_own_error(cluster: Cluster) -> None:
    made = [await cluster.client.create(autoscaler(name)) for name in ("a", "b", "c")]
    single = await cluster.client.update_status(with_status(made[1]))
    await cluster.client.patch(AUTOSCALER, "c", {"metadata": {"labels": {"by": "another"}}}, namespace="default")
    gone = with_status({**made[0], "metadata": {**made[0]["metadata"], "name": "gone"}})
    batch = [with_status(made[0]), with_status(made[2]), gone]
    result = await cluster.client.update_many(AUTOSCALER, batch, namespace="default", subresource="status")
    assert result is not None
    assert [type(error).__name__ for error in result] == ["NoneType", "Conflict", "NotFound"]
    changed = await cluster.client.get(AUTOSCALER, "a", namespace="default")
    assert (changed["status"], changed["spec"]["maxReplicas"]) == (single["status"], 3)
    owners = [obj["metadata"]["managedFields"] for obj in (changed, single)]
    assert owners[0] == owners[1], "a batch has the field managers of single requests"
    left = await cluster.client.get(AUTOSCALER, "c", namespace="default")
    assert "conditions" not in left["status"], "a conflict changes nothing"
