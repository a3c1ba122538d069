"""Run a custom scheduler: follow the cluster and bind its pods, or serve its functions as an extender."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, fields
from typing import Any, Protocol

from pinnace.client.client import Client
from pinnace.reconcile.leader import LeaderElection
from pinnace.reconcile.manager import Manager
from pinnace.scheduler.configuration import SchedulerConfiguration
from pinnace.scheduler.framework.profile import Profile
from pinnace.scheduler.framework.registry import PluginRegistry
from pinnace.scheduler.scheduler import Scheduler as SchedulerLoop
from pinnace.sdk.operator.metrics_server import metrics_listening
from pinnace.sdk.scheduling.extender_server import ExtenderServer, extender_listening


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerOptions:
    """How a scheduler runs: the options of `Scheduler.run`."""

    leader_election: bool = False
    metrics_port: int | None = None
    extender_port: int | None = None
    extender_host: str = "127.0.0.1"

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> SchedulerOptions:
        """Return its own of the options that operators and schedulers share."""
        return cls(**{one.name: options[one.name] for one in fields(cls) if one.name in options})


class Declared(Protocol):
    """The declarations of a custom scheduler."""

    @property
    def name(self) -> str: ...
    def configuration(self) -> SchedulerConfiguration: ...
    def registry(self) -> PluginRegistry: ...
    def own_profile(self) -> Profile: ...


@asynccontextmanager
async def running(scheduler: Declared, client: Client, options: SchedulerOptions) -> AsyncIterator[Manager]:
    """Run a scheduler within a block, which begins when its caches are full."""
    async with AsyncExitStack() as stack:
        is_extender = options.extender_port is not None
        leader = LeaderElection(client, scheduler.name) if options.leader_election and not is_extender else None
        manager = Manager(client, name=scheduler.name, leader=leader)
        loop = SchedulerLoop(manager, client, configuration=scheduler.configuration(), registry=scheduler.registry())
        if is_extender:
            server = ExtenderServer(scheduler.own_profile(), loop.state)
            await stack.enter_async_context(
                extender_listening(server, options.extender_port or 0, host=options.extender_host)
            )
        else:
            manager.add(loop.controller)
        if options.metrics_port is not None:
            await stack.enter_async_context(metrics_listening(manager, options.metrics_port))
        yield await stack.enter_async_context(manager.running())
