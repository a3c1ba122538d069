"""DaemonSets run one pod on every node that fits."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tests.controllers.kubelet import Kubelet, pinned_to
from tests.controllers.workloads.objects import (
    DAEMON_SET,
    POD,
    REVISION,
    change,
    events,
    listed,
    pod,
    revision_numbers,
    set_image,
    status_of,
    template,
    workload,
)
from tests.controllers.world import World
from tests.loop_turns import counting_turns

from pinnace.controllers.workloads.daemon_placement import NodeFacts, Placement, sort_nodes
from pinnace.kinds.pods.placement import Constraints
from pinnace.model.objects import Object
from pinnace.model.typed_objects import NodeAffinity, NodeSelectorTerm
from pinnace.reconcile.owners import controller_of, owner_reference
from pinnace.testing.clock import ManualClock

NODE = "v1/Node"
HASH = "controller-revision-hash"


async def add_nodes(world: World, *names: str, labels: dict[str, str] | None = None, **spec: Any) -> None:
    for name in names:
        metadata = {"name": name, "labels": labels or {}}
        made = await world.client.create({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec})
        # The server taints new nodes until they are ready.
        taints = [taint for taint in made["spec"].get("taints") or () if taint["key"] != "node.kubernetes.io/not-ready"]
        await world.client.patch(NODE, name, {"spec": {"taints": taints or None}})


async def placed(world: World) -> dict[str, list[str]]:
    """Images by node, of pods that stay."""
    results: dict[str, list[str]] = {}
    for listed_pod in await listed(world, POD):
        if "deletionTimestamp" not in listed_pod["metadata"]:
            node = listed_pod["spec"].get("nodeName") or pinned_to(listed_pod)
            results.setdefault(node, []).append(
                listed_pod["spec"]["containers"][0]["image"].removeprefix("example.com/web:")
            )
    return {node: sorted(images) for node, images in results.items()}


async def test_every_node_gets_a_pod_that_is_pinned_to_it(world: World, kubelet: Kubelet) -> None:
    await add_nodes(world, "a", "b")
    made = await world.client.create(workload(DAEMON_SET))
    await kubelet.run_all()
    assert await placed(world) == {"a": ["1"], "b": ["1"]}
    obj = (await listed(world, POD))[0]
    assert obj["metadata"]["ownerReferences"] == [owner_reference(made)]
    (revision,) = await listed(world, REVISION)
    hash_value = revision["metadata"]["labels"][HASH]
    assert revision["metadata"]["name"] == f"web-{hash_value}"
    assert obj["metadata"]["labels"] == {"app": "web", HASH: hash_value, "pod-template-generation": "1"}
    tolerated = {
        (toleration["key"].partition("/")[2], toleration["effect"]) for toleration in obj["spec"]["tolerations"]
    }
    assert tolerated == {
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    }
    assert await status_of(world, DAEMON_SET) == {
        "currentNumberScheduled": 2,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 2,
        "numberReady": 2,
        "updatedNumberScheduled": 2,
        "numberAvailable": 2,
        "observedGeneration": 1,
    }
    assert ("daemonset-controller", "SuccessfulCreate") in [event[:2] for event in await events(world)]


async def test_a_node_that_comes_gets_a_pod_and_one_that_no_longer_fits_loses_it(
    world: World, kubelet: Kubelet
) -> None:
    await add_nodes(world, "plain")
    await world.client.create(workload(DAEMON_SET) | {"spec": selecting(nodeSelector={"disk": "ssd"})})
    await kubelet.run_all()
    assert await placed(world) == {}
    await add_nodes(world, "fast", labels={"disk": "ssd"})
    await kubelet.run_all()
    assert await placed(world) == {"fast": ["1"]}
    await world.client.patch(NODE, "plain", {"metadata": {"labels": {"disk": "ssd"}}})
    await kubelet.run_all()
    assert await placed(world) == {"fast": ["1"], "plain": ["1"]}
    await world.client.patch(NODE, "fast", {"metadata": {"labels": {"disk": None}}})
    await kubelet.run_all()
    assert await placed(world) == {"plain": ["1"]}
    assert (await status_of(world, DAEMON_SET))["desiredNumberScheduled"] == 1


def selecting(**spec: Any) -> Object:
    wanted: Object = workload(DAEMON_SET)["spec"]
    return {**wanted, "template": template(**spec)}


@pytest.mark.parametrize(
    ("spec", "nodes"),
    [
        ({"nodeName": "a"}, ["a"]),
        ({"tolerations": [{"key": "gpu", "operator": "Exists"}]}, ["a", "b", "tainted"]),
        ({}, ["a", "b"]),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["east"]}]}
                            ]
                        }
                    }
                }
            },
            ["b"],
        ),
    ],
    ids=["node name", "tolerated taint", "taint", "affinity"],
)
async def test_pods_run_only_on_nodes_that_fit(world: World, kubelet: Kubelet, spec: Object, nodes: list[str]) -> None:
    await add_nodes(world, "a")
    await add_nodes(world, "b", labels={"zone": "east"})
    await add_nodes(world, "tainted", taints=[{"key": "gpu", "effect": "NoSchedule"}])
    await world.client.create(workload(DAEMON_SET) | {"spec": selecting(**spec)})
    await kubelet.run_all()
    assert sorted(await placed(world)) == nodes


async def test_a_set_with_odd_or_many_terms_keeps_no_other_from_its_nodes(world: World, kubelet: Kubelet) -> None:
    def requiring(count: int, **term: Any) -> Object:
        terms = [{"matchExpressions": [{"key": "size", **term}]}] * count
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        return {"template": template(labels={"app": "web"}, affinity={"nodeAffinity": required})}

    for name, spec in (
        ("a-text", requiring(1, operator="Gt", values=["x"])),
        ("a-number", requiring(1, operator="Lt", values=["9" * 63])),
        ("many", requiring(2_000, operator="In", values=["5"])),
    ):
        await world.client.create(workload(DAEMON_SET, name, **spec))
    await world.client.create(workload(DAEMON_SET))
    await kubelet.run_all()
    await add_nodes(world, "a", labels={"size": "5"})
    await kubelet.run_all()
    owners = [pod["metadata"]["ownerReferences"][0]["name"] for pod in await listed(world, POD)]
    assert sorted(owners) == ["many", "web"]


async def test_sorting_nodes_by_many_terms_leaves_the_loop_to_others() -> None:
    terms: list[NodeSelectorTerm] = [
        {"matchExpressions": [{"key": f"k{number}", "operator": "Exists"}]} for number in range(10_000)
    ]
    required: NodeAffinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    placement = Placement("", Constraints({"containers": [], "affinity": {"nodeAffinity": required}}))
    nodes = [NodeFacts(f"node-{number}", {f"k{number + 9_990}": ""}, ()) for number in range(10)]
    async with counting_turns() as turns:
        assert len((await sort_nodes(placement, nodes)).wanted) == 10
    assert turns.count >= 3


async def test_a_taint_keeps_new_pods_away_and_only_no_execute_drives_out(world: World, kubelet: Kubelet) -> None:
    await add_nodes(world, "a")
    await world.client.create(workload(DAEMON_SET))
    await kubelet.run_all()
    await world.client.patch(NODE, "a", {"spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}})
    await kubelet.run_all()
    assert await placed(world) == {"a": ["1"]}
    status = await status_of(world, DAEMON_SET)
    assert (status["desiredNumberScheduled"], status["numberMisscheduled"]) == (0, 1)
    await world.client.patch(NODE, "a", {"spec": {"taints": [{"key": "gpu", "effect": "NoExecute"}]}})
    await kubelet.run_all()
    assert await placed(world) == {}


async def test_a_heartbeat_of_a_node_causes_no_work(world: World, kubelet: Kubelet) -> None:
    await add_nodes(world, "a")
    await world.client.create(workload(DAEMON_SET))
    await kubelet.run_all()
    controller = next(running for running in world.manager.controllers if running.name == "daemonset")
    before = controller.queue.added
    beat = {"type": "Ready", "status": "True", "reason": "x", "message": "y"}
    await world.client.patch(NODE, "a", {"status": {"conditions": [beat]}}, subresource="status")
    await world.settle()
    assert controller.queue.added == before


async def test_an_unbound_pod_of_a_node_that_is_gone_goes_as_well(world: World) -> None:
    await add_nodes(world, "a")
    await world.client.create(workload(DAEMON_SET))
    await world.settle()
    assert await placed(world) == {"a": ["1"]}
    await world.client.delete(NODE, "a")
    await world.settle()
    assert await placed(world) == {}


async def test_a_failed_pod_is_replaced_later_each_time(world: World, kubelet: Kubelet, clock: ManualClock) -> None:
    await add_nodes(world, "a")
    await world.client.create(workload(DAEMON_SET))
    await kubelet.run_all()
    for delay in (0, 1, 2):
        (name,) = await world.names(POD)
        await kubelet.finish(name, "Failed")
        await kubelet.run_all()
        if delay:
            assert await world.names(POD) == {name}
            await clock.advance(delay)
            await kubelet.run_all()
        assert await world.names(POD) != {name}
    assert "FailedDaemonPod" in [reason for _, reason, _ in await events(world)]


async def test_a_second_pod_on_a_node_goes(world: World, kubelet: Kubelet) -> None:
    await add_nodes(world, "a")
    made = await world.client.create(workload(DAEMON_SET))
    await kubelet.run_all()
    extra = pod("extra", ownerReferences=[owner_reference(made)])
    extra["spec"]["nodeName"] = "a"
    await world.client.create(extra)
    await kubelet.run_all()
    assert "extra" not in await world.names(POD)
    assert await placed(world) == {"a": ["1"]}


async def test_orphans_are_adopted_and_released_by_their_labels(world: World, kubelet: Kubelet) -> None:
    await add_nodes(world, "a", "b")
    orphan = pod("orphan")
    orphan["spec"]["nodeName"] = "a"
    await world.client.create(orphan)
    made = await world.client.create(workload(DAEMON_SET, updateStrategy={"type": "OnDelete"}))
    await kubelet.run_all()
    objects = {pod["metadata"]["name"]: pod for pod in await listed(world, POD)}
    assert objects["orphan"]["metadata"]["ownerReferences"] == [owner_reference(made)]
    assert len(objects) == 2
    await change(world, POD, {"metadata": {"labels": {"app": "debug"}}}, "orphan")
    await world.settle()
    released = await world.client.get(POD, "orphan", namespace="default")
    assert controller_of(released) is None
    assert len(await listed(world, POD)) == 3


# Updates


def rolling(surge: int | str = 0, unavailable: int | str = 0) -> Object:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


async def test_an_update_replaces_as_many_pods_as_may_be_unavailable(world: World, kubelet: Kubelet) -> None:
    await add_nodes(world, "a", "b", "c", "d")
    await world.client.create(workload(DAEMON_SET, updateStrategy=rolling(unavailable="50%")))
    await kubelet.run_all()
    await set_image(world, DAEMON_SET, "web:2")
    await world.settle()
    assert await placed(world) == {"c": ["1"], "d": ["1"]}
    await kubelet.run_all()
    assert set(map(tuple, (await placed(world)).values())) == {("2",)}
    status = await status_of(world, DAEMON_SET)
    assert (status["updatedNumberScheduled"], status["numberAvailable"]) == (4, 4)


async def test_an_update_stops_where_new_pods_do_not_become_ready(world: World, kubelet: Kubelet) -> None:
    await add_nodes(world, "a", "b", "c")
    await world.client.create(workload(DAEMON_SET, updateStrategy=rolling(unavailable=1)))
    await kubelet.run_all()
    kubelet.is_healthy = lambda obj: ":2" not in obj["spec"]["containers"][0]["image"]
    await set_image(world, DAEMON_SET, "web:2")
    await kubelet.run_all()
    assert await placed(world) == {"a": ["2"], "b": ["1"], "c": ["1"]}


async def test_with_surge_the_old_pod_stays_until_the_new_one_is_available(
    world: World, kubelet: Kubelet, clock: ManualClock
) -> None:
    await add_nodes(world, "a", "b", "c")
    await world.client.create(workload(DAEMON_SET, updateStrategy=rolling(surge=1), minReadySeconds=5))
    await kubelet.run_all()
    await clock.advance(5)
    await kubelet.run_all()
    await set_image(world, DAEMON_SET, "web:2")
    await kubelet.run_all()
    assert await placed(world) == {"a": ["1", "2"], "b": ["1"], "c": ["1"]}
    await clock.advance(5)
    await kubelet.run_all()
    assert await placed(world) == {"a": ["2"], "b": ["1", "2"], "c": ["1"]}
    for _ in range(3):
        await clock.advance(5)
        await kubelet.run_all()
    assert await placed(world) == {"a": ["2"], "b": ["2"], "c": ["2"]}


async def test_on_delete_updates_only_pods_that_a_user_deletes(world: World, kubelet: Kubelet) -> None:
    await add_nodes(world, "a", "b")
    await world.client.create(workload(DAEMON_SET, updateStrategy={"type": "OnDelete"}))
    await kubelet.run_all()
    await set_image(world, DAEMON_SET, "web:2")
    await kubelet.run_all()
    assert await placed(world) == {"a": ["1"], "b": ["1"]}
    name = next(pod["metadata"]["name"] for pod in await listed(world, POD) if pod["spec"]["nodeName"] == "b")
    await world.client.delete(POD, name, namespace="default")
    await kubelet.run_all()
    assert await placed(world) == {"a": ["1"], "b": ["2"]}


async def test_a_revision_is_stored_as_go_marshals_it(world: World, kubelet: Kubelet) -> None:
    await add_nodes(world, "a")
    await world.client.create(workload(DAEMON_SET))
    await kubelet.run_all()
    (revision,) = await listed(world, REVISION)
    assert orjson.dumps(revision["data"]) == orjson.dumps(revision["data"], option=orjson.OPT_SORT_KEYS)


async def test_revisions_are_numbered_reused_and_limited(world: World, kubelet: Kubelet) -> None:
    await add_nodes(world, "a")
    await world.client.create(workload(DAEMON_SET, revisionHistoryLimit=1))
    await kubelet.run_all()

    for image, expected in (
        ("web:2", {"1": 1, "2": 2}),
        ("web:1", {"1": 3, "2": 2}),
        ("web:3", {"1": 3, "3": 4}),
    ):
        await set_image(world, DAEMON_SET, image)
        await kubelet.run_all()
        assert await revision_numbers(world) == expected


async def test_a_quota_that_refuses_pods_is_reported(world: World, kubelet: Kubelet, clock: ManualClock) -> None:
    quota: Object = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "default"}}
    await world.client.create({**quota, "spec": {"hard": {"pods": "1"}}})
    await add_nodes(world, "a", "b", "c")
    await world.client.create(workload(DAEMON_SET))
    await kubelet.run_all()
    assert len(await placed(world)) == 1
    assert "FailedCreate" in [reason for _, reason, _ in await events(world)]
    status = await status_of(world, DAEMON_SET)
    assert (status["desiredNumberScheduled"], status["numberUnavailable"]) == (3, 2)
    await world.client.delete("v1/ResourceQuota", "q", namespace="default")
    await clock.advance(10)
    await kubelet.run_all()
    assert len(await placed(world)) == 3
