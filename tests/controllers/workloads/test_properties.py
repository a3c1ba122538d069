"""Deployments converge after any sequence of events, and never have too many or too few pods."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, cast

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.controllers.kubelet import Kubelet, is_ready
from tests.controllers.workloads.objects import (
    DEPLOYMENT,
    POD,
    change,
    listed,
    set_image,
    status_of,
    workload,
)
from tests.controllers.world import World
from tests.server.in_process import control_plane

from pinnace.cluster.controllers import controllers_of
from pinnace.cluster.in_process import InProcessTransport
from pinnace.controllers.workloads.deployment_sizes import max_surge, max_unavailable, new_size, old_sizes, total
from pinnace.model.typed_objects import Deployment, ReplicaSet
from pinnace.testing.clock import ManualClock

CONTROLLERS = ("replicaset-controller", "deployment-controller")


@dataclass(frozen=True)
class Step:
    """One thing that happens: an update, a scaling, a pause, or the kubelet's work on some pods."""

    what: str
    number: int


AMOUNTS = st.one_of(st.integers(0, 3), st.integers(0, 100).map(lambda share: f"{share}%"))
STEPS = st.builds(Step, st.sampled_from(["update", "scale", "pause", "run", "run", "run"]), st.integers(0, 6))


@given(surge=AMOUNTS, unavailable=AMOUNTS, steps=st.lists(STEPS, min_size=3, max_size=10))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_deployment_converges_within_its_limits(surge: int | str, unavailable: int | str, steps: list[Step]) -> None:
    if str(surge).rstrip("%") == str(unavailable).rstrip("%") == "0":
        unavailable = 1  # Both at once are refused.
    asyncio.run(_play(surge, unavailable, steps))


async def _play(surge: int | str, unavailable: int | str, steps: list[Step]) -> None:
    clock = ManualClock()
    async with control_plane(clock=clock) as api:
        manager = controllers_of(api.plane, None, clock=clock, only=CONTROLLERS)
        world = World(lambda user: InProcessTransport(api.plane.local(user)), manager)
        async with manager.running():
            await _roll(world, Kubelet(world), surge, unavailable, steps)


async def _roll(world: World, kubelet: Kubelet, surge: int | str, unavailable: int | str, steps: list[Step]) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
    await world.client.create(workload(DEPLOYMENT, replicas=4, strategy=strategy))
    await kubelet.run_all()
    for step in steps:
        working = await _working(world)
        if step.what == "update":
            await set_image(world, DEPLOYMENT, f"web:{step.number}")
        elif step.what == "scale":
            await world.client.scale(DEPLOYMENT, "web", step.number, namespace="default")
        elif step.what == "pause":
            await change(world, DEPLOYMENT, {"spec": {"paused": bool(step.number % 2)}})
        else:
            await _run_some(world, kubelet, step.number)
        await world.settle()
        await _check(world, working)
    await change(world, DEPLOYMENT, {"spec": {"paused": False}})
    await kubelet.run_all()
    deployment = await world.client.get(Deployment, "web", namespace="default")
    wanted = deployment["spec"]["template"]["spec"]["containers"]
    pods = await listed(world, POD)
    assert [pod["spec"]["containers"][0]["image"] for pod in pods] == [wanted[0]["image"]] * deployment["spec"][
        "replicas"
    ]
    assert (await status_of(world, DEPLOYMENT)).get("availableReplicas", 0) == len(pods)


async def _run_some(world: World, kubelet: Kubelet, number: int) -> None:
    """Let the first pods that wait for the kubelet go on."""
    for pod in (await listed(world, POD))[: number + 1]:
        await kubelet.advance(pod)


async def _working(world: World) -> int:
    pods = await listed(world, POD)
    return sum(is_ready(pod) and "deletionTimestamp" not in pod["metadata"] for pod in pods)


async def _check(world: World, working_before: int) -> None:
    deployment = await world.client.get(Deployment, "web", namespace="default")
    wanted = deployment["spec"]["replicas"]
    staying = [pod for pod in await listed(world, POD) if "deletionTimestamp" not in pod["metadata"]]
    assert len(staying) <= wanted + max_surge(deployment)
    least = min(working_before, wanted - max_unavailable(deployment))
    assert await _working(world) >= least
    assert total(await world.client.list(ReplicaSet)) <= wanted + max_surge(deployment)


# The arithmetic alone, with far more cases


def _set(name: str, replicas: int, available: int) -> ReplicaSet:
    metadata = {"name": name, "creationTimestamp": f"2026-01-01T00:00:0{name[-1]}Z"}
    made = {"metadata": metadata, "spec": {"replicas": replicas}, "status": {"availableReplicas": available}}
    return cast("ReplicaSet", made)


@given(
    replicas=st.integers(0, 30),
    surge=AMOUNTS,
    unavailable=AMOUNTS,
    sizes=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 40)), min_size=1, max_size=5),
)
@settings(max_examples=500)
def test_no_step_of_a_rollout_exceeds_its_limits(
    replicas: int, surge: int | str, unavailable: int | str, sizes: list[tuple[int, int]]
) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
    deployment: Any = {"spec": {"replicas": replicas, "strategy": strategy}}
    new, *old = [_set(f"rs-{at}", size, available) for at, (size, available) in enumerate(sizes)]
    before = total([new, *old])
    most, least = replicas + max_surge(deployment), replicas - max_unavailable(deployment)
    grown = new_size(deployment, new, [new, *old])
    assert grown <= replicas
    assert grown <= new["spec"]["replicas"] or before - new["spec"]["replicas"] + grown <= most

    def working(shrunk: dict[str, int]) -> int:
        """How many available pods are left for sure: those beyond the size of their set go."""
        kept = ((obj, shrunk.get(obj["metadata"]["name"], obj["spec"]["replicas"])) for obj in [new, *old])
        return sum(min(size, obj["status"]["availableReplicas"]) for obj, size in kept)

    shrunk = dict(old_sizes(deployment, new, old))
    assert all(size >= 0 for size in shrunk.values())
    assert working(shrunk) >= min(working({}), least)
