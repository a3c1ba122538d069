"""Every backend, through the same tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.store.conformance import StoreConformance

from pinnace.store.encrypted import EncryptedStore
from pinnace.store.encryption_keys import EncryptionKeys
from pinnace.store.memory import MemoryStore
from pinnace.store.sqlite.store import SqliteStore
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


class TestEncryptedStore(StoreConformance):
    """The store that seals everything, over the one in a file."""

    @pytest.fixture(autouse=True)
    def directory(self, tmp_path: Path) -> None:
        self.path = tmp_path / "store.db"

    async def open(self) -> Store:
        keys = EncryptionKeys({"k1": bytes(range(32))}, ("",))
        return EncryptedStore(await SqliteStore.open(self.path), keys)


class TestPartlyEncryptedStore(StoreConformance):
    """The store that seals some keys, and leaves alone those of the tests."""

    async def open(self) -> Store:
        return EncryptedStore(MemoryStore(), EncryptionKeys({"k1": bytes(range(32))}))
