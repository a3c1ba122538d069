"""Custom schedulers in a cluster: every moment, errors of functions, permissions, and questions from Python."""

from __future__ import annotations

from typing import Any

import pytest

from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.sdk.installation.manifests import DeploymentOptions
from pinnace.sdk.scheduling import NodeView, Pod, Scheduler, Wait, copy_cluster, explain, simulate
from pinnace.sdk.scheduling.manifests import scheduler_roles, scheduler_workload
from pinnace.testing.cluster import Cluster


def pod(name: str, scheduler: str = "my-scheduler", **metadata: object) -> Object:
    spec = {"schedulerName": scheduler, "containers": [{"name": "c", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


async def node_of(cluster: Cluster, name: str) -> str:
    obj = await cluster.client.get("v1/Pod", name)
    return str(obj["spec"].get("nodeName", ""))


async def condition_of(cluster: Cluster, name: str) -> Object:
    conditions = (await cluster.client.get("v1/Pod", name))["status"].get("conditions") or []
    return next((condition for condition in conditions if condition["type"] == "PodScheduled"), {})


async def test_every_moment_is_called_in_the_order_of_the_framework(cluster: Cluster) -> None:
    scheduler = Scheduler("my-scheduler")
    calls: list[str] = []

    @scheduler.pre_enqueue
    def enqueue(pod: Pod) -> None:
        calls.append("pre_enqueue")

    @scheduler.pre_filter
    def prepare(pod: Pod) -> None:
        calls.append("pre_filter")

    @scheduler.filter
    def fits(pod: Pod, node: NodeView) -> None:
        calls.append("filter")

    @scheduler.score
    def prefer(pod: Pod, node: NodeView) -> int:
        calls.append("score")
        return 1

    @scheduler.reserve
    def take(pod: Pod, node: str) -> None:
        calls.append("reserve")

    @scheduler.permit
    def allow(pod: Pod, node: str) -> None:
        calls.append("permit")

    @scheduler.pre_bind
    async def before(pod: Pod, node: str) -> None:
        calls.append("pre_bind")

    @scheduler.bind
    async def bind(pod: Pod, node: str) -> bool:
        calls.append("bind")
        return False

    @scheduler.post_bind
    def after(pod: Pod, node: str) -> None:
        calls.append("post_bind")

    await cluster.add_nodes(2)
    await cluster.run(scheduler)
    await cluster.client.create(pod("p"))
    await cluster.settle()
    assert await node_of(cluster, "p")
    order = ["pre_enqueue", "pre_filter", "filter", "score", "reserve", "permit", "pre_bind", "bind", "post_bind"]
    assert list(dict.fromkeys(calls)) == order


async def test_a_function_that_raises_fails_its_pod_by_name_and_no_other(cluster: Cluster) -> None:
    scheduler = Scheduler("my-scheduler")

    @scheduler.filter
    def fragile(pod: Pod, node: NodeView) -> None:
        if pod.name == "bad":
            raise RuntimeError("no idea")

    await cluster.add_nodes(1)
    await cluster.run(scheduler)
    await cluster.client.create(pod("bad"))
    await cluster.client.create(pod("good"))
    await cluster.settle()
    assert await node_of(cluster, "good") == "node-0"
    condition = await condition_of(cluster, "bad")
    assert (condition["reason"], condition["status"]) == ("SchedulerError", "False")
    assert 'running "fragile" filter plugin' in condition["message"]


async def test_a_refused_reservation_is_given_back(cluster: Cluster) -> None:
    scheduler = Scheduler("my-scheduler")
    given_back: list[str] = []

    @scheduler.reserve
    def take(pod: Pod, node: str) -> str:
        return "no licence is free"

    @scheduler.unreserve
    def give_back(pod: Pod, node: str) -> None:
        given_back.append(node)

    await cluster.add_nodes(1)
    await cluster.run(scheduler)
    await cluster.client.create(pod("p"))
    await cluster.settle()
    assert given_back[:1] == ["node-0"]
    assert "no licence is free" in (await condition_of(cluster, "p"))["message"]


async def test_a_pod_that_waits_for_a_permit_is_refused_when_its_time_is_over(cluster: Cluster) -> None:
    scheduler = Scheduler("my-scheduler")

    @scheduler.permit
    def later(pod: Pod, node: str) -> Wait:
        return Wait(30)

    await cluster.add_nodes(1)
    await cluster.run(scheduler)
    await cluster.client.create(pod("p"))
    await cluster.settle()
    assert await node_of(cluster, "p") == ""
    await cluster.advance(31)
    assert "timed out after waiting 30s at plugin later" in (await condition_of(cluster, "p"))["message"]


async def test_the_permissions_of_the_manifests_are_enough(cluster: Cluster) -> None:
    scheduler = Scheduler("my-scheduler")
    place = DeploymentOptions(namespace="default", image="my-scheduler:1", file="my_scheduler.py")
    for obj in [*scheduler_roles("my-scheduler", place), *scheduler_workload("my-scheduler", place)]:
        await cluster.client.create(obj)
    account = cluster.client_as("system:serviceaccount:default:my-scheduler", "system:serviceaccounts")
    await cluster.add_nodes(1)
    await cluster.run(scheduler, client=account, leader_election=True)
    await cluster.client.create(pod("p"))
    await cluster.settle()
    assert await node_of(cluster, "p") == "node-0"
    with pytest.raises(errors.Forbidden):
        await account.list("v1/Secret")


async def test_a_copy_of_the_cluster_answers_without_writing(cluster: Cluster) -> None:
    scheduler = Scheduler("my-scheduler")

    @scheduler.filter
    def even(pod: Pod, node: NodeView) -> str | None:
        return None if int(node.name.removeprefix("node-")) % 2 == 0 else "odd"

    await cluster.add_nodes(2)
    created: Any = await cluster.client.create(pod("p"))
    state = await copy_cluster(cluster.client)
    report = explain(created, state, scheduler.profile())
    assert report.node == "node-0"
    assert [(node.name, node.reasons) for node in report.nodes if node.plugin] == [("node-1", ("odd",))]
    [outcome] = simulate([created], state, {scheduler.name: scheduler.profile()})
    assert outcome.node == "node-0"
    assert await node_of(cluster, "p") == ""
