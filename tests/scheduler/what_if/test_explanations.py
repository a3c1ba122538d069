"""Explanations of decisions, the smallest change that helps, and simulations on a copy."""

from __future__ import annotations

from typing import Any

import pytest

from pinnace.scheduler.configuration import build_profiles, default_configuration
from pinnace.scheduler.framework.plugin import Handle
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.what_if.copies import place
from pinnace.scheduler.what_if.explanation import SchedulingReport, explain
from pinnace.scheduler.what_if.simulation import NoProfile, simulate

ZONE = "topology.kubernetes.io/zone"
PROFILES = build_profiles(default_configuration(), Handle())


def node(name: str, cpu: str = "4", labels: Any | None = None, **spec: Any) -> Any:
    allocatable = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}
    return {"metadata": metadata, "spec": spec, "status": {"allocatable": allocatable}}


def pod(name: str = "p", cpu: str = "1", labels: Any | None = None, **spec: Any) -> Any:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": labels or {}}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}}


def cluster(nodes: list[Any], pods: list[Any] | None = None) -> ClusterState:
    state = ClusterState()
    for node in nodes:
        state.put_node(node)
    for node in pods or ():
        place(state, node)
    return state


def report(obj: Any, nodes: list[Any], pods: list[Any] | None = None) -> SchedulingReport:
    return explain(obj, cluster(nodes, pods), PROFILES["default-scheduler"])


TAINT = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
SPREAD = {
    "maxSkew": 1,
    "topologyKey": ZONE,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
}
WEB = {"app": "web"}
ANTI = {"labelSelector": {"matchLabels": WEB}, "topologyKey": "kubernetes.io/hostname"}
ANTI_AFFINITY = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [ANTI]}}
PORT = [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]}]


@pytest.mark.parametrize(
    ("obj", "nodes", "pods", "expected"),
    [
        (pod(cpu="1200m"), [node("a", "1")], [], ("a", "request 200m less cpu")),
        (pod(), [node("a", taints=[TAINT])], [], ("a", "add the toleration dedicated=db:NoSchedule")),
        (pod(), [node("a", unschedulable=True)], [], ("a", "uncordon a")),
        (
            pod(nodeSelector={"disk": "ssd"}),
            [node("a")],
            [],
            ("a", "remove the nodeSelector disk=ssd, or set this label on a"),
        ),
        (
            pod(labels=WEB, topologySpreadConstraints=[SPREAD]),
            [node("a", labels={ZONE: "za"}), node("b", "100m", labels={ZONE: "zb"})],
            [pod("x", labels=WEB, nodeName="a")],
            ("a", f"maxSkew 2 instead of 1 for {ZONE}, or one more zone with room"),
        ),
        (
            pod(labels=WEB, affinity=ANTI_AFFINITY),
            [node("a")],
            [pod("x", labels=WEB, nodeName="a")],
            ("a", "remove the required pod anti-affinity by kubernetes.io/hostname, or make it preferred"),
        ),
        (
            pod(containers=PORT),
            [node("a")],
            [pod("x", containers=PORT, nodeName="a")],
            ("a", "use another host port than 80/TCP"),
        ),
        (
            pod(cpu="3"),
            [node("a", "1", taints=[TAINT]), node("b", "2")],
            [],
            ("b", "request 1 less cpu"),
        ),
        (
            pod(cpu="1500m"),
            [node("a", "1", taints=[TAINT])],
            [],
            ("a", "add the toleration dedicated=db:NoSchedule, and request 500m less cpu"),
        ),
    ],
    ids=["cpu", "taint", "cordon", "selector", "spread", "anti-affinity", "port", "fewest changes", "two changes"],
)
def test_the_smallest_change_that_makes_a_pod_fit_is_found(
    obj: Any, nodes: list[Any], pods: list[Any], expected: tuple[str, str]
) -> None:
    result = report(obj, nodes, pods).smallest
    assert result is not None
    assert (result[0], str(result[1])) == expected


def test_refused_nodes_have_the_filter_and_its_reason() -> None:
    answer = report(pod(cpu="6"), [node("a", "1"), node("b", taints=[TAINT])])
    assert answer.node == ""
    assert answer.message.startswith("0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s).")
    assert {node.name: (node.plugin, node.reasons) for node in answer.nodes} == {
        "a": ("NodeResourcesFit", ("Insufficient cpu",)),
        "b": ("TaintToleration", ("node(s) had untolerated taint(s)",)),
    }


def test_nodes_that_fit_have_scores_by_plugin_and_the_best_is_first() -> None:
    answer = report(pod(), [node("small", "2"), node("large", "32"), node("tiny", "500m")])
    assert answer.node == "large"
    assert [node.name for node in answer.nodes] == ["large", "small", "tiny"]
    best = answer.nodes[0]
    assert best.total == sum(answer.weights[plugin] * score for plugin, score in best.scores.items())
    assert answer.smallest is None


def test_a_running_pod_of_the_same_template_does_not_pin_a_waiting_one() -> None:
    nodes = [node("a", "1"), node("b", "4")]
    answer = report(pod(), nodes, [pod("running", nodeName="a")])
    assert answer.node == "b"
    assert {node.plugin for node in answer.nodes} == {"", "NodeResourcesFit"}


def test_explaining_changes_neither_pod_nor_cluster() -> None:
    state = cluster([node("a", "1", taints=[TAINT])])
    obj = pod(cpu="3")
    before = str(obj)
    first = explain(obj, state, PROFILES["default-scheduler"])
    assert str(obj) == before
    assert explain(obj, state, PROFILES["default-scheduler"]) == first


def test_simulated_pods_take_their_places_one_after_the_other() -> None:
    state = cluster([node("a", "2"), node("b", "1")])
    outcome = list(simulate([pod("one"), pod("two"), pod("three"), pod("four")], state, PROFILES))
    assert sorted(copy.node for copy in outcome[:3]) == ["a", "a", "b"]
    assert outcome[3].node == ""
    assert outcome[3].message.startswith("0/2 nodes are available: 2 Insufficient cpu.")


def test_a_simulation_evicts_pods_of_lower_priority() -> None:
    state = cluster([node("a", "1")], [pod("low", nodeName="a")])
    [outcome] = simulate([pod("high", priority=100)], state, PROFILES)
    assert (outcome.node, outcome.evicted) == ("a", ("default/low",))


def test_a_simulation_names_the_scheduler_that_it_does_not_know() -> None:
    with pytest.raises(NoProfile, match="my-custom-scheduler"):
        list(simulate([pod(schedulerName="my-custom-scheduler")], cluster([node("a")]), PROFILES))
