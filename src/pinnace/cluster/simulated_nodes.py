"""Simulated nodes in the server's process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pinnace.auth.authorization.nodes import GROUP as NODES
from pinnace.client.client import Client
from pinnace.client.exchange import Retries
from pinnace.cluster.control_plane import ControlPlane
from pinnace.cluster.in_process import InProcessTransport
from pinnace.metrics.resource_metrics import (
    AnnotatedUsage,
    UsageObjects,
    UsageSource,
    add_usage_source,
)
from pinnace.model.users import MASTERS, User
from pinnace.node.simulated.machines import NodeShape
from pinnace.node.simulated.nodes import SimulatedNodes
from pinnace.node.simulated.stages import Life
from pinnace.reconcile.manager import Manager

PROVIDER = User("system:simulated-nodes", (MASTERS,))
"""Sets labels and runs the parts of stages that no kubelet may write, as the owner of the machines would."""


def simulate_nodes(
    plane: ControlPlane,
    manager: Manager,
    names: Sequence[str],
    *,
    shape: NodeShape | None = None,
    life: Life | None = None,
    node_life: Life | None = None,
    usage: Path | None = None,
) -> SimulatedNodes:
    """Add simulated nodes to a manager. The lives are the stages of pods and of nodes, `usage` a file for their pods.

    Each node writes its Node, its lease, statuses and the end of its pods as system:node:NAME, with the rights of a
    node.
    """
    _add_usage_sources(plane, manager, usage)
    transport = InProcessTransport(plane.local(PROVIDER))
    client = Client(transport, clock=manager.client.clock, field_manager="kubelet", retries=Retries(attempts=1))
    client = client.telling(manager.informers.note_write)

    def kubelet(name: str) -> Client:
        return client.over(InProcessTransport(plane.local(User(f"system:node:{name}", (NODES,)))))

    nodes = SimulatedNodes(
        manager,
        client,
        kubelet,
        version=f"v{plane.minor}.0",
        life=life,
        node_life=node_life,
        connections=plane.nodes,
    )
    for controller in nodes.controllers:
        manager.add(controller)
    nodes.add(names, shape)
    return nodes


def _add_usage_sources(plane: ControlPlane, manager: Manager, usage: Path | None) -> None:
    """Serve the usage of simulated pods: by a recorded file, by KWOK's objects, or by annotations."""
    clock, recorder = manager.client.clock, manager.recorder

    def add(source: UsageSource) -> None:
        add_usage_source(plane.aggregation.api_services, plane.fanout, clock, source)

    def report(document: Mapping[str, Any], message: str) -> None:
        if "uid" in (document.get("metadata") or {}):  # Those of a file are no objects.
            recorder.record(dict(document), "Warning", "InvalidUsage", message, component="kwok")

    path = usage if usage is not None and usage.suffix in (".yaml", ".yml") else None
    if usage is not None and path is None:
        # Most simulations have no such file.
        from pinnace.metrics.recorded_usage import RecordedUsage  # noqa: PLC0415
        from pinnace.node.simulated.usage_files import read_usage  # noqa: PLC0415

        add(RecordedUsage(read_usage(usage), plane.fanout, clock))

    def express() -> UsageSource:
        # CEL takes long to load, and few simulations have such objects.
        from pinnace.metrics.expressed_usage import ExpressedUsage  # noqa: PLC0415
        from pinnace.node.simulated.kwok.usage import UsageExpressions, load_usages  # noqa: PLC0415

        files = load_usages(path, UsageExpressions(clock)) if path is not None else []
        return ExpressedUsage(plane.fanout, clock, files=files, report=report)

    add(express() if path is not None else UsageObjects(plane.fanout, express))
    add(AnnotatedUsage())
