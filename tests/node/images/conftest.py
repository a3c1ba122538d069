"""A registry on loopback for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.node.images.local_registry import LocalRegistry, run_registry


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRegistry]:
    with run_registry(tmp_path_factory.mktemp("registry")) as running:
        yield running
