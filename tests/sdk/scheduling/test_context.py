"""The context of a scheduler's functions: caches, state, wakes and permits, in a cluster and in a trial."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.sdk.scheduling.test_in_a_cluster import condition_of, node_of, pod
from tests.testing.both_ways import in_process_only

from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.sdk.scheduling import NodeView, Pod, Scheduler, SchedulerContext, Wait
from pinnace.testing.cluster import Cluster

EXAMPLE = Path(__file__).parents[3] / "examples" / "09-scheduler" / "load_and_gangs.py"
SETTINGS = "v1/ConfigMap"


def example() -> Any:
    spec = importlib.util.spec_from_file_location("load_and_gangs", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load(node: str, percent: int) -> Object:
    metadata = {"name": node}
    return {"apiVersion": "load.example.com/v1", "kind": "NodeLoad", "metadata": metadata, "spec": {"percent": percent}}


def member(name: str, size: int) -> Object:
    return pod(name, "load-and-gangs", labels={"group": "g"}, annotations={"group-size": str(size)})


async def test_pods_avoid_busy_nodes_and_wait_until_one_has_cooled(cluster: Cluster) -> None:
    await cluster.add_nodes(2)
    await cluster.run(example().scheduler)
    await cluster.client.create(load("node-0", 70))
    await cluster.client.create(load("node-1", 10))
    await cluster.settle()
    await cluster.client.create(pod("first", "load-and-gangs"))
    await cluster.settle()
    assert await node_of(cluster, "first") == "node-1"
    for node in ("node-0", "node-1"):
        await cluster.client.apply(load(node, 95), force=True)
    await cluster.settle()
    await cluster.client.create(pod("second", "load-and-gangs"))
    await cluster.settle()
    assert "2 node(s) were more than 80 % busy" in (await condition_of(cluster, "second"))["message"]
    await cluster.client.apply(load("node-0", 90), force=True)
    await cluster.advance(30)
    assert await node_of(cluster, "second") == ""
    await cluster.client.apply(load("node-0", 20), force=True)
    await cluster.settle()
    assert await node_of(cluster, "second") == "node-0"


async def test_the_pods_of_a_group_start_together_or_not_at_all(cluster: Cluster) -> None:
    await cluster.add_nodes(2)
    await cluster.run(example().scheduler)
    for name in ("a", "b"):
        await cluster.client.create(member(name, 3))
    await cluster.settle()
    assert [await node_of(cluster, name) for name in "ab"] == ["", ""]
    await cluster.client.create(member("c", 3))
    await cluster.settle()
    assert all([await node_of(cluster, name) for name in "abc"])


def test_a_trial_reads_the_objects_that_it_is_given() -> None:
    scheduler = example().scheduler
    nodes = [{"metadata": {"name": name}} for name in ("a", "b", "c")]
    trial = scheduler.schedule(pod("p"), nodes, objects=[load("a", 90), load("b", 40)])
    assert trial.node == "c"
    assert trial.reasons == {"a": "not_busy: node(s) were more than 80 % busy"}
    assert (trial.scores["b"]["idle_first"], trial.scores["c"]["idle_first"]) == (60, 100)
    assert [definition["metadata"]["name"] for definition in scheduler.crds()] == ["nodeloads.load.example.com"]


async def test_functions_share_state_read_indexes_and_use_the_client(cluster: Cluster) -> None:
    scheduler = Scheduler("my-scheduler")
    calls: list[str] = []

    class Session:
        """A session of the run."""

    @scheduler.startup
    async def open_session() -> AsyncIterator[Session]:
        calls.append("open")
        yield Session()
        calls.append("closed")

    @scheduler.shutdown
    def stop(shared: Any) -> None:
        assert isinstance(shared[Session], Session)
        calls.append("stop")

    @scheduler.index(SETTINGS)
    def by_zone(obj: Object) -> list[str]:
        return [obj["data"]["zone"]] if "zone" in (obj.get("data") or {}) else []

    @scheduler.pre_filter
    def prepare(pod: Pod, ctx: SchedulerContext) -> list[str]:
        assert isinstance(ctx.shared[Session], Session)
        allowed = ctx.indexed(SETTINGS, "by_zone", pod.labels["zone"])
        ctx.cycle["allowed"] = [setting["metadata"]["name"] for setting in allowed]
        return list(ctx.cycle["allowed"])

    @scheduler.filter
    def fits(pod: Pod, node: NodeView, ctx: SchedulerContext) -> bool:
        return node.name in ctx.cycle["allowed"]

    @scheduler.pre_bind
    async def note(pod: Pod, node: str, ctx: SchedulerContext) -> None:
        assert ctx.now() == cluster.clock.now()
        assert [setting["metadata"]["name"] for setting in ctx.list(SETTINGS, namespace="default", labels="a=b")] == [
            node
        ]
        await ctx.client.get("v1/Node", node)

    await cluster.add_nodes(2)
    for name, zone in (("node-0", "east"), ("node-1", "west")):
        metadata = {"name": name, "labels": {"a": "b"} if zone == "west" else {}}
        await cluster.client.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"zone": zone}}
        )
    manager = await cluster.run(scheduler)
    await cluster.client.create(pod("p", labels={"zone": "west"}))
    await cluster.settle()
    assert await node_of(cluster, "p") == "node-1"
    await cluster.stop()
    assert calls == ["open", "stop", "closed"]
    assert manager.name == "my-scheduler"


@in_process_only
async def test_a_scheduler_may_read_what_it_declares_and_nothing_else(cluster: Cluster) -> None:
    scheduler = Scheduler("my-scheduler")
    scheduler.reads(SETTINGS)
    await cluster.run(scheduler)
    account = cluster.client_as("system:serviceaccount:default:my-scheduler", "system:serviceaccounts")
    await account.list(SETTINGS)
    with pytest.raises(errors.Forbidden):
        await account.list("v1/Secret")


@in_process_only
async def test_a_refused_member_gives_its_place_back(cluster: Cluster) -> None:
    scheduler = Scheduler("my-scheduler")
    given_back: list[str] = []

    @scheduler.unreserve
    def give_back(pod: Pod, node: str, ctx: SchedulerContext) -> None:
        given_back.append(pod.name)

    @scheduler.permit
    def reject_others(pod: Pod, node: str, ctx: SchedulerContext) -> Any:
        for other, _ in ctx.waiting():
            ctx.reject(other, "the other one came")
        return Wait(100)

    await cluster.add_nodes(1)
    await cluster.run(scheduler)
    for name in ("a", "b"):
        await cluster.client.create(pod(name))
        await cluster.settle()
    assert given_back[0] == "a"
    assert "the other one came" in (await condition_of(cluster, "a"))["message"]


def reads_unknown(pod: Pod, node: NodeView, ctx: SchedulerContext) -> Any:
    return ctx.get("v1/Secret", "s")


def reads_unknown_index(pod: Pod, node: NodeView, ctx: SchedulerContext) -> Any:
    return ctx.indexed(SETTINGS, "by_zone", "a")


def uses_the_client(pod: Pod, node: NodeView, ctx: SchedulerContext) -> Any:
    return ctx.client


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (reads_unknown, r"does not keep Secret: declare it with scheduler.reads\('v1/Secret'\)"),
        (reads_unknown_index, "ConfigMap has no index by_zone"),
        (uses_the_client, "has no client in a trial"),
    ],
)
def test_the_error_of_a_function_that_reads_an_unknown_kind_names_the_declaration(function: Any, message: str) -> None:
    scheduler = Scheduler("my-scheduler")
    scheduler.reads(SETTINGS)
    scheduler.filter(function)
    with pytest.raises(Exception, match=message):
        scheduler.schedule(pod("p"), [{"metadata": {"name": "a"}}])


def test_a_hint_that_cannot_be_called_is_refused() -> None:
    def few(pod: Pod) -> bool:
        return True

    with pytest.raises(TypeError, match="wakes: cannot call few: write def few"):
        Scheduler("my-scheduler").permit(wakes={SETTINGS: few})(lambda pod, node: None)
