"""A server in this process and clients of it, there and over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.client.connecting import WAYS
from tests.server.in_process import control_plane
from tests.testing.both_ways import TOKENS, reached

from pinnace.client.client import Client
from pinnace.cluster.control_plane import SYSTEM
from pinnace.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=WAYS)
async def client(request: pytest.FixtureRequest, clock: ManualClock) -> AsyncIterator[Client]:
    async with control_plane(clock=clock, tokens=TOKENS) as api, reached(api.plane, request.param) as transport_of:
        yield Client(transport_of(SYSTEM), clock=clock)
