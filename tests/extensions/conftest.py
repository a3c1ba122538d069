"""A control plane of this process whose definitions are looked after, and definitions to give it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.extensions.definitions import Cluster
from tests.server.in_process import control_plane

from pinnace.cluster.in_process import in_process_client


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with control_plane() as api:
        plane = api.plane
        caring = asyncio.create_task(plane.custom_resources.run(in_process_client(plane.local())))
        yield Cluster(plane)
        caring.cancel()
