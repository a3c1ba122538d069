"""A server in this process and clients of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.server.in_process import control_plane

from pinnace.client.client import Client
from pinnace.cluster.in_process import in_process_client
from pinnace.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def client(clock: ManualClock) -> AsyncIterator[Client]:
    async with control_plane(clock=clock) as api:
        yield in_process_client(api.plane.local(), clock=clock)
