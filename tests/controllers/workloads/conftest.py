"""Pods without nodes, for workload controllers."""

from __future__ import annotations

import pytest
from tests.controllers.kubelet import Kubelet
from tests.controllers.world import World


@pytest.fixture
def left_out() -> frozenset[str]:
    """The controllers that delete pods from nodes that do not exist."""
    return frozenset({"node-lifecycle-controller", "pod-garbage-collector-controller"})


@pytest.fixture
def kubelet(world: World) -> Kubelet:
    return Kubelet(world)
