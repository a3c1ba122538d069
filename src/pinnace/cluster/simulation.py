"""Simulated nodes in the server's process, with a scheduler for their pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pinnace.auth.users import AUTHENTICATED, MASTERS, User
from pinnace.client.client import Client
from pinnace.client.retries import Retries
from pinnace.cluster.in_process import InProcessTransport
from pinnace.cluster.nodes import Nodes
from pinnace.node.simulated.machines import NodeShape
from pinnace.node.simulated.nodes import SimulatedNodes
from pinnace.node.simulated.stages import Life
from pinnace.reconcile.manager import Manager
from pinnace.server.local import LocalApi

KUBELETS = User("system:simulated-nodes", (MASTERS,))
SCHEDULER = User("system:kube-scheduler", (AUTHENTICATED,))


class Plane(Protocol):
    """A control plane that has nodes of its own process."""

    @property
    def nodes(self) -> Nodes: ...

    @property
    def minor(self) -> str: ...

    def local(self, user: User) -> LocalApi: ...


def simulate_nodes(
    plane: Plane,
    manager: Manager,
    names: Sequence[str],
    *,
    shape: NodeShape | None = None,
    life: Life | None = None,
    node_life: Life | None = None,
) -> SimulatedNodes:
    """Add simulated nodes and a scheduler to a manager. The lives are the stages of pods and of nodes."""

    nodes = SimulatedNodes(
        manager,
        _client_of(plane, manager, KUBELETS, "kubelet"),
        version=f"v{plane.minor}.0",
        life=life,
        node_life=node_life,
        connections=plane.nodes,
    )
    for controller in nodes.controllers:
        manager.add(controller)
    add_scheduler(plane, manager)
    nodes.add(names, shape)
    return nodes


def add_scheduler(plane: Plane, manager: Manager) -> None:
    """Add the scheduler to a manager."""
    from pinnace.scheduler.scheduler import Scheduler  # noqa: PLC0415 - it loads numpy, which `pinnace up` need not wait for.

    manager.add(Scheduler(manager, _client_of(plane, manager, SCHEDULER, "kube-scheduler")).controller)


def _client_of(plane: Plane, manager: Manager, user: User, field_manager: str) -> Client:
    transport = InProcessTransport(plane.local(user))
    client = Client(transport, clock=manager.client.clock, field_manager=field_manager, retries=Retries(attempts=1))
    return client.telling(manager.informers.note_write)
