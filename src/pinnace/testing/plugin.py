"""The pytest plug-in: `cluster`, a Kubernetes API of the test's own, and `kubeconfig`, a way to it for other programs.

It is loaded in every test run of an environment that has pinnace, so it imports nothing before a test asks for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

try:
    from pytest_asyncio import fixture as async_fixture
except ImportError:
    # Whoever uses the fixtures then is told by pytest that nothing runs `async def`.
    async_fixture = pytest.fixture  # type: ignore[assignment]

if TYPE_CHECKING:
    from pinnace.testing.cluster import Cluster


@async_fixture
async def cluster() -> AsyncIterator[Cluster]:
    """A real server in this process, fresh for each test; `cluster.client` is its administrator."""
    from pinnace.testing.cluster import running_cluster  # noqa: PLC0415 - only for tests that ask for it

    async with running_cluster() as fresh:
        yield fresh


@async_fixture
async def kubeconfig(cluster: Cluster, tmp_path: Path) -> Path:
    """The path of a kubeconfig that leads to `cluster` over a socket, for kubectl and operators in any language."""
    return await cluster.listen(tmp_path)
