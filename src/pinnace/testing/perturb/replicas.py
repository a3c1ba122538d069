"""Replicas of an operator: instances in this process, for operators of the SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pinnace.reconcile.manager import Manager
from pinnace.sdk.extension import Extension
from pinnace.sdk.operator.operator import Operator
from pinnace.testing.cluster import Cluster

_IDLE_TURNS = 200
"""The turns of the loop without work after which an operator has finished with what it sees."""


class Replica(Protocol):
    """One running instance of an operator."""

    @property
    def agent(self) -> str:
        """Its user agent, by which faults select it."""

    def owns(self, manager: Manager) -> bool:
        """Whether it is this manager."""

    async def finish(self) -> None:
        """Return when it has done all that follows from what it sees."""

    async def kill(self) -> None:
        """End it at once, as a crash does."""


class Launcher(Protocol):
    """Starts replicas."""

    @property
    def poll_seconds(self) -> float:
        """The real time between two looks at replicas."""

    async def start(self, agent: str) -> Replica: ...
    async def is_at_rest(self) -> bool:
        """Return whether no program outside of this process has work left, as far as its requests show."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class InProcessReplica:
    """A manager of the SDK."""

    agent: str
    cluster: Cluster
    manager: Manager

    def owns(self, manager: Manager) -> bool:
        return manager is self.manager

    async def finish(self) -> None:
        idle = 0
        while idle < _IDLE_TURNS:
            await asyncio.sleep(0)
            idle = idle + 1 if self.manager.is_idle else 0

    async def kill(self) -> None:
        await self.cluster.kill(self.manager)


@dataclass(frozen=True, slots=True, eq=False)
class InProcessLauncher:
    """Starts operators of the SDK in this process."""

    cluster: Cluster
    operator: Callable[[], Extension]
    poll_seconds: float = 0.0

    async def start(self, agent: str) -> Replica:
        operator = self.operator()
        client = self.cluster.client_with_agent(field_manager=operator.name, agent=agent)
        # Its definitions are there: only webhooks have to be registered by each replica.
        options: dict[str, Any] = (
            {"install": operator.declarations.has_endpoints} if isinstance(operator, Operator) else {}
        )
        manager = await self.cluster.run(operator, client=client, **options)
        return InProcessReplica(agent, self.cluster, manager)

    async def is_at_rest(self) -> bool:
        return True  # `Cluster.settle` knows all managers.

    async def close(self) -> None:
        """The cluster ends its managers."""
