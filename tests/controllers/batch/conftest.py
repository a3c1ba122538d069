"""A cluster whose pods the test runs by hand."""

from __future__ import annotations

import pytest
from tests.controllers.batch.jobs import Hand

from pinnace.testing.cluster import Cluster


@pytest.fixture
def hand(cluster: Cluster) -> Hand:
    return Hand(cluster)
