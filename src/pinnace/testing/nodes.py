"""The nodes of a test's cluster: simulated ones, and the scheduler, which begins with the first node of any kind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pinnace.cluster.control_plane import ControlPlane
from pinnace.cluster.server_jobs import add_scheduler
from pinnace.cluster.simulated_nodes import simulate_nodes
from pinnace.node.simulated.machines import NodeShape
from pinnace.node.simulated.nodes import SimulatedNodes
from pinnace.node.simulated.stages import Life
from pinnace.reconcile.manager import Manager
from pinnace.store.store import Change

_NODES = "/registry/core/nodes/"


@dataclass(frozen=True, slots=True)
class NodeSetup:
    """One call of `Cluster.add_nodes`."""

    count: int
    shape: NodeShape | None
    life: Life | None
    node_life: Life | None
    usage: Path | None = None


class ClusterNodes:
    """Simulates nodes, and schedules pods as soon as there is a node, also one that the test has created itself."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._controllers: Manager | None = None
        self._simulated: SimulatedNodes | None = None
        self._has_nodes = bool(plane.fanout.cache(_NODES).entries)
        self._has_scheduler = False
        self.setups: list[NodeSetup] = []

    def begin(self, controllers: Manager) -> None:
        """Begin with a manager that runs: a fork has the nodes of its origin."""
        self._controllers = controllers
        self.add_scheduler()
        for setup in self.setups:
            self._simulate(setup, controllers)

    def note_changes(self, changes: Sequence[Change]) -> None:
        """Take note of a commit: the first node brings the scheduler."""
        if not self._has_nodes and any(change.key.startswith(_NODES) for change in changes):
            self._has_nodes = True
            asyncio.get_running_loop().call_soon(self.add_scheduler)

    def add_scheduler(self) -> None:
        """Add the default scheduler if there are nodes and the built-in controllers run; once."""
        if self._has_nodes and not self._has_scheduler and self._controllers is not None:
            self._has_scheduler = True
            add_scheduler(self._plane, self._controllers)

    def add(self, setup: NodeSetup) -> SimulatedNodes:
        """Add simulated nodes. Raise ValueError if they cannot be simulated so."""
        if self._controllers is None:
            raise ValueError("simulated nodes need the built-in controllers; leave out `controllers=False`")
        if self._simulated is not None and (setup.life, setup.node_life, setup.usage) != (None, None, None):
            raise ValueError("the life of simulated pods is chosen with the first nodes; leave `life` out here")
        self.setups.append(setup)
        return self._simulate(setup, self._controllers)

    def _simulate(self, setup: NodeSetup, controllers: Manager) -> SimulatedNodes:
        nodes = self._simulated
        if nodes is None:
            nodes = self._simulated = simulate_nodes(
                self._plane, controllers, (), life=setup.life, node_life=setup.node_life, usage=setup.usage
            )
            self._has_nodes = True
            self.add_scheduler()
        first = len(nodes.names)
        nodes.add([f"node-{number}" for number in range(first, first + setup.count)], setup.shape)
        return nodes
