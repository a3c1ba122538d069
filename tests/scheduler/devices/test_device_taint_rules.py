"""Administrators taint devices by rules: their pods leave, others go elsewhere, and a condition reports it."""

from __future__ import annotations

import pytest
from tests.scheduler.devices.test_devices import DRIVER, RESOURCE, bound, claim, device_class, device_slice, pod
from tests.testing.both_ways import cluster

from pinnace.model.objects import Object
from pinnace.testing.cluster import Cluster

__all__ = ["cluster"]
RULE = f"{RESOURCE}/DeviceTaintRule"
_STATUS_SECONDS = 11
"""A little more than the time between two reports about a rule."""


def rule(effect: str = "NoExecute", **selector: str) -> Object:
    taint = {"key": "broken", "value": "yes", "effect": effect}
    spec = {"deviceSelector": selector or {"driver": DRIVER}, "taint": taint}
    return {"apiVersion": RESOURCE, "kind": "DeviceTaintRule", "metadata": {"name": "r"}, "spec": spec}


async def report(cluster: Cluster) -> tuple[str, str, str]:
    """Return status, reason and message of the condition of the rule."""
    await cluster.settle()
    obj = await cluster.client.get(RULE, "r")
    (condition,) = obj["status"]["conditions"]
    assert condition["type"] == "EvictionInProgress"
    assert condition["observedGeneration"] == obj["metadata"]["generation"]
    return condition["status"], condition["reason"], condition["message"]


@pytest.fixture
async def running(cluster: Cluster) -> Cluster:
    """Two nodes with a device each, and a pod on each of them."""
    await cluster.add_nodes(2)
    await cluster.client.create(device_class())
    for node in ("node-0", "node-1"):
        await cluster.client.create(device_slice(node, "10Gi"))
    for name in ("a", "b"):
        await cluster.client.create(claim(name))
        await cluster.client.create(pod(name, name))
        await cluster.settle()
    return cluster


async def test_a_rule_evicts_the_users_of_the_devices_that_it_selects(running: Cluster) -> None:
    victim = await running.client.get("v1/Pod", "a")
    await running.client.create(rule(pool=victim["spec"]["nodeName"]))
    await running.settle()
    assert await running.client.get_or_none("v1/Pod", "a") is None
    assert await bound(running, "b")
    await running.advance(_STATUS_SECONDS)
    assert await report(running) == ("False", "Completed", "1 pod evicted since starting the controller.")


async def test_a_rule_waits_for_the_end_of_a_toleration(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    wanted = claim("a")
    toleration = {"key": "broken", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
    wanted["spec"]["devices"]["requests"][0]["exactly"]["tolerations"] = [toleration]
    for obj in (device_class(), device_slice("node-0", "10Gi"), wanted, pod("a", "a")):
        await cluster.client.create(obj)
    await cluster.settle()
    await cluster.client.create(rule())
    assert await report(cluster) == ("True", "PodsPendingEviction", "1 pod needs to be evicted in 1 namespace.")
    await cluster.advance(50)
    assert await bound(cluster, "a")
    await cluster.advance(11)
    assert await cluster.client.get_or_none("v1/Pod", "a") is None


async def test_a_rule_that_is_deleted_in_time_spares_the_pod(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    wanted = claim("a")
    toleration = {"key": "broken", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
    wanted["spec"]["devices"]["requests"][0]["exactly"]["tolerations"] = [toleration]
    for obj in (device_class(), device_slice("node-0", "10Gi"), wanted, pod("a", "a"), rule()):
        await cluster.client.create(obj)
    await cluster.settle()
    await cluster.client.delete(RULE, "r")
    await cluster.settle()
    await cluster.advance(120)
    assert await bound(cluster, "a")
    events = await cluster.client.list("v1/Event", namespace="default", fields="reason=DeviceTaintManagerEviction")
    assert [event["message"] for event in events] == ["Cancelling deletion"]


async def test_a_rule_without_effect_reports_what_it_would_do(running: Cluster) -> None:
    await running.client.create(rule("None"))
    assert await report(running) == (
        "False",
        "NoEffect",
        "2 published devices selected. 2 allocated devices selected. 2 pods would be evicted in 1 namespace if the "
        "effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an "
        "update.",
    )
    assert [await bound(running, name) for name in ("a", "b")] == [True, True]
    await running.client.patch(RULE, "r", {"spec": {"taint": {"effect": "NoExecute"}}})
    await running.settle()
    assert [await running.client.get_or_none("v1/Pod", name) for name in ("a", "b")] == [None, None]


async def test_a_rule_keeps_pods_from_the_devices_that_it_selects_until_it_is_deleted(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    for obj in (device_class(), device_slice("node-0", "10Gi"), rule("NoSchedule"), claim("a"), pod("a", "a")):
        await cluster.client.create(obj)
    await cluster.settle()
    assert not await bound(cluster, "a")
    assert await report(cluster) == ("False", "OtherEffect", "Eviction only happens for the NoExecute effect.")
    await cluster.client.delete(RULE, "r")
    await cluster.settle()
    await cluster.advance(10)
    assert await bound(cluster, "a")
