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

    def client_of(user: User, field_manager: str) -> Client:
        transport = InProcessTransport(plane.local(user))
        client = Client(transport, clock=manager.client.clock, field_manager=field_manager, retries=Retries(attempts=1))
        return client.telling(manager.informers.note_write)

    nodes = SimulatedNodes(
        manager,
        client_of(KUBELETS, "kubelet"),
        version=f"v{plane.minor}.0",
        life=life,
        node_life=node_life,
        connections=plane.nodes,
    )
    from pinnace.scheduler.scheduler import Scheduler  # noqa: PLC0415 - it loads numpy, which `pinnace up` need not wait for.

    scheduler = Scheduler(manager, client_of(SCHEDULER, "kube-scheduler"))
    for controller in (*nodes.controllers, scheduler.controller):
        manager.add(controller)
    nodes.add(names, shape)
    return nodes
