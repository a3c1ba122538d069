"""The embedded runtime keeps the contract of runtimes."""

from __future__ import annotations

import pytest
from tests.node.runtime.conformance import RuntimeConformance
from tests.node.runtime.embedded.conftest import HOST, Pods

from pinnace.node.runtime.runtime import Runtime


class TestEmbeddedRuntime(RuntimeConformance):
    image = HOST

    @pytest.fixture
    def runtime(self, pods: Pods) -> Runtime:
        return pods.runtime
