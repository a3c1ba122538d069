"""Requests at the limit of their size do not hold the event loop. The gate in `tests/conftest.py` judges each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from tests.hostile.test_work_is_linear import DIMENSIONS, Input
from tests.server.in_process import CONFIG_MAPS, InProcess, config_map, control_plane

LARGEST = {"finalizers": 150_000, "owners": 20_000, "unknown fields": 120_000, "expression": 4_000}
"""The sizes of the dimensions that reach the limit of a body only with more than the complexity test needs."""


@pytest.fixture
async def api() -> AsyncIterator[InProcess]:
    async with control_plane() as plane:
        await plane.made(CONFIG_MAPS, config_map("there"))
        yield plane


@pytest.mark.parametrize("name", DIMENSIONS)
async def test_a_large_request_leaves_the_loop_to_others(api: InProcess, name: str) -> None:
    size, build = DIMENSIONS[name]
    await send(api, build, size // 10)  # Compile and import what the first request needs.
    await send(api, build, LARGEST.get(name, 4 * size))


async def send(api: InProcess, build: Callable[[int], Input], size: int) -> None:
    given = build(size)
    reply = await api.call(given.method, given.target, given.body, given.content_type)
    assert reply.status < 500, reply.body[:500]
