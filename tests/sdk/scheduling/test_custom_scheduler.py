"""Custom schedulers without a cluster: functions of one node or of all, the other moments, and mistakes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pinnace.model.objects import Object
from pinnace.scheduler.framework.status import PluginError
from pinnace.sdk.scheduling import NodeArrays, NodeView, Pod, Scheduler


def node(name: str, **labels: str) -> Object:
    return {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}}


def sized(name: str, cpu: str) -> Object:
    return node(name) | {"status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}}}


def pod(cpu: str = "100m", **spec: Any) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": [container], **spec}}


def running(name: str, on: str) -> Object:
    return pod() | {"metadata": {"name": name, "namespace": "default"}} | {"spec": pod()["spec"] | {"nodeName": on}}


def test_a_filter_of_one_node_gives_its_reason() -> None:
    scheduler = Scheduler("my-scheduler")

    @scheduler.filter
    def has_ssd(pod: Pod, node: NodeView) -> str | None:
        return None if node.labels.get("disk") == "ssd" else "no ssd"

    trial = scheduler.schedule(pod(), [node("a", disk="hdd"), node("b", disk="ssd")])
    assert trial.node == "b"
    assert trial.reasons == {"a": "has_ssd: no ssd"}


def test_a_filter_over_arrays_gives_its_docstring_as_reason() -> None:
    scheduler = Scheduler("my-scheduler")

    @scheduler.filter
    def has_ssd(pod, nodes):  # type: ignore[no-untyped-def]  # The name of the parameter decides.
        """The node has no ssd."""
        return nodes.has_label("disk", "ssd")

    trial = scheduler.schedule(pod(), [node("a", disk="hdd"), node("b", disk="ssd")])
    assert trial.node == "b"
    assert trial.reasons == {"a": "has_ssd: The node has no ssd"}


def test_the_message_of_a_pod_that_fits_nowhere_counts_the_reasons() -> None:
    scheduler = Scheduler("my-scheduler")

    @scheduler.filter(reason="not today")
    def never(pod: Pod, node: NodeView) -> bool:
        return False

    trial = scheduler.schedule(pod(), [node("a"), node("b")])
    assert trial.node == ""
    assert trial.message.startswith("0/2 nodes are available: 2 not today.")


def fewest_pods(pod: Pod, nodes: NodeArrays) -> Any:
    return 100 - nodes.pod_count


def fewest_pods_one(pod: Pod, node: NodeView) -> float:
    return 100 - len(list(node.pods))


@pytest.mark.parametrize("function", [fewest_pods, fewest_pods_one], ids=["arrays", "one node"])
def test_scores_choose_among_the_nodes_that_fit(function: Callable[..., Any]) -> None:
    scheduler = Scheduler("my-scheduler", defaults=False)
    scheduler.score(weight=3)(function)
    trial = scheduler.schedule(pod(), [node("a"), node("b"), node("c")], pods=[running("x", "a"), running("y", "b")])
    assert trial.node == "c"
    assert trial.totals == {"a": 297, "b": 297, "c": 300}
    assert trial.scores["c"] == {function.__name__: 100}


@pytest.mark.parametrize(("reverse", "chosen"), [(False, "large"), (True, "small")])
def test_normalized_scores_may_have_any_range(reverse: bool, chosen: str) -> None:
    scheduler = Scheduler("my-scheduler", defaults=False)

    @scheduler.score(normalize=True, reverse=reverse)
    def free_cpu(pod: Pod, nodes: NodeArrays) -> Any:
        return nodes.free("cpu")

    trial = scheduler.schedule(pod(), [sized("small", "1"), sized("middle", "2"), sized("large", "9")])
    assert trial.node == chosen
    assert sorted(trial.totals.values())[0] == 0
    assert sorted(trial.totals.values())[-1] == 100


def test_default_plugins_run_before_the_functions_unless_left_out() -> None:
    nodes = [sized("tiny", "50m"), sized("big", "4")]
    assert Scheduler("with-defaults").schedule(pod(), nodes).reasons == {"tiny": "NodeResourcesFit: Insufficient cpu"}
    assert Scheduler("without-defaults", defaults=False).schedule(pod(), nodes).reasons == {}
    assert Scheduler("without-fit", without=["NodeResourcesFit"]).schedule(pod(), nodes).reasons == {}


def test_pre_filter_limits_the_nodes_or_refuses_the_pod() -> None:
    scheduler = Scheduler("my-scheduler")

    @scheduler.pre_filter
    def only_b(pod: Pod) -> Any:
        return {"b"} if pod.name == "p" else "wrong name"

    assert scheduler.schedule(pod(), [node("a"), node("b")]).node == "b"
    other = pod() | {"metadata": {"name": "q"}}
    assert "wrong name" in scheduler.schedule(other, [node("a"), node("b")]).message


def test_functions_see_annotations_and_all_else_of_the_pod() -> None:
    scheduler = Scheduler("my-scheduler")

    @scheduler.filter
    def wanted(pod: Pod, node: NodeView) -> bool:
        return bool(pod.object["metadata"]["annotations"]["node"] == node.name)

    chosen = pod() | {"metadata": {"name": "p", "annotations": {"node": "b"}}}
    assert scheduler.schedule(chosen, [node("a"), node("b"), node("c")]).node == "b"


def one_parameter(pod: Pod) -> None: ...
def unclear(pod: Pod, other: object) -> None: ...
async def slow(pod: Pod, node: NodeView) -> None: ...


@pytest.mark.parametrize(
    ("moment", "function", "expected"),
    [
        ("filter", one_parameter, "write def one_parameter(pod: Pod, node: NodeView)"),
        ("score", unclear, "does not tell whether other is one node or all of them"),
        ("filter", slow, "cannot wait for slow"),
        ("pre_filter", unclear, "write def unclear(pod: Pod) -> str"),
        ("reserve", one_parameter, "write def one_parameter(pod: Pod, node: str)"),
    ],
)
def test_a_wrong_signature_is_refused_with_the_right_one(
    moment: str, function: Callable[..., Any], expected: str
) -> None:
    with pytest.raises(TypeError) as refused:
        getattr(Scheduler("my-scheduler"), moment)(function)
    assert expected in str(refused.value)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (np.zeros(7), "expected an array of 2 numbers, one per node"),
        (np.array([1.0, float("nan")]), "not a finite number"),
        (np.array([1, 101]), "invalid score 101"),
        ("many", "expected an array"),
    ],
    ids=["length", "nan", "range", "text"],
)
def test_nonsense_from_a_score_fails_the_pod_with_the_name_of_the_function(answer: Any, expected: str) -> None:
    scheduler = Scheduler("my-scheduler")

    @scheduler.score
    def nonsense(pod: Pod, nodes: NodeArrays) -> Any:
        return answer

    with pytest.raises(PluginError, match="nonsense") as failed:
        scheduler.schedule(pod(), [node("a"), node("b")])
    assert expected in str(failed.value)


def test_names_are_unique_and_known() -> None:
    scheduler = Scheduler("my-scheduler")
    scheduler.score(fewest_pods)
    with pytest.raises(ValueError, match="rename the function"):
        scheduler.score(fewest_pods)
    with pytest.raises(ValueError, match="no default plug-in"):
        Scheduler("my-scheduler", without=["NodeResourceFit"])
    with pytest.raises(ValueError, match="cannot be an operator's name"):
        Scheduler("My Scheduler")
