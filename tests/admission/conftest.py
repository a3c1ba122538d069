"""A new cluster without sockets for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.server.in_process import InProcess, control_plane


@pytest.fixture
async def api() -> AsyncIterator[InProcess]:
    async with control_plane() as plane:
        yield plane
