"""The marker `kubernetes` chooses the version, the feature gates and the APIs of the fixture `cluster`."""

from __future__ import annotations

import pytest

from pinnace.model import errors
from pinnace.testing.cluster import Cluster
from pinnace.testing.plugin import cluster

__all__ = ["cluster"]


@pytest.mark.kubernetes(version="1.31")
async def test_a_version_is_chosen(cluster: Cluster) -> None:
    assert cluster.plane.minor == "1.31"


@pytest.mark.kubernetes(feature_gates="ComponentStatusz=false")
async def test_a_gate_is_off(cluster: Cluster) -> None:
    assert not cluster.plane.foundation.gates.is_on("ComponentStatusz")


@pytest.mark.kubernetes(runtime_config="apps/v1=false")
async def test_an_api_is_not_served(cluster: Cluster) -> None:
    with pytest.raises(errors.ApiError):
        await cluster.client.list("apps/v1/Deployment", namespace="default")


async def test_without_the_marker_the_cluster_has_the_defaults(cluster: Cluster) -> None:
    assert cluster.plane.foundation.gates.is_on("ComponentStatusz")
    assert not await cluster.client.list("apps/v1/Deployment", namespace="default")
