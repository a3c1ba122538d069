"""Directories for trees of files."""

from __future__ import annotations

from tests.node.runtime.embedded.conftest import fast_path as fast_path
