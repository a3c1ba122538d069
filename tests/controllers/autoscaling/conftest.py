"""A cluster with ReplicaSets, autoscalers and metrics that the test fills in."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.controllers.autoscaling.metrics import FakeMetrics, MetricsTransport
from tests.controllers.world import World, running
from tests.server.in_process import control_plane

from pinnace.client.transport import Transport
from pinnace.cluster.controllers import controllers_of
from pinnace.cluster.in_process import InProcessTransport
from pinnace.model.users import User
from pinnace.testing.clock import ManualClock

ONLY = ("replicaset-controller", "horizontal-pod-autoscaler-controller")


@pytest.fixture
def metrics(clock: ManualClock) -> FakeMetrics:
    return FakeMetrics(clock)


@pytest.fixture
async def world(clock: ManualClock, metrics: FakeMetrics) -> AsyncIterator[World]:
    async with control_plane(clock=clock) as api:

        def transport_of(user: User) -> Transport:
            return MetricsTransport(InProcessTransport(api.plane.local(user)), metrics)

        manager = controllers_of(api.plane, None, clock=clock, transport_of=transport_of, only=ONLY)
        async with running(api, manager, transport_of, clock=clock) as world:
            yield world
