"""A server with its built-in controllers, in its process and over HTTP, in time that the test owns."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.client.connecting import WAYS
from tests.controllers.world import World, running
from tests.server.in_process import control_plane
from tests.testing.both_ways import TOKENS, reached

from pinnace.auth.certificates.authority import CertificateFiles, ensure_certificates
from pinnace.cluster.controllers import controllers_of
from pinnace.cluster.settings import Settings
from pinnace.controllers.built_in import CONTROLLERS
from pinnace.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return ensure_certificates(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def left_out() -> frozenset[str]:
    """The controllers that do not run. A folder of tests may say which."""
    return frozenset()


@pytest.fixture
def settings() -> Settings | None:
    """The settings of the server, if a file of tests needs other ones."""
    return None


@pytest.fixture(params=WAYS)
async def world(
    request: pytest.FixtureRequest,
    clock: ManualClock,
    files: CertificateFiles,
    left_out: frozenset[str],
    settings: Settings | None,
) -> AsyncIterator[World]:
    only = {row.name for row in CONTROLLERS} - left_out
    async with (
        control_plane(clock=clock, tokens=TOKENS, settings=settings) as api,
        reached(api.plane, request.param) as transport_of,
    ):
        manager = controllers_of(api.plane, files, clock=clock, transport_of=transport_of, only=only)
        async with running(api, manager, transport_of, clock=clock) as world:
            yield world
