"""A server in this process with its built-in controllers running, in time that the test owns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.controllers.world import World
from tests.server.in_process import control_plane

from pinnace.auth.certificates import CertificateFiles, ensure_certificates
from pinnace.cluster.controllers import controllers_of
from pinnace.cluster.in_process import in_process_client
from pinnace.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return ensure_certificates(tmp_path_factory.mktemp("pki"))


@pytest.fixture
async def world(clock: ManualClock, files: CertificateFiles) -> AsyncIterator[World]:
    async with control_plane(clock=clock) as api:
        manager = controllers_of(api.plane, files, clock=clock)
        client = in_process_client(api.plane.local(), clock=clock)
        definitions = asyncio.create_task(api.plane.custom_resources.run(client))
        async with manager.running():
            await manager.settle()
            yield World(client, manager, api.plane)
        definitions.cancel()
