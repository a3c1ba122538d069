"""An operator through everything that can happen to a server and to the way there: the end is as it is wanted."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack, suppress

import pytest
from tests.client.connecting import WAYS
from tests.faults.mortal_server import MortalServer
from tests.faults.storm import Storm
from tests.sdk.websites import Website, website, website_operator

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.reconcile.manager import Manager
from pinnace.sdk import Context, Operator
from pinnace.testing.clock import ManualClock

WEBSITE, DEPLOYMENT, SERVICE = "extensions.example.com/v1/Website", "apps/v1/Deployment", "v1/Service"
STEPS = 60
DEATHS = (0.0, 1.0, 90.0, 600.0)
"""For how long the server is gone, each time that it dies."""
MINUTES = 5 * 60.0


class World:
    """Users who make and break websites, an operator that knows nothing of it but through a storm, and a server."""

    def __init__(self, seed: int, way: str) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.server = MortalServer(self.clock, way)
        self.rented: set[str] = set()
        """The state that the operator holds outside the cluster."""
        self.wanted: dict[str, int] = {}
        """Replicas, by website."""

    def operator(self) -> Operator:
        operator = website_operator()

        @operator.on_delete(Website)
        async def give_back(site: Website, ctx: Context) -> None:
            self.rented.discard(site.name)

        @operator.reconcile(Website)
        async def rent(site: Website, ctx: Context) -> None:
            self.rented.add(site.name)

        return operator

    async def start(self) -> None:
        inner = await self.server.start()
        self.user = Client(inner, clock=self.clock)
        if self.server.deaths == 0:
            self.storm = Storm(inner, random.Random(self.chance.random()))
        self.storm.inner, self.storm.is_down = inner, False

    async def die(self, seconds: float) -> None:
        """The server is gone for a while, and so is every connection to it."""
        self.storm.is_down = True
        await self.server.kill()
        await self.storm.cut_all()
        await self.clock.advance(seconds)
        await self.start()
        await self.served()

    async def served(self) -> None:
        """Return when the server serves websites again: it reads its definitions first."""
        async with asyncio.timeout(60):
            while not await self._is_served():
                await self.clock.advance(0)

    async def _is_served(self) -> bool:
        pages = await self.user.kinds.all()
        return any(served.kind.name == "Website" for served in pages)

    async def act(self) -> None:
        """Do as users, with websites and with objects of the operator."""
        name, replicas = f"w{self.chance.randrange(5)}", self.chance.randrange(1, 9)
        match self.chance.choice(["set", "set", "delete", "break", "steal"]):
            case "set" if name in self.wanted:
                await self.user.patch(WEBSITE, name, {"spec": {"replicas": replicas}})
                self.wanted[name] = replicas
            case "set" if await self.user.get_or_none(WEBSITE, name) is None:
                await self.user.create(website(name, replicas=replicas))
                self.wanted[name] = replicas
            case "delete" if name in self.wanted:
                await self.user.delete(WEBSITE, name)
                del self.wanted[name]
            case "break":
                with suppress(errors.NotFound):  # The collector may be faster, at any moment.
                    await self.user.scale(DEPLOYMENT, name, 0)
            case "steal":
                with suppress(errors.NotFound):
                    await self.user.delete(SERVICE, name)

    async def settle(self, manager: Manager) -> None:
        """Let time pass until no part has anything left to do, later neither."""
        async with asyncio.timeout(60):
            for _ in range(3):
                managers = [manager, self.server.manager]
                settling = asyncio.gather(*(running.settle() for running in managers if running is not None))
                while not settling.done():
                    await self.clock.advance(5)
                await self.clock.advance(2000)

    async def there(self) -> dict[str, int]:
        """The replicas of each Deployment, by name."""
        deployments: list[Object] = await self.user.list(DEPLOYMENT, namespace="default")
        return {obj["metadata"]["name"]: obj["spec"]["replicas"] for obj in deployments}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(4))
async def test_the_end_is_as_it_is_wanted_whatever_happens_on_the_way(seed: int, way: str) -> None:
    world = World(seed, way)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(world.server.close)
        await world.start()
        world.storm.is_calm = True
        manager = await stack.enter_async_context(world.operator().running(Client(world.storm, clock=world.clock)))
        world.storm.is_calm = False
        began = world.clock.monotonic()
        deaths = dict(zip(world.chance.sample(range(STEPS), len(DEATHS)), DEATHS, strict=True))
        for step in range(STEPS):
            await world.storm.shake()
            await world.act()
            await world.clock.advance(world.chance.choice([0, 0.01, 1, 30]))
            if step in deaths:
                await world.die(deaths[step])
        assert world.clock.monotonic() - began > MINUTES
        assert world.server.deaths == len(DEATHS)
        assert min(world.storm.errs[err] for err in ("refused", "conflict", "busy", "lost answer", "cut")) > 0

        world.storm.is_calm = True
        await world.settle(manager)
        assert await world.there() == world.wanted
        services = await world.user.list(SERVICE, namespace="default")
        assert {obj["metadata"]["name"] for obj in services} - {"kubernetes"} == set(world.wanted)
        assert world.rented == set(world.wanted)
        left = await world.user.list(WEBSITE)
        assert {obj["metadata"]["name"]: obj["metadata"].get("deletionTimestamp") for obj in left} == dict.fromkeys(
            world.wanted
        )
