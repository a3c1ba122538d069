"""The scheduler binds pods to nodes that fit, spreads them, and says why a pod fits nowhere."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.node.simulated.pods import pod

from pinnace.model.objects import Object
from pinnace.node.simulated.machines import NodeShape
from pinnace.scheduler.state.resources import requests_of
from pinnace.testing.cluster import Cluster

NO_CLAIMS = "no new claims to deallocate"
NO_VICTIMS = f"{NO_CLAIMS}, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


async def node_of(cluster: Cluster, name: str) -> str:
    obj: str = (await cluster.client.get("v1/Pod", name))["spec"].get("nodeName", "")
    return obj


def scheduled(obj: Object) -> Object:
    current: Object = next(
        condition for condition in obj["status"]["conditions"] if condition["type"] == "PodScheduled"
    )
    return current


async def test_pods_are_spread_over_the_nodes(cluster: Cluster) -> None:
    await cluster.add_nodes(4)
    for number in range(40):
        await cluster.client.create(pod(f"web-{number}", cpu="1"))
    await cluster.settle()
    pods = await cluster.client.list("v1/Pod", namespace="default")
    assert Counter(pod["spec"]["nodeName"] for pod in pods) == dict.fromkeys([f"node-{n}" for n in range(4)], 10)
    events = await cluster.client.list("v1/Event", namespace="default", fields="involvedObject.kind=Pod")
    assert {event["reason"] for event in events} == {"Scheduled"}
    assert {event["source"]["component"] for event in events} == {"default-scheduler"}


def affinity(*terms: Object) -> Object:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"nodeSelector": {"zone": "b"}}, "node-1", id="node selector"),
        pytest.param(
            {"affinity": affinity({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b", "c"]}]})},
            "node-1",
            id="affinity In",
        ),
        pytest.param(
            {"affinity": affinity({"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["5"]}]})},
            "node-1",
            id="affinity Gt",
        ),
        pytest.param(
            {"affinity": affinity({"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]})},
            "node-0",
            id="affinity DoesNotExist",
        ),
        pytest.param(
            {"affinity": affinity({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]})},
            "node-1",
            id="affinity by name",
        ),
        pytest.param({"affinity": affinity({"matchExpressions": []})}, "", id="empty term"),
        pytest.param({"nodeSelector": {"zone": "x"}}, "", id="no such zone"),
        pytest.param({"nodeSelector": {"kubernetes.io/hostname": "node-2"}}, "", id="taint not tolerated"),
        pytest.param(
            {
                "nodeSelector": {"kubernetes.io/hostname": "node-2"},
                "tolerations": [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}],
            },
            "node-2",
            id="taint tolerated",
        ),
        pytest.param(
            {"nodeSelector": {"kubernetes.io/hostname": "node-2"}, "tolerations": [{"operator": "Exists"}]},
            "node-2",
            id="everything tolerated",
        ),
        pytest.param({"schedulerName": "other"}, "", id="another scheduler's pod"),
        pytest.param({"schedulingGates": [{"name": "example.com/wait"}]}, "", id="gated"),
    ],
)
async def test_a_pod_goes_where_its_constraints_allow(cluster: Cluster, spec: dict[str, Any], expected: str) -> None:
    await cluster.add_nodes(1)
    await cluster.add_nodes(1, shape=NodeShape(labels={"zone": "b", "size": "10"}))
    await cluster.add_nodes(
        1, shape=NodeShape(labels={"zone": "z"}, taints=({"key": "dedicated", "value": "db", "effect": "NoSchedule"},))
    )
    await cluster.client.create(pod("web", **spec))
    await cluster.settle()
    assert await node_of(cluster, "web") == expected


async def test_a_pod_in_a_cluster_without_nodes_says_so_and_is_bound_to_the_first_node(cluster: Cluster) -> None:
    await cluster.add_nodes(0)  # The scheduler alone.
    await cluster.client.create(pod("lonely"))
    await cluster.settle()
    waiting = scheduled(await cluster.client.get("v1/Pod", "lonely"))
    assert (waiting["status"], waiting["reason"]) == ("False", "Unschedulable")
    assert waiting["message"] == "no nodes available to schedule pods"
    events = await cluster.client.list("v1/Event", namespace="default", fields="reason=FailedScheduling")
    assert [event["message"] for event in events] == ["no nodes available to schedule pods"]
    await cluster.add_nodes(1)
    await cluster.advance(2)  # The back-off of a pod that was refused once.
    assert (await cluster.client.get("v1/Pod", "lonely"))["spec"]["nodeName"] == "node-0"


async def test_a_pod_that_fits_nowhere_says_why_and_is_bound_when_there_is_room(cluster: Cluster) -> None:
    await cluster.add_nodes(1, shape=NodeShape(cpu="1"))
    await cluster.client.create(pod("first", cpu="700m"))
    await cluster.settle()
    for name in ("second", "third"):
        await cluster.client.create(pod(name, cpu="500m"))
    await cluster.settle()
    waiting = scheduled(await cluster.client.get("v1/Pod", "second"))
    assert (waiting["status"], waiting["reason"]) == ("False", "Unschedulable")
    assert waiting["message"] == f"0/1 nodes are available: 1 Insufficient cpu. {NO_VICTIMS}"
    events = await cluster.client.list("v1/Event", namespace="default", fields="involvedObject.kind=Pod")
    assert Counter(event["reason"] for event in events) == {"Scheduled": 1, "FailedScheduling": 2}
    await cluster.client.delete("v1/Pod", "first")
    await cluster.settle()
    assert await node_of(cluster, "second") == await node_of(cluster, "third") == "node-0"


async def test_a_late_report_does_not_hide_that_the_pod_was_bound(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    with cluster.faults.latency(30, verb="patch", resource="pods/status", user="system:kube-scheduler", times=1):
        await cluster.client.create(pod("web", nodeSelector={"zone": "x"}))
        await cluster.clock.advance(1)
        await cluster.client.patch("v1/Node", "node-0", {"metadata": {"labels": {"zone": "x"}}})
        await cluster.clock.advance(5)
        await cluster.clock.advance(30)
    await cluster.settle()
    web = await cluster.client.get("v1/Pod", "web")
    assert (web["spec"]["nodeName"], scheduled(web)["status"]) == ("node-0", "True")


async def test_a_finished_pod_makes_room(cluster: Cluster) -> None:
    await cluster.add_nodes(1, shape=NodeShape(cpu="1"))
    await cluster.client.create(pod("first", cpu="1"))
    await cluster.settle()
    await cluster.client.create(pod("second", cpu="1"))
    await cluster.settle()
    await cluster.client.patch("v1/Pod", "first", {"status": {"phase": "Succeeded"}}, subresource="status")
    await cluster.settle()
    assert await node_of(cluster, "second") == "node-0"


async def test_a_node_runs_no_more_pods_than_it_says(cluster: Cluster) -> None:
    await cluster.add_nodes(1, shape=NodeShape(pods="3"))
    for number in range(5):
        await cluster.client.create(pod(f"web-{number}"))
    await cluster.settle()
    pods = await cluster.client.list("v1/Pod", namespace="default")
    waiting = [pod for pod in pods if not pod["spec"].get("nodeName")]
    assert len(waiting) == 2
    assert scheduled(waiting[0])["message"] == f"0/1 nodes are available: 1 Too many pods. {NO_VICTIMS}"
    await cluster.add_nodes(1)
    assert all([await node_of(cluster, obj["metadata"]["name"]) == "node-1" for obj in waiting])


async def test_a_cordoned_node_gets_no_pods_until_it_is_uncordoned(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    await cluster.client.patch("v1/Node", "node-0", {"spec": {"unschedulable": True}})
    await cluster.settle()
    await cluster.client.create(pod("web"))
    await cluster.settle()
    assert await node_of(cluster, "web") == ""
    await cluster.client.patch("v1/Node", "node-0", {"spec": {"unschedulable": None}})
    await cluster.settle()
    assert await node_of(cluster, "web") == "node-0"


async def test_pods_wait_for_the_first_node(cluster: Cluster) -> None:
    await cluster.add_nodes(0)
    await cluster.client.create(pod("web"))
    await cluster.settle()
    message = scheduled(await cluster.client.get("v1/Pod", "web"))["message"]
    assert message == "no nodes available to schedule pods"
    await cluster.add_nodes(1)
    assert await node_of(cluster, "web") == "node-0"


def container(cpu: str, **more: Any) -> Object:
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}


@pytest.mark.parametrize(
    ("spec", "milli"),
    [
        pytest.param({"containers": [container("1"), container("500m")]}, 1500, id="sum"),
        pytest.param({"containers": [container("1")], "initContainers": [container("3")]}, 3000, id="init is larger"),
        pytest.param(
            {"containers": [container("1")], "initContainers": [container("1", restartPolicy="Always")]},
            2000,
            id="sidecar",
        ),
        pytest.param(
            {
                "containers": [container("1")],
                "initContainers": [container("1", restartPolicy="Always"), container("2")],
            },
            3000,
            id="init beside a sidecar",
        ),
        pytest.param({"containers": [container("1")], "overhead": {"cpu": "250m"}}, 1250, id="overhead"),
        pytest.param(
            {"containers": [container("1")], "resources": {"requests": {"cpu": "4"}}}, 4000, id="requests of the pod"
        ),
    ],
)
def test_requests_are_counted_as_kubernetes_counts_them(spec: Any, milli: int) -> None:
    assert requests_of({"metadata": {"name": "p"}, "spec": spec})["cpu"] == milli


async def test_pods_equal_to_those_that_run_already_go_to_any_node(cluster: Cluster) -> None:
    await cluster.add_nodes(2, shape=NodeShape(pods="2"))
    await cluster.client.create(pod("bound", nodeName="node-0"))
    await cluster.settle()
    for number in range(3):
        await cluster.client.create(pod(f"web-{number}"))
    await cluster.settle()
    assert Counter([await node_of(cluster, f"web-{number}") for number in range(3)]) == {"node-0": 1, "node-1": 2}


async def test_pods_of_a_replica_set_are_spread_over_zones_by_default(cluster: Cluster) -> None:
    for zone in ("a", "b", "c"):
        await cluster.add_nodes(3, shape=NodeShape(labels={"topology.kubernetes.io/zone": zone}))
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod("web")["spec"]}
    spec = {"replicas": 9, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    await cluster.client.create(
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"}, "spec": spec},
        namespace="default",
    )
    await cluster.settle()
    pods = await cluster.client.list("v1/Pod", namespace="default")
    zones = Counter(int(pod["spec"]["nodeName"].removeprefix("node-")) // 3 for pod in pods)
    assert zones == {0: 3, 1: 3, 2: 3}
