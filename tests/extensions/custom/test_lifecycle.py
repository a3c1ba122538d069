"""A definition is removed after its objects, and its status reports a schema that is not structural."""

from __future__ import annotations

import asyncio

from tests.extensions.definitions import BOATS, DEFINITIONS, Cluster, boat, boats, condition, definition
from tests.server.in_process import control_plane

from pinnace.cluster.settings import Settings
from pinnace.store.memory import MemoryStore

TARGET = f"{DEFINITIONS}/boats.example.com"
ENTITLED = {"annotations": {"api-approved.kubernetes.io": "https://example.com/approved"}}


async def test_a_definition_waits_for_objects_that_finalizers_hold(cluster: Cluster) -> None:
    await cluster.define(boats())
    held = boat(size=1)
    held["metadata"]["finalizers"] = ["example.com/anchor"]
    await cluster.made(BOATS, held)
    await cluster.made(BOATS, boat("free"))
    watch = await cluster.watch(f"{BOATS}?watch=true")
    await watch.take(2)
    deleted = await cluster.delete(TARGET)
    assert deleted.json["kind"] == "CustomResourceDefinition"
    assert condition(deleted.json["status"], "Terminating")
    message = await cluster.status_of(
        "boats.example.com",
        lambda status: (condition(status, "Terminating") or {}).get("reason") == "InstanceDeletionInProgress",
    )
    assert message["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    await cluster.gone(f"{BOATS}/free")
    async with asyncio.timeout(60):  # The deletions go on side by side.
        while "deletionTimestamp" not in (await cluster.get(f"{BOATS}/pinnace")).json["metadata"]:
            await asyncio.sleep(0)
    refused = await cluster.post(BOATS, boat("late"))
    assert refused.status == 403
    assert "create not allowed while custom resource definition is terminating" in refused.message
    verbs = (await cluster.get("/apis/example.com/v1")).json["resources"][0]["verbs"]
    assert verbs == ["delete", "deletecollection", "get", "list", "watch"]
    assert (await cluster.patch(f"{BOATS}/pinnace", {"metadata": {"finalizers": None}})).status == 200
    await cluster.gone(TARGET)
    seen = await watch.rest()
    assert [event["type"] for event in seen if event["object"]["metadata"]["name"] == "free"] == ["DELETED"]
    assert (await cluster.get(BOATS)).status == 404


async def test_a_kind_can_be_defined_again_with_nothing_left_of_before(cluster: Cluster) -> None:
    await cluster.define(boats())
    await cluster.made(BOATS, boat(size=1))
    await cluster.delete(TARGET)
    await cluster.gone(TARGET)
    await cluster.define(boats())
    assert (await cluster.get(BOATS)).names == []


async def test_a_definition_of_one_of_kubernetes_own_groups_needs_approval(cluster: Cluster) -> None:
    entitled = definition("barges", "Barge", group="example.k8s.io")
    refused = await cluster.post(DEFINITIONS, entitled)
    assert refused.status == 422 and "metadata.annotations[api-approved.kubernetes.io]: Required" in refused.message
    message = await cluster.define(definition("barges", "Barge", group="example.k8s.io", metadata=ENTITLED))
    assert condition(message["status"], "KubernetesAPIApprovalPolicyConformant")


async def test_a_built_in_kind_is_not_replaced(cluster: Cluster) -> None:
    taken = definition("ingresses", "Ingress", group="networking.k8s.io", metadata=ENTITLED)
    await cluster.define(taken)
    table = (await cluster.get("/apis/networking.k8s.io/v1/ingresses")).json
    assert table["kind"] == "IngressList"
    resources = (await cluster.get("/apis/networking.k8s.io/v1")).json["resources"]
    assert [row["name"] for row in resources if row["name"] == "ingresses"] == ["ingresses"]


async def test_kinds_are_served_again_after_a_restart() -> None:
    store = MemoryStore()
    async with control_plane(store) as first:
        await first.made(DEFINITIONS, boats())
        await first.made(BOATS, boat(size=4))
        kept = {record.key: record.value for record in (await store.list("")).records}
    store = MemoryStore()
    for key, value in kept.items():
        await store.put(key, value, expected=0)
    async with control_plane(store, settings=Settings(), born=False) as second:
        assert (await second.get(f"{BOATS}/pinnace")).json["spec"] == {"size": 4}
