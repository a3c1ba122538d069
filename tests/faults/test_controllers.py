"""Controllers reach the desired state despite every fault of the connection."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from tests.client.connecting import WAYS
from tests.faults.storm import Storm
from tests.server.in_process import config_map, control_plane, deployment
from tests.testing.both_ways import TOKENS, reached

from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.client.kubeconfig import access_of
from pinnace.client.kubeconfig_files import kubeconfig_of
from pinnace.client.transport import ConnectionLost
from pinnace.cluster.cluster import running
from pinnace.cluster.control_plane import SYSTEM
from pinnace.cluster.settings import Settings
from pinnace.model.objects import Key
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.manager import Manager
from pinnace.reconcile.owners import set_owner
from pinnace.testing.clock import ManualClock

DEPLOYMENT = "apps/v1/Deployment"
CONFIG_MAP = "v1/ConfigMap"


def copier(manager: Manager) -> Controller:
    """Keeps a ConfigMap like each Deployment."""
    deployments = manager.cache(DEPLOYMENT, namespace="default")

    async def reconcile(key: Key) -> None:
        owner = deployments.get(key)
        if owner is None:
            copy = await manager.client.get_or_none(CONFIG_MAP, f"for-{key.name}", namespace=key.namespace)
            if copy is not None:
                await manager.client.delete(CONFIG_MAP, f"for-{key.name}", namespace=key.namespace)
            return
        wanted = config_map(f"for-{key.name}", {"replicas": str(owner["spec"]["replicas"])}, namespace=key.namespace)
        set_owner(wanted, owner)
        await manager.client.apply(wanted, force=True)

    controller = Controller("copier", reconcile, workers=3)
    return controller.for_(DEPLOYMENT, namespace="default").owns(CONFIG_MAP, namespace="default")


async def settled(manager: Manager, clock: ManualClock) -> None:
    """Let time pass until there is nothing left to do, later neither."""
    async with asyncio.timeout(60):
        for _ in range(2):
            settling = asyncio.create_task(manager.settle())
            while not settling.done():
                await clock.advance(5)
            await clock.advance(2000)
        await manager.settle()


async def copies(client: Client) -> dict[str, str]:
    listed = await client.list(CONFIG_MAP, namespace="default")
    return {
        obj["metadata"]["name"]: obj["data"]["replicas"] for obj in listed if obj["metadata"]["name"].startswith("for-")
    }


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(5))
async def test_a_storm_changes_nothing_in_the_end(seed: int, way: str) -> None:
    chance, clock = random.Random(seed), ManualClock()
    async with control_plane(clock=clock, tokens=TOKENS) as api, reached(api.plane, way) as transport_of:
        inner = transport_of(SYSTEM)
        storm = Storm(inner, chance)
        user = Client(inner, clock=clock)
        manager = Manager(Client(storm, clock=clock))
        manager.add(copier(manager))
        wanted: dict[str, str] = {}

        async def act() -> None:
            """Do something that a user, or another controller, may do."""
            name, replicas = f"d{chance.randrange(6)}", chance.randrange(1, 9)
            match chance.choice(["set", "set", "delete", "break", "steal"]):
                case "set" if f"for-{name}" in wanted:
                    await user.scale(DEPLOYMENT, name, replicas)
                    wanted[f"for-{name}"] = str(replicas)
                case "set":
                    await user.create(deployment(name, replicas=replicas))
                    wanted[f"for-{name}"] = str(replicas)
                case "delete" if f"for-{name}" in wanted:
                    await user.delete(DEPLOYMENT, name)
                    del wanted[f"for-{name}"]
                case "break" if await user.get_or_none(CONFIG_MAP, f"for-{name}"):
                    await user.patch(CONFIG_MAP, f"for-{name}", {"data": {"replicas": "wrong"}})
                case "steal" if await user.get_or_none(CONFIG_MAP, f"for-{name}"):
                    await user.delete(CONFIG_MAP, f"for-{name}")

        running_manager = asyncio.create_task(manager.run())
        for _ in range(60):
            await act()
            await storm.shake()
            await clock.advance(chance.choice([0, 0, 0.01, 1, 30]))
        storm.is_calm = True
        await settled(manager, clock)
        assert await copies(user) == wanted
        assert min(storm.errs[err] for err in ("refused", "conflict", "busy", "lost answer", "cut")) > 0
        running_manager.cancel()
        await asyncio.wait([running_manager])


async def test_a_server_that_is_killed_and_started_again_is_followed_on(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    async with asyncio.timeout(60):
        async with running(Settings(controllers=False, data_dir=directory)) as cluster:
            port = cluster.server.port
            access = access_of(kubeconfig_of(cluster.access))
            operator, user = connect(access), connect(access)
            manager = Manager(operator)
            manager.add(copier(manager))
            task = asyncio.create_task(manager.run())
            await user.create(deployment("web", replicas=2))
            await manager.settle()
        with pytest.raises(ConnectionLost):
            await user._exchange.transport.request("GET", "/version", b"", {})
        async with running(Settings(controllers=False, data_dir=directory, port=port)):
            await user.scale(DEPLOYMENT, "web", 4)
            await manager.settle()
            assert await copies(user) == {"for-web": "4"}
            task.cancel()
            await asyncio.wait([task])
            await operator.close()
            await user.close()
