"""After all events, in any order, StatefulSets and DaemonSets converge, and stay within their limits and quotas."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.controllers.kubelet import Kubelet, is_ready, pinned_to
from tests.controllers.workloads.objects import (
    DAEMON_SET,
    DEPLOYMENT,
    POD,
    STATEFUL_SET,
    listed,
    set_image,
    status_of,
    workload,
)
from tests.controllers.workloads.test_daemon_sets import NODE, add_nodes, rolling
from tests.controllers.world import World
from tests.server.in_process import control_plane

from pinnace.cluster.controllers import controllers_of
from pinnace.cluster.in_process import InProcessTransport
from pinnace.model.objects import Object
from pinnace.testing.clock import ManualClock

CONTROLLERS = (
    "replicaset-controller",
    "deployment-controller",
    "statefulset-controller",
    "daemonset-controller",
    "resourcequota-controller",
)
FEW = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@dataclass(frozen=True)
class Step:
    """One thing that happens: an update, a scaling or another node, or the kubelet's work on some pods."""

    what: str
    number: int


STEPS = st.lists(
    st.builds(Step, st.sampled_from(["update", "resize", "run", "run", "run"]), st.integers(0, 4)),
    min_size=3,
    max_size=9,
)


@asynccontextmanager
async def small_world() -> AsyncIterator[tuple[World, Kubelet]]:
    clock = ManualClock()
    async with control_plane(clock=clock) as api:
        manager = controllers_of(api.plane, None, clock=clock, only=CONTROLLERS)
        world = World(lambda user: InProcessTransport(api.plane.local(user)), manager)
        async with manager.running():
            yield world, Kubelet(world)


async def run_some(world: World, kubelet: Kubelet, number: int) -> None:
    for pod in (await listed(world, POD))[: number + 1]:
        await kubelet.advance(pod)


def stays(pod: Object) -> bool:
    return "deletionTimestamp" not in pod["metadata"]


# StatefulSets


@given(policy=st.sampled_from(["OrderedReady", "Parallel"]), start=st.integers(0, 2), steps=STEPS)
@FEW
def test_a_stateful_set_converges_one_pod_at_a_time(policy: str, start: int, steps: list[Step]) -> None:
    asyncio.run(_play_stateful(policy, start, steps))


async def _play_stateful(policy: str, start: int, steps: list[Step]) -> None:
    async with small_world() as (world, kubelet):
        ordinals = {"start": start}
        made = workload(STATEFUL_SET, replicas=2, serviceName="web", podManagementPolicy=policy, ordinals=ordinals)
        await world.client.create(made)
        await world.settle()
        for step in steps:
            if step.what == "update":
                await set_image(world, STATEFUL_SET, f"web:{step.number}")
            elif step.what == "resize":
                await world.client.scale(STATEFUL_SET, "web", step.number, namespace="default")
            else:
                await run_some(world, kubelet, step.number)
            await world.settle()
            pods = await listed(world, POD)
            starting = [pod for pod in pods if stays(pod) and not is_ready(pod)]
            ending = [pod for pod in pods if not stays(pod)]
            # A pod that a rolling update has deleted does not stop a scaling down, in Kubernetes either.
            assert policy == "Parallel" or (len(starting) <= 1 and len(ending) <= 2)
        await kubelet.run_all()
        await _check_stateful(world, start)


async def _check_stateful(world: World, start: int) -> None:
    obj = await world.client.get(STATEFUL_SET, "web", namespace="default")
    wanted, status = obj["spec"]["replicas"], obj["status"]
    pods = await listed(world, POD)
    assert {pod["metadata"]["name"] for pod in pods} == {f"web-{start + at}" for at in range(wanted)}
    image = obj["spec"]["template"]["spec"]["containers"][0]["image"]
    assert {pod["spec"]["containers"][0]["image"] for pod in pods} <= {image}
    assert (status["replicas"], status.get("readyReplicas", 0)) == (wanted, wanted)
    assert status["currentRevision"] == status["updateRevision"]


