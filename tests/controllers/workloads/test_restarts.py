"""A manager that is killed between any two writes loses nothing and makes nothing twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from tests.controllers.kubelet import Kubelet
from tests.controllers.mortality import Journal, live
from tests.controllers.workloads.objects import (
    DAEMON_SET,
    DEPLOYMENT,
    POD,
    REPLICA_SET,
    STATEFUL_SET,
    listed,
    set_image,
    status_of,
    workload,
)
from tests.controllers.world import World
from tests.server.in_process import InProcess, control_plane

from pinnace.cluster.controllers import controllers_of
from pinnace.cluster.in_process import InProcessTransport
from pinnace.model.objects import Object
from pinnace.testing.clock import ManualClock

CONTROLLERS = (
    "replicaset-controller",
    "deployment-controller",
    "statefulset-controller",
    "daemonset-controller",
)
LIVES = pytest.mark.parametrize("writes", [1, 2, 3, 7])


@dataclass(slots=True)
class Mortals:
    """A cluster whose managers live for a few writes each."""

    api: InProcess
    clock: ManualClock
    world: World
    kubelet: Kubelet
    journal: Journal

    async def run_all(self, writes: int) -> None:
        """Start managers, one after the other, and run pods in between, until one comes to rest and no pod changes."""
        for _ in range(300):
            is_at_rest = await live(self.api, self.clock, only=CONTROLLERS, writes=writes, journal=self.journal)
            has_changed = await self.kubelet.step()
            if is_at_rest and not has_changed:
                return
        raise AssertionError("the controllers do not come to rest")


@pytest.fixture
async def mortals(clock: ManualClock) -> AsyncIterator[Mortals]:
    async with control_plane(clock=clock) as api:
        idle = controllers_of(api.plane, None, clock=clock, only=("none",))
        world = World(lambda user: InProcessTransport(api.plane.local(user)), idle)
        yield Mortals(api, clock, world, Kubelet(world), Journal())


async def images(world: World) -> list[str]:
    return [pod["spec"]["containers"][0]["image"].removeprefix("example.com/") for pod in await listed(world, POD)]


@LIVES
async def test_a_replica_set_creates_each_pod_once(mortals: Mortals, writes: int) -> None:
    await mortals.world.client.create(workload(REPLICA_SET, replicas=6))
    await mortals.run_all(writes)
    assert (await status_of(mortals.world, REPLICA_SET))["availableReplicas"] == 6
    assert mortals.journal.count("pods") == len(await listed(mortals.world, POD)) == 6


@LIVES
async def test_a_deployment_is_rolled_out_once(mortals: Mortals, writes: int) -> None:
    await mortals.world.client.create(workload(DEPLOYMENT, replicas=4))
    await mortals.run_all(writes)
    await set_image(mortals.world, DEPLOYMENT, "web:2")
    await mortals.run_all(writes)
    assert await images(mortals.world) == ["web:2"] * 4
    assert (mortals.journal.count("pods"), mortals.journal.count("replicasets")) == (8, 2)
    status = await status_of(mortals.world, DEPLOYMENT)
    assert (status["updatedReplicas"], status["availableReplicas"], status["replicas"]) == (4, 4, 4)
    reasons = {condition["type"]: condition["reason"] for condition in status["conditions"]}
    assert reasons == {"Available": "MinimumReplicasAvailable", "Progressing": "NewReplicaSetAvailable"}


@LIVES
async def test_a_stateful_set_is_updated_once(mortals: Mortals, writes: int) -> None:
    template = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    wanted = workload(STATEFUL_SET, replicas=3, serviceName="db", volumeClaimTemplates=[template])
    await mortals.world.client.create(wanted)
    await mortals.run_all(writes)
    await set_image(mortals.world, STATEFUL_SET, "web:2")
    await mortals.run_all(writes)
    assert await images(mortals.world) == ["web:2"] * 3
    created = {plural: mortals.journal.count(plural) for plural in ("pods", "persistentvolumeclaims")}
    assert created == {"pods": 6, "persistentvolumeclaims": 3}
    assert mortals.journal.count("controllerrevisions") == 2
    status = await status_of(mortals.world, STATEFUL_SET)
    assert status["currentRevision"] == status["updateRevision"]


@LIVES
async def test_a_daemon_set_is_updated_once(mortals: Mortals, writes: int) -> None:
    for name in ("a", "b", "c"):
        node: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        await mortals.world.client.create(node)
        await mortals.world.client.patch("v1/Node", name, {"spec": {"taints": None}})
    await mortals.world.client.create(workload(DAEMON_SET))
    await mortals.run_all(writes)
    await set_image(mortals.world, DAEMON_SET, "web:2")
    await mortals.run_all(writes)
    assert await images(mortals.world) == ["web:2"] * 3
    assert (mortals.journal.count("pods"), mortals.journal.count("controllerrevisions")) == (6, 2)
