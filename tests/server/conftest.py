"""A new cluster without sockets for each test, and what to put in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.server.in_process import CONFIG_MAPS, InProcess, config_map, control_plane
from tests.server.roles import BOB, as_user


@pytest.fixture
async def api() -> AsyncIterator[InProcess]:
    async with control_plane() as plane:
        yield plane


@pytest.fixture
def bob(api: InProcess) -> InProcess:
    """Requests of a user without any role."""
    return as_user(api, BOB)


@pytest.fixture
async def alone(api: InProcess) -> InProcess:
    """The namespace `default` without the config maps that every namespace has."""
    assert (await api.delete(CONFIG_MAPS)).status == 200
    return api


async def fill(api: InProcess, count: int, *, size: int = 1, start: int = 0) -> list[str]:
    names = [f"cm-{number:04}" for number in range(start, start + count)]
    for name in names:
        await api.made(CONFIG_MAPS, config_map(name, data={"a": "x" * size}))
    return names


def short(event: dict[str, Any]) -> tuple[str, str]:
    """Return the type of an event and the name of its object."""
    return event["type"], event["object"]["metadata"].get("name", "")
