"""A node in memory that hosts plug-ins."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.node.agent.conftest import NodeInMemory

from pinnace.cluster.cluster import running
from pinnace.cluster.in_process import in_process_client
from pinnace.cluster.settings import Settings


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[NodeInMemory]:
    async with running(Settings()) as cluster:
        made = NodeInMemory(cluster, in_process_client(cluster.plane.local()), tmp_path)
        made.has_plugins = True
        await made.start_agent()
        try:
            yield made
        finally:
            await made.stop_agent()
