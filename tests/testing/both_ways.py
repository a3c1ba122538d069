"""The plug-in's `cluster` for tests of what speaks to one: each runs in process, then over HTTPS on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from tests.client.connecting import WAYS

from pinnace.client.transport import Transport
from pinnace.cluster.control_plane import SYSTEM, ControlPlane
from pinnace.cluster.in_process import InProcessTransport
from pinnace.model.users import User
from pinnace.testing.cluster import Cluster, running_cluster
from pinnace.testing.wire import wired

IN_PROCESS, OVER_HTTP = WAYS
TOKENS = {"let-me-in": SYSTEM}
"""The settings of a control plane that serves HTTP."""

in_process_only = pytest.mark.parametrize("cluster", [IN_PROCESS], indirect=True)
"""For tests that speak to the cluster over a socket of their own, and for those that take its transport apart."""


@pytest.fixture(params=WAYS)
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    async with running_cluster(over_http=request.param == OVER_HTTP) as fresh:
        yield fresh


@asynccontextmanager
async def reached(plane: ControlPlane, way: str) -> AsyncIterator[Callable[[User], Transport]]:
    """The way to a control plane as any user."""
    if way == IN_PROCESS:
        yield lambda user: InProcessTransport(plane.local(user))
    else:
        (token,) = TOKENS
        async with wired(plane, token) as wire:
            yield wire.transport
