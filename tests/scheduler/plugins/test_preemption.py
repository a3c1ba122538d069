"""Pods of a high priority take the place of others: victims are evicted together, and each pod is tried twice."""

from __future__ import annotations

from collections import Counter

from tests.node.simulated.pods import pod

from pinnace.model.objects import Object
from pinnace.testing.cluster import Cluster

NODES = 6


async def fill(cluster: Cluster, *, grace: int = 0) -> None:
    """Create nodes of 4 CPUs without a kubelet, full of pods of low priority, and two priority classes.

    Without a kubelet a victim with a grace period stays until the test removes it.
    """
    for name, value in (("high", 10), ("higher", 20)):
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        await cluster.client.create({**kind, "metadata": {"name": name}, "value": value})
    for number in range(NODES):
        await create_node(cluster, f"node-{number}")
    for number in range(4 * NODES):
        await cluster.client.create(pod(f"low-{number}", cpu="900m", terminationGracePeriodSeconds=grace))
    await cluster.settle()


async def create_node(cluster: Cluster, name: str) -> None:
    await cluster.client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    amounts = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"status": {"allocatable": amounts, "conditions": conditions}}
    await cluster.client.patch("v1/Node", name, status, subresource="status")


async def leaving(cluster: Cluster) -> list[Object]:
    return [pod for pod in (await pods(cluster, "low")).values() if "deletionTimestamp" in pod["metadata"]]


async def remove(cluster: Cluster, victims: list[Object]) -> None:
    """Remove victims as their kubelet would at the end of the grace period."""
    for victim in victims:
        await cluster.client.delete("v1/Pod", victim["metadata"]["name"], namespace="default", grace_seconds=0)
    await cluster.settle()


def high(name: str, *, cpu: str = "3", priority: str = "high") -> Object:
    return pod(name, cpu=cpu, priorityClassName=priority)


async def pods(cluster: Cluster, prefix: str) -> dict[str, Object]:
    listed = await cluster.client.list("v1/Pod", namespace="default")
    return {obj["metadata"]["name"]: obj for obj in listed if obj["metadata"]["name"].startswith(prefix)}


async def events(cluster: Cluster, reason: str) -> list[Object]:
    return await cluster.client.list("v1/Event", namespace="default", fields=f"reason={reason}")


async def failures(cluster: Cluster) -> list[Object]:
    """Return the events about failed attempts of pods of high priority."""
    result = await events(cluster, "FailedScheduling")
    return [event for event in result if event["involvedObject"]["name"].startswith("high")]


async def test_each_pod_takes_the_place_of_three_others_and_is_tried_twice(cluster: Cluster) -> None:
    await fill(cluster)
    for number in range(NODES):
        await cluster.client.create(high(f"high-{number}"))
    await cluster.settle()
    placed = await pods(cluster, "high")
    assert Counter(obj["spec"]["nodeName"] for obj in placed.values()) == {f"node-{n}": 1 for n in range(NODES)}
    assert all("nominatedNodeName" not in obj["status"] for obj in placed.values())
    assert len(await pods(cluster, "low")) == NODES, "no pod has left without need"
    preempted = await events(cluster, "Preempted")
    assert len(preempted) == 3 * NODES
    uid, node = placed["high-0"]["metadata"]["uid"], placed["high-0"]["spec"]["nodeName"]
    assert f"Preempted by pod {uid} on node {node}" in {event["message"] for event in preempted}
    failed = await failures(cluster)
    assert Counter(event["involvedObject"]["name"] for event in failed) == dict.fromkeys(placed, 1)
    assert {event["count"] for event in failed} == {1}, "the victims of others woke no pod"


async def test_victims_learn_why_and_the_pod_waits_for_the_last_of_them(cluster: Cluster) -> None:
    await fill(cluster, grace=30)
    await cluster.client.create(high("high"))
    await cluster.settle()
    victims = await leaving(cluster)
    assert len(victims) == 3
    for victim in victims:
        [condition] = [some for some in victim["status"]["conditions"] if some["type"] == "DisruptionTarget"]
        assert condition["reason"] == "PreemptionByScheduler"
        assert condition["message"] == "default-scheduler: preempting to accommodate a higher priority pod"
        assert condition["observedGeneration"] == 1
    [node] = {victim["spec"]["nodeName"] for victim in victims}
    assert (await pods(cluster, "high"))["high"]["status"]["nominatedNodeName"] == node
    for victim in victims:
        assert "nodeName" not in (await pods(cluster, "high"))["high"]["spec"]
        await remove(cluster, [victim])
    assert (await pods(cluster, "high"))["high"]["spec"]["nodeName"] == node
    assert [failure["count"] for failure in await failures(cluster)] == [1], "no victim but the last has woken it"


async def test_a_pod_whose_victims_cannot_be_evicted_is_decided_about_again(cluster: Cluster) -> None:
    await fill(cluster)
    fault = cluster.faults.error(verb="delete", resource="pods", user="system:kube-scheduler", times=1)
    await cluster.client.create(high("high"))
    await cluster.settle()
    await cluster.advance(30)
    assert fault.count == 1
    assert (await pods(cluster, "high"))["high"]["spec"].get("nodeName")


async def test_a_higher_pod_takes_the_node_that_another_was_nominated_for(cluster: Cluster) -> None:
    await fill(cluster, grace=30)
    for other in range(1, NODES):
        await cluster.client.patch("v1/Node", f"node-{other}", {"spec": {"unschedulable": True}})
    await cluster.client.create(high("high-first"))
    await cluster.settle()
    await cluster.client.create(high("high-second", priority="higher"))
    await cluster.settle()
    await remove(cluster, await leaving(cluster))
    result = await pods(cluster, "high")
    assert result["high-second"]["spec"]["nodeName"] == "node-0"
    assert "nodeName" not in result["high-first"]["spec"]
    assert "nominatedNodeName" not in result["high-first"]["status"]


async def test_a_pod_that_waits_for_victims_goes_to_a_node_that_comes(cluster: Cluster) -> None:
    await fill(cluster, grace=30)
    await cluster.client.create(high("high"))
    await cluster.settle()
    assert "nodeName" not in (await pods(cluster, "high"))["high"]["spec"]
    await create_node(cluster, "new")
    await cluster.advance(2)
    assert (await pods(cluster, "high"))["high"]["spec"]["nodeName"] == "new"


async def test_a_place_that_the_victims_of_another_pod_leave_is_used_by_a_pod_that_waits(cluster: Cluster) -> None:
    await fill(cluster, grace=30)
    await cluster.client.create(high("high-large", cpu="2"))
    await cluster.settle()
    of_large = await leaving(cluster)
    await cluster.client.create(high("high-small", cpu="500m"))
    await cluster.settle()
    of_small = [
        obj for obj in await leaving(cluster) if obj["metadata"]["uid"] not in {v["metadata"]["uid"] for v in of_large}
    ]
    assert len(of_large) == 2
    assert len(of_small) == 1
    node = of_large[0]["spec"]["nodeName"]
    third = next(
        pod
        for pod in (await pods(cluster, "low")).values()
        if pod["spec"]["nodeName"] == node and pod not in of_large and pod not in of_small
    )
    await cluster.client.delete("v1/Pod", third["metadata"]["name"], namespace="default", grace_seconds=0)
    await remove(cluster, of_large)
    await cluster.advance(2)
    result = await pods(cluster, "high")
    assert result["high-large"]["spec"]["nodeName"] == of_large[0]["spec"]["nodeName"]
    assert result["high-small"]["spec"]["nodeName"] == of_large[0]["spec"]["nodeName"]
