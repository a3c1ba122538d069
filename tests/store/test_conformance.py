"""Every backend, through the same tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.store.conformance import StoreConformance

from pinnace.store.memory import MemoryStore
from pinnace.store.sqlite import SqliteStore
from pinnace.store.store import Store


class TestMemoryStore(StoreConformance):
    """The store without a file."""

    async def open(self) -> Store:
        return MemoryStore()


class TestSqliteStore(StoreConformance):
    """The store in one file."""

    @pytest.fixture(autouse=True)
    def directory(self, tmp_path: Path) -> None:
        self.path = tmp_path / "store.db"

    async def open(self) -> Store:
        return await SqliteStore.open(self.path)
