"""The arrays of the scheduler equal a plain model that looks at one node at a time, after any sequence of events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pinnace.kinds.pods.placement import Constraints
from pinnace.scheduler.configuration import build_profiles, default_configuration
from pinnace.scheduler.decision import decide
from pinnace.scheduler.framework.plugin import Handle
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.state.resources import amounts_of, requests_of

NAMES = [f"node-{number}" for number in range(4)]
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
NO_SCHEDULE = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
Model = dict[str, Any]


@st.composite
def nodes(draw: st.DrawFn) -> Any:
    name = draw(st.sampled_from(NAMES))
    labels = {HOSTNAME: name, "size": draw(st.sampled_from(["1", "5", "x"]))}
    if draw(st.booleans()):
        labels[ZONE] = draw(st.sampled_from("abc"))
    allocatable = {"cpu": draw(st.sampled_from(["1", "2500m"])), "memory": "4Gi", "pods": "4"}
    spec: Any = {"unschedulable": True} if draw(st.integers(0, 7)) == 0 else {}
    if draw(st.integers(0, 4)) == 0:
        spec["taints"] = [NO_SCHEDULE]
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"allocatable": allocatable}}


@st.composite
def pods(draw: st.DrawFn) -> Any:
    number = draw(st.integers(0, 9))
    container: Any = {"name": "c", "image": "web"}
    if draw(st.booleans()):
        container["resources"] = {"requests": {"cpu": draw(st.sampled_from(["100m", "700m", "3"])), "memory": "1Gi"}}
    if draw(st.integers(0, 3)) == 0:
        container["ports"] = [{"containerPort": 80, "hostPort": 80}]
    spec: Any = {"containers": [container], "schedulerName": "default-scheduler"}
    match draw(st.integers(0, 6)):
        case 0:
            spec["nodeSelector"] = {ZONE: "a"}
        case 1:
            terms = [{"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["3"]}]}]
            required = {"nodeSelectorTerms": terms}
            spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        case 2:
            term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "web"}}}
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        case 3:
            spec["tolerations"] = [{"operator": "Exists"}]
    labels = {"app": draw(st.sampled_from(["web", "db"]))}
    metadata = {"name": f"pod-{number}", "namespace": "default", "uid": f"uid-{number}", "labels": labels}
    return {"metadata": metadata, "spec": spec, "status": {}}


events = st.lists(
    st.one_of(
        st.tuples(st.just("put node"), nodes()),
        st.tuples(st.just("remove node"), st.sampled_from(NAMES)),
        st.tuples(st.just("add pod"), st.tuples(pods(), st.sampled_from(NAMES))),
        st.tuples(st.just("remove pod"), st.integers(0, 9).map("uid-{}".format)),
    ),
    max_size=25,
)


def replay(state: ClusterState, model: Model, event: tuple[str, Any]) -> None:
    """Apply one event to the arrays and to the model."""
    match event:
        case ("put node", node):
            state.put_node(node)
            model["nodes"][node["metadata"]["name"]] = node
        case ("remove node", name):
            state.remove_node(name)
            model["nodes"].pop(name, None)
        case ("add pod", (pod, name)):
            state.add_pod(state.pod(pod), name)
            model["pods"][pod["metadata"]["uid"]] = (pod, name)
        case ("remove pod", uid):
            state.remove_pod(uid)
            model["pods"].pop(uid, None)


def fits(model: Model, pod: Any, name: str) -> bool:
    """Return whether a pod fits on one node, by the rules of Kubernetes, without arrays."""
    node = model["nodes"][name]
    constraints = Constraints(pod["spec"])
    if node["spec"].get("unschedulable") and not pod["spec"].get("tolerations"):
        return False
    if not constraints.tolerates(node["spec"].get("taints") or ()):
        return False
    if not constraints.matches_labels(name, node["metadata"]["labels"]):
        return False
    here = [other for other, where in model["pods"].values() if where == name]
    if has_port(pod) and any(map(has_port, here)):
        return False
    return has_room(node, pod, here) and keeps_apart(model, pod, name)


def has_port(pod: Any) -> bool:
    return bool(pod["spec"]["containers"][0].get("ports"))


def has_room(node: Any, pod: Any, here: list[Any]) -> bool:
    offered = amounts_of(node["status"]["allocatable"])
    if len(here) + 1 > offered["pods"]:
        return False
    return all(
        amount <= offered.get(name, 0) - sum(requests_of(other).get(name, 0) for other in here)
        for name, amount in requests_of(pod).items()
        if amount
    )


def keeps_apart(model: Model, pod: Any, name: str) -> bool:
    """Return whether no anti-affinity over zones is broken, neither the pod's own nor that of others."""
    zone = model["nodes"][name]["metadata"]["labels"].get(ZONE)
    for other, where in model["pods"].values():
        node = model["nodes"].get(where)
        if zone is None or node is None or node["metadata"]["labels"].get(ZONE) != zone:
            continue
        for obj, target in ((pod, other), (other, pod)):
            if wants_apart(obj["spec"]) and target["metadata"]["labels"]["app"] == "web":
                return False
    return True


