"""The store in etcd, through the tests of every store."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.store.conformance import StoreConformance
from tests.store.etcd.processes import EtcdMember

from pinnace.store.encrypted import EncryptedStore
from pinnace.store.encryption_keys import EncryptionKeys
from pinnace.store.etcd.settings import EtcdSettings
from pinnace.store.etcd.store import EtcdStore
from pinnace.store.store import Store

_ROOTS = count()


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdMember]:
    directory: Path = tmp_path_factory.mktemp("etcd")
    member = EtcdMember(directory / "data", flags=("--max-request-bytes=8388608",))
    member.start()
    yield member
    member.stop()


class TestEtcdStore(StoreConformance):
    """The store in etcd; each test has its own part of the keys."""

    @pytest.fixture(autouse=True)
    def endpoint(self, member: EtcdMember) -> None:
        self.settings = EtcdSettings(endpoints=(("127.0.0.1", member.port),), root=f"/test/{next(_ROOTS)}/")

    async def open(self) -> Store:
        return await EtcdStore.open(self.settings)


class TestEncryptedEtcdStore(TestEtcdStore):
    """The same, with every value encrypted."""

    async def open(self) -> Store:
        return EncryptedStore(await super().open(), EncryptionKeys({"k1": bytes(range(32))}, ("",)))
