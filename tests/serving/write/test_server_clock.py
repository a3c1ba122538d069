"""Times that the server writes into objects come from its own clock."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.in_process import control_plane, pod

from pinnace.testing.clock import ManualClock

NOW = "2026-01-01T00:00:00Z"
GATED = pod("gated", schedulingGates=[{"name": "example.com/wait"}])
LOCAL = {
    "metadata": {"name": "v1.example.com"},
    "spec": {"group": "example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15},
}


@pytest.mark.parametrize(
    ("target", "body"),
    [
        pytest.param("/api/v1/namespaces/default/pods", GATED, id="the condition of a gated pod"),
        pytest.param("/apis/apiregistration.k8s.io/v1/apiservices", LOCAL, id="the condition of a local APIService"),
    ],
)
async def test_conditions_are_dated_by_the_server_s_clock(target: str, body: dict[str, Any]) -> None:
    async with control_plane(clock=ManualClock()) as api:
        made = (await api.post(target, body)).json
        assert made["status"]["conditions"][0]["lastTransitionTime"] == NOW
