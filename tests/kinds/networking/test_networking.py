"""Ingresses, network policies, IP addresses and ranges of Services are stored and rejected as in Kubernetes."""

from __future__ import annotations

import pytest
from tests.kinds.recorded_writes import Write, answer_here, answer_recorded, recorded


@pytest.mark.parametrize("write", recorded("networking"), ids=lambda write: write["name"])
def test_the_answer_is_that_of_a_real_server(write: Write) -> None:
    assert answer_here(write) == answer_recorded(write)
