"""A new cluster for each test; its connections to webhooks are closed at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.server.in_process import (
    InProcess,
    control_plane,
)


@pytest.fixture
async def api() -> AsyncIterator[InProcess]:
    async with control_plane() as plane:
        yield plane
        await plane.plane.webhooks.close()