def wants_apart(spec: Mapping[str, Any]) -> bool:
    return "podAntiAffinity" in (spec.get("affinity") or {})


@settings(max_examples=150, deadline=None)
@given(events, st.lists(pods(), min_size=1, max_size=4))
def test_the_nodes_that_fit_are_those_of_a_plain_model(happened: list[tuple[str, Any]], waiting: list[Any]) -> None:
    state = ClusterState()
    model: Model = {"nodes": {}, "pods": {}}
    profile = build_profiles(default_configuration(), Handle())["default-scheduler"]
    for event in happened:
        replay(state, model, event)
        for pod in waiting:  # After each event: what is kept from before must have followed it.
            pod["metadata"]["uid"] = "waiting"
            decision = decide(state.pod(pod), state, profile)
            result = {state.nodes.names[slot] for slot in decision.feasible}
            assert result == {name for name in model["nodes"] if fits(model, pod, name)}
            assert bool(decision.node) == bool(result)


@settings(max_examples=100, deadline=None)
@given(events)
def test_the_requests_on_a_node_are_the_sum_of_its_pods(happened: list[tuple[str, Any]]) -> None:
    state = ClusterState()
    model: Model = {"nodes": {}, "pods": {}}
    for event in happened:
        replay(state, model, event)
    for name, slot in state.nodes.slot_of.items():
        here = [pod for pod, where in model["pods"].values() if where == name]
        assert state.requested[state.nodes.resources["pods"], slot] == len(here)
        for resource in ("cpu", "memory"):
            expected = sum(requests_of(pod).get(resource, 0) for pod in here)
            assert state.requested[state.nodes.resources[resource], slot] == expected
        assert {pod.uid for pod in state.pods_at(slot)} == {pod["metadata"]["uid"] for pod in here}


@settings(max_examples=60, deadline=None)
@given(events, pods())
def test_a_decision_leaves_the_state_as_it_was(happened: list[tuple[str, Any]], waiting: Any) -> None:
    state = ClusterState()
    model: Model = {"nodes": {}, "pods": {}}
    for event in happened:
        replay(state, model, event)
    waiting["spec"]["priority"] = 100
    waiting["metadata"]["uid"] = "waiting"
    before = (state.requested.copy(), state.non_zero_requested.copy(), dict(state.ports._taken))
    profile = build_profiles(default_configuration(), Handle())["default-scheduler"]
    decision = decide(state.pod(waiting), state, profile, has_details=True)
    assert (state.requested[: len(before[0])] == before[0]).all()
    assert (state.non_zero_requested == before[1]).all()
    if decision.nomination is not None:
        assert {pod.node for pod in decision.nomination.victims} == {decision.nomination.node}
        assert all(pod.priority < 100 for pod in decision.nomination.victims)
