"""Fails each test in which the product holds the event loop for too long.

`@pytest.mark.stalls(reason=…)` is for tests that hold it on purpose.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.stall_gate import StallGate

GATE = StallGate()


def pytest_configure() -> None:
    GATE.install()
    os.environ.setdefault("PINNACE_NO_NODE", "1")  # A node takes a while to start, and few tests need one.


@pytest.fixture
def stall_gate() -> StallGate:
    return GATE


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    GATE.turns.clear()
    GATE.begin()
    yield
    if item.get_closest_marker("stalls") is None:
        for turn in GATE.turns:
            if turn.is_of_product:
                pytest.fail(str(turn), pytrace=False)
