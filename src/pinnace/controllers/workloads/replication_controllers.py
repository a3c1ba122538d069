"""Keeps the wanted number of pods of each ReplicationController, the predecessor of the ReplicaSet."""

from __future__ import annotations

from pinnace.client.client import Client
from pinnace.controllers.workloads.replica_sets import REPLICATION_CONTROLLERS, ReplicaSets
from pinnace.reconcile.manager import Manager


def replicate(manager: Manager, client: Client) -> ReplicaSets:
    """Return the controller of ReplicationControllers."""
    return ReplicaSets(manager, client, REPLICATION_CONTROLLERS)
