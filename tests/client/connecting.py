"""Clients of a new cluster of their own: in the same process, or over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.server.in_process import control_plane

from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.client.kubeconfig import access_of
from pinnace.client.kubeconfig_files import kubeconfig_of
from pinnace.cluster.cluster import running
from pinnace.cluster.in_process import in_process_client
from pinnace.cluster.settings import Settings

WAYS = ("in process", "over http")


@asynccontextmanager
async def connected(way: str) -> AsyncIterator[Client]:
    """A client within a block; no controller works in its cluster."""
    if way == "in process":
        async with control_plane() as api:
            yield in_process_client(api.plane.local())
    else:
        async with (
            running(Settings(controllers=False)) as cluster,
            connect(access_of(kubeconfig_of(cluster.access))) as client,
        ):
            yield client