# DaemonSets


@given(is_surge=st.booleans(), amount=st.integers(1, 2), steps=STEPS)
@FEW
def test_a_daemon_set_converges_within_its_limits(is_surge: bool, amount: int, steps: list[Step]) -> None:
    asyncio.run(_play_daemon(rolling(surge=amount) if is_surge else rolling(unavailable=amount), steps))


async def _play_daemon(strategy: Object, steps: list[Step]) -> None:
    async with small_world() as (world, kubelet):
        await add_nodes(world, "a", "b", "c")
        await world.client.create(workload(DAEMON_SET, updateStrategy=strategy))
        await kubelet.run_all()
        new_nodes = 0
        for step in steps:
            before = await _working_nodes(world)
            if step.what == "update":
                await set_image(world, DAEMON_SET, f"web:{step.number}")
            elif step.what == "resize" and step.number % 2:
                new_nodes += 1
                await add_nodes(world, f"new-{new_nodes}")
            elif step.what == "resize":
                await world.client.patch(NODE, "a", {"metadata": {"labels": {"note": str(step.number)}}})
            else:
                await run_some(world, kubelet, step.number)
            await world.settle()
            await _check_daemon(world, strategy, before)
        await kubelet.run_all()
        status = await status_of(world, DAEMON_SET)
        counts = {status[name] for name in ("desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable")}
        assert counts == {3 + new_nodes} == {len(await listed(world, POD))}


async def _working_nodes(world: World) -> set[str]:
    return {pinned_to(pod) for pod in await listed(world, POD) if stays(pod) and is_ready(pod)}


async def _check_daemon(world: World, strategy: Object, working_before: set[str]) -> None:
    surge, unavailable = (strategy["rollingUpdate"][name] for name in ("maxSurge", "maxUnavailable"))
    pods = Counter(pinned_to(pod) for pod in await listed(world, POD) if stays(pod))
    assert max(pods.values(), default=0) <= (2 if surge else 1)
    assert sum(count > 1 for count in pods.values()) <= surge
    nodes = len(await world.client.list(NODE))
    assert len(await _working_nodes(world)) >= min(len(working_before), nodes - unavailable)


# Quotas


@given(steps=STEPS)
@FEW
def test_no_rollout_exceeds_a_quota(steps: list[Step]) -> None:
    asyncio.run(_play_quota(steps))


async def _play_quota(steps: list[Step]) -> None:
    most = 3
    async with small_world() as (world, kubelet):
        metadata = {"name": "most", "namespace": "default"}
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": metadata,
            "spec": {"hard": {"pods": str(most)}},
        }
        await world.client.create(quota)
        await world.settle()
        await world.client.create(workload(DEPLOYMENT, replicas=2))
        await kubelet.run_all()
        for step in steps:
            if step.what == "update":
                await set_image(world, DEPLOYMENT, f"web:{step.number}")
            elif step.what == "resize":
                await world.client.scale(DEPLOYMENT, "web", 2 * step.number, namespace="default")
            else:
                await run_some(world, kubelet, step.number)
            await world.settle()
            assert len(await listed(world, POD)) <= most
        await world.client.patch("v1/ResourceQuota", "most", {"spec": {"hard": {"pods": "50"}}}, namespace="default")
        await _run_until_complete(world, kubelet)


async def _run_until_complete(world: World, kubelet: Kubelet) -> None:
    """Run pods and let time pass: a ReplicaSet whose pods were refused tries again by and by."""
    clock = world.client.clock
    assert isinstance(clock, ManualClock)
    obj: Object = {}
    for _ in range(30):
        await kubelet.run_all()
        obj = await world.client.get(DEPLOYMENT, "web", namespace="default")
        if len(await listed(world, POD)) == obj["status"].get("availableReplicas", 0) == obj["spec"]["replicas"]:
            return
        await clock.advance(60)
    raise AssertionError(f"the rollout did not go on: {obj['status']}")
