"""A failure of one pod stays with that pod: nothing is lost, nothing is bound twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.node.simulated.pods import pod

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.node.simulated.machines import NodeShape
from pinnace.reconcile.manager import Manager
from pinnace.scheduler.configuration import (
    InvalidConfiguration,
    PluginSet,
    ProfileConfiguration,
    SchedulerConfiguration,
    build_profiles,
    load,
)
from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.events import ClusterEvent, EventRegistration
from pinnace.scheduler.framework.plugin import Depends, Handle, Plugin, Wait
from pinnace.scheduler.framework.status import Refusal, unschedulable
from pinnace.scheduler.plugins.defaults import DEFAULT_PLUGINS, default_registry
from pinnace.scheduler.queue import SchedulingQueue
from pinnace.scheduler.scheduler import Scheduler
from pinnace.scheduler.state.arrays import At, Codes, Integers, slots_of
from pinnace.scheduler.state.pods import Pod
from pinnace.testing.cluster import Cluster

CUSTOM = "custom"
HOSTNAME = "kubernetes.io/hostname"


class Filter(Plugin):
    """A filter that does what the label `do` of a pod says."""

    name = "Custom"
    depends = Depends.CLUSTER

    def filter(self, cycle: Cycle, at: At) -> Codes:
        fits = np.zeros(len(slots_of(at, cycle.state.size)), dtype=np.int32)
        match cycle.template.labels.get("do"):
            case "raise":
                raise ZeroDivisionError("by zero")
            case "wrong-type":
                return "nonsense"  # type: ignore[return-value]
            case "wrong-length":
                return fits[:0]
        return fits

    def refusal(self, cycle: Cycle, code: int) -> Refusal:
        return unschedulable("never")

    def score(self, cycle: Cycle, at: At) -> Integers:
        scores = np.zeros(len(slots_of(at, cycle.state.size)), dtype=np.int64)
        match cycle.template.labels.get("do"):
            case "too-high":
                return scores + 101
            case "not-a-number":
                return scores + float("nan")  # type: ignore[return-value]
        return scores


class Permit(Plugin):
    name = "Permit"

    def permit(self, cycle: Cycle, node: str) -> Refusal | Wait | None:
        match cycle.template.labels.get("do"):
            case "wait":
                return Wait(30.0)
            case "refuse":
                return unschedulable("not today")
        return None


def configuration(**moments: PluginSet) -> SchedulerConfiguration:
    plugins = {**dict(DEFAULT_PLUGINS), "Custom": 1, "Permit": 0}
    return SchedulerConfiguration((ProfileConfiguration(CUSTOM, plugins, moments),))


async def run_custom(cluster: Cluster, client: Client | None = None) -> Scheduler:
    """Run a second scheduler, for pods with schedulerName custom."""
    registry = default_registry()
    registry.add("Custom", lambda arguments, handle: Filter())
    registry.add("Permit", lambda arguments, handle: Permit())
    manager = Manager(client or cluster.client, name=CUSTOM)
    scheduler = Scheduler(manager, manager.client, configuration=configuration(), registry=registry, seed=1)
    manager.add(scheduler.controller)
    await cluster.keep(manager.running(), name=CUSTOM)
    return scheduler


def custom(name: str, do: str = "", **spec: Any) -> Object:
    made = pod(name, schedulerName=CUSTOM, **spec)
    made["metadata"]["labels"] = {"do": do} if do else {}
    return made


async def condition_of(cluster: Cluster, name: str) -> tuple[str, str]:
    obj = await cluster.client.get("v1/Pod", name)
    conditions = (obj.get("status") or {}).get("conditions") or ()
    condition: Object = next((known for known in conditions if known["type"] == "PodScheduled"), {})
    return condition.get("reason", ""), condition.get("message", "")


async def node_of(cluster: Cluster, name: str) -> str:
    obj: str = (await cluster.client.get("v1/Pod", name))["spec"].get("nodeName", "")
    return obj


@pytest.mark.parametrize(
    ("do", "message"),
    [
        pytest.param("raise", 'running "Custom" filter plugin: ZeroDivisionError: by zero', id="an exception"),
        pytest.param(
            "wrong-type",
            'running "Custom" filter plugin: expected an array of 2 integers, one per node, found str',
            id="no array",
        ),
        pytest.param("wrong-length", "found an array of shape (0,) and type int32", id="an array of another length"),
        pytest.param(
            "too-high",
            'plugin "Custom" returns an invalid score 101, it should in the range of [0, 100]',
            id="a score above 100",
        ),
        pytest.param(
            "not-a-number",
            'running "Custom" score plugin: a score is not a finite number',
            id="a score that is no number",
        ),
    ],
)
async def test_a_plug_in_that_fails_for_a_pod_is_named_and_others_go_on(
    cluster: Cluster, do: str, message: str
) -> None:
    await cluster.add_nodes(2)
    await run_custom(cluster)
    await cluster.client.create(custom("broken", do))
    await cluster.client.create(custom("good"))
    await cluster.settle()
    reason, result = await condition_of(cluster, "broken")
    assert reason == "SchedulerError"
    assert message in result
    assert await node_of(cluster, "good")
    assert not await node_of(cluster, "broken")


async def test_a_pod_waits_for_its_permit_and_is_refused_when_none_comes(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    scheduler = await run_custom(cluster)
    await cluster.client.create(custom("allowed", "wait"))
    await cluster.client.create(custom("late", "wait"))
    await cluster.client.create(custom("refused", "refuse"))
    await cluster.settle()
    assert not await node_of(cluster, "allowed")
    scheduler.allow((await cluster.client.get("v1/Pod", "allowed"))["metadata"]["uid"])
    await cluster.settle()
    assert await node_of(cluster, "allowed") == "node-0"
    await cluster.advance(31)
    assert (await condition_of(cluster, "late"))[1] == "timed out after waiting 30s at plugin Permit"
    assert await condition_of(cluster, "refused") == ("Unschedulable", "not today")


async def test_of_two_schedulers_for_one_pod_one_binds_it(cluster: Cluster) -> None:
    await cluster.add_nodes(2)
    for _ in range(2):
        await run_custom(cluster)
    for number in range(10):
        await cluster.client.create(custom(f"web-{number}"))
    await cluster.settle()
    assert all([await node_of(cluster, f"web-{number}") for number in range(10)])
    events = await cluster.client.list("v1/Event", namespace="default", fields="involvedObject.kind=Pod")
    scheduled = Counter(event["involvedObject"]["name"] for event in events if event["reason"] == "Scheduled")
    assert set(scheduled.values()) == {1}


async def test_a_pod_deleted_while_it_waits_is_forgotten(cluster: Cluster) -> None:
    await cluster.add_nodes(1, shape=NodeShape(cpu="1"))
    scheduler = await run_custom(cluster)
    await cluster.client.create(custom("big", cpu="5"))
    await cluster.client.create(custom("held", "wait"))
    await cluster.settle()
    assert len(scheduler.queue) == 2
    for name in ("big", "held"):
        await cluster.client.delete("v1/Pod", name, grace_seconds=0)
    await cluster.settle()
    assert len(scheduler.queue) == 0
    await cluster.advance(60)
    with pytest.raises(errors.NotFound):
        await cluster.client.get("v1/Pod", "held")
    assert not scheduler.state.pods


async def test_a_node_that_vanishes_before_the_binding_does_not_lose_the_pod(cluster: Cluster) -> None:
    await cluster.add_nodes(2)
    scheduler = await run_custom(cluster)
    await cluster.client.create(custom("held", "wait"))
    await cluster.settle()
    waiting = next(iter(scheduler.state.pods.values()))
    await cluster.client.delete("v1/Node", waiting.node)
    await cluster.settle()
    scheduler.reject(waiting.uid, "the node is gone")
    await cluster.settle()
    assert await condition_of(cluster, "held") == ("Unschedulable", "the node is gone")
    assert scheduler.queue.counts()["unschedulable"] == 1


async def test_many_pods_that_fit_nowhere_do_not_keep_back_one_that_fits(cluster: Cluster) -> None:
    await cluster.add_nodes(2, shape=NodeShape(cpu="1"))
    for first in range(0, 1000, 50):  # A settle for each part: it takes at most 10 s, also on a busy machine.
        numbers = range(first, first + 50)
        await asyncio.gather(*(cluster.client.create(pod(f"big-{number}", cpu="64")) for number in numbers))
        await cluster.settle()
    await cluster.client.create(pod("small", cpu="100m"))
    await cluster.settle()
    assert await node_of(cluster, "small")
    assert (await condition_of(cluster, "big-999"))[1].startswith("0/2 nodes are available: 2 Insufficient cpu.")
    events = await cluster.client.list("v1/Event", namespace="default", fields="reason=FailedScheduling")
    assert len({event["involvedObject"]["name"] for event in events}) == 1000, "no event is lost"


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        ({"plugins": {"filter": {"enabled": [{"name": "Nothing"}]}}}, "no scheduler plug-in is named Nothing"),
        (
            {"plugins": {"sometimes": {}}},
            'strict decoding error: unknown field "profiles[0].plugins.sometimes"',
        ),
        ({"percentageOfNodesToScore": 101}, "profiles[0].percentageOfNodesToScore: Invalid value: 101: not in valid"),
        (
            {"plugins": {"score": {"enabled": [{"name": "ImageLocality"}, {"name": "ImageLocality"}]}}},
            'profiles[0].plugins.score.enabled[1]: Duplicate value: "ImageLocality"',
        ),
        (
            {"plugins": {"filter": {"enabled": [{"name": "EBSLimits"}]}}},
            'profiles[0].plugins.filter.enabled[0]: Invalid value: "EBSLimits": was invalid in version',
        ),
        (
            {"pluginConfig": [{"name": "InterPodAffinity", "args": {"hardWeight": 1}}]},
            "profiles[0].pluginConfig[0].args: decoding args for plugin InterPodAffinity: strict decoding error: "
            'unknown field "hardWeight"',
        ),
        (
            {"pluginConfig": [{"name": "A"}, {"name": "A"}]},
            'profiles[0].pluginConfig[1]: Duplicate value: "A"',
        ),
        (
            {"pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "Best"}}}]},
            "arguments of NodeResourcesFit: scoringStrategy.type: expected LeastAllocated, MostAllocated or "
            "RequestedToCapacityRatio, found Best",
        ),
    ],
)
def test_a_configuration_that_cannot_be_used_names_the_field(profile: Object, message: str) -> None:
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    with pytest.raises(InvalidConfiguration) as error:
        build_profiles(load(config), Handle())
    assert message in str(error.value)


HEAD: Object = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"parallelism": 0}, "parallelism: Invalid value: 0: should be an integer value greater than zero"),
        ({"podInitialBackoffSeconds": 0}, "podInitialBackoffSeconds: Invalid value: 0: must be greater than 0"),
        (
            {"podInitialBackoffSeconds": 5, "podMaxBackoffSeconds": 2},
            "podMaxBackoffSeconds: Invalid value: 2: must be greater than or equal to PodInitialBackoffSeconds",
        ),
        (
            {"profiles": [{"schedulerName": "a"}, {"schedulerName": "a"}, {}]},
            '[profiles[1].schedulerName: Duplicate value: "a", profiles[2].schedulerName: Required value]',
        ),
        ({"profile": []}, 'strict decoding error: unknown field "profile"'),
        ({"profiles": {}}, "cannot unmarshal object"),
        ({"extenders": [{"urlPrefix": "http://a", "verb": "b"}]}, 'unknown field "extenders[0].verb"'),
    ],
)
def test_a_bad_configuration_is_refused_in_the_words_of_kubernetes(fields: Object, message: str) -> None:
    with pytest.raises(InvalidConfiguration) as error:
        load({**HEAD, **fields})
    assert message in str(error.value)


def test_fields_without_effect_are_named() -> None:
    configuration = load({**HEAD, "percentageOfNodesToScore": 50, "profiles": [{"percentageOfNodesToScore": 50}]})
    assert configuration.warnings == (
        "percentageOfNodesToScore has no effect: all nodes are scored",
        "profiles[0].percentageOfNodesToScore has no effect: all nodes are scored",
    )


@pytest.mark.parametrize("cpu", ["9223372036854775807", "1e30", "1e999999999"])
async def test_a_request_beyond_64_bits_fits_nowhere_and_the_pod_says_so(cluster: Cluster, cpu: str) -> None:
    await cluster.add_nodes(1)
    await cluster.client.create(pod("vast", cpu=cpu))
    await cluster.client.create(pod("vast-too", cpu=cpu))
    await cluster.client.create(pod("good", cpu="1"))
    await cluster.settle()
    assert await node_of(cluster, "good")
    reason, message = await condition_of(cluster, "vast")
    assert reason == "Unschedulable"
    assert message.startswith("0/1 nodes are available: 1 Insufficient cpu.")


async def test_pods_on_a_node_with_vast_requests_leave_no_room(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    for name in ("vast", "vast-too"):
        await cluster.client.create(pod(name, cpu="1e30", nodeName="node-0"))
    await cluster.client.create(pod("good", cpu="1"))
    await cluster.settle()
    assert (await condition_of(cluster, "good"))[0] == "Unschedulable"


def _affinity(count: int) -> Object:
    terms = [
        {"topologyKey": HOSTNAME, "namespaceSelector": {}, "labelSelector": {"matchLabels": {f"a{number}": "b"}}}
        for number in range(count)
    ]
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def _constraints(count: int) -> Object:
    constraint = {"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
    return {"topologySpreadConstraints": [constraint | {"topologyKey": f"a{number}"} for number in range(count)]}


def _node_requirements(count: int) -> Object:
    terms = [
        {"weight": 1, "preference": {"matchExpressions": [{"key": f"a{number}", "operator": "Exists"}]}}
        for number in range(count)
    ]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}


@pytest.mark.parametrize(
    ("spec", "most", "message"),
    [
        pytest.param(_affinity, 128, "pod has 129 pod affinity terms, this scheduler takes at most 128", id="affinity"),
        pytest.param(_constraints, 128, "pod has 129 topology spread constraints", id="spread"),
        pytest.param(_node_requirements, 1_000, "pod has 1001 requirements on nodes", id="nodes"),
    ],
)
async def test_a_pod_with_more_terms_than_a_decision_has_time_for_is_refused_and_says_so(
    cluster: Cluster, spec: Callable[[int], Object], most: int, message: str
) -> None:
    await cluster.add_nodes(1)
    await cluster.client.create(pod("many", **spec(most + 1)))
    await cluster.client.create(pod("most", **spec(most)))
    await cluster.settle()
    assert await node_of(cluster, "most")
    reason, result = await condition_of(cluster, "many")
    assert reason == "Unschedulable"
    assert message in result


async def test_labels_that_no_node_has_are_not_kept(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    scheduler = await run_custom(cluster)
    for number in range(20):
        await cluster.client.create(pod(f"picky-{number}", schedulerName=CUSTOM, nodeSelector={f"key-{number}": "a"}))
    await cluster.settle()
    labels = scheduler.state.nodes.labels
    kept = [f"key-{number}" for number in range(20) if labels.column(f"key-{number}") is labels.column(f"key-{number}")]
    assert kept == []


async def test_an_event_is_compared_with_a_bounded_number_of_terms(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions: list[str] = []
    ask = SchedulingQueue._asks

    def note(queue: SchedulingQueue, registration: EventRegistration, pod: Pod, event: ClusterEvent) -> bool:
        questions.append(pod.key.name)
        return ask(queue, registration, pod, event)

    nodes = await cluster.add_nodes(2)
    for number in range(9):
        wanted = {f"example.com/{number}-{label}": "yes" for label in range(900)}
        await cluster.client.create(pod(f"picky-{number}", nodeSelector=wanted))
    excess = {f"example.com/{label}": "yes" for label in range(1_001)}
    await cluster.client.create(pod("excessive", nodeSelector=excess))
    await cluster.settle()
    monkeypatch.setattr(SchedulingQueue, "_asks", note)
    [name, *_] = nodes.names
    await cluster.client.patch("v1/Node", name, {"metadata": {"labels": {"example.com/new": "yes"}}})
    await cluster.settle()
    # Four have 900 terms each within the limit; the others are tried again without a question, and the last never.
    assert len(questions) == 4, questions
