"""Opens the store of a cluster: in memory, in a file or in etcd, and encrypted if that is wanted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pinnace.store.encrypted import EncryptedStore, Encryption, refuse_sealed
from pinnace.store.memory import MemoryStore
from pinnace.store.sqlite.store import SqliteStore
from pinnace.store.store import Store, StoreError

if TYPE_CHECKING:
    from pinnace.store.etcd.settings import EtcdSettings

REGISTRY = "/registry/"
STORE_MEMORY = "etcd-store"
"""The file of a data directory that says which store in etcd is its own."""
EVENT_SECONDS = 3600
EVENT_PREFIXES = ("/registry/core/events/", "/registry/events.k8s.io/events/")
MASTER_LEASES = "/registry/masterleases/apiservers/"
"""The keys by which the servers on one etcd know of each other."""
MASTER_LEASE_SECONDS = 15
"""How long a server that does not renew its master lease counts as running."""


async def open_store(
    path: Path | None,
    *,
    encryption: Encryption | None = None,
    etcd: EtcdSettings | None = None,
    memory: Path | None = None,
    accept_data_loss: bool = False,
) -> Store:
    """Open the store in etcd if there are settings for it, else in the file, or in memory without one.

    `memory` is the file that says which etcd it is. With keys of our own, encrypt all Secrets with the newest. With
    `accept_data_loss` a store is opened though acknowledged writes are missing from it. Raise a StoreError that says
    what to do: also if a value is encrypted and there is no key for it, unless `encryption` is tolerant.
    """
    store = await _open(path, etcd, memory, accept_data_loss=accept_data_loss)
    try:
        if encryption is None:
            await refuse_sealed(store)
            return store
        encrypted = EncryptedStore(store, encryption)
        if not encryption.is_tolerant:
            await encrypted.reseal()
        return encrypted
    except BaseException:
        await store.close()
        raise


def expiry() -> dict[str, int]:
    """Return the seconds after which etcd deletes a key, by the beginning of the key."""
    return {**dict.fromkeys(EVENT_PREFIXES, EVENT_SECONDS), MASTER_LEASES: MASTER_LEASE_SECONDS}


async def check_etcd(etcd: EtcdSettings, memory: Path, *, accept_data_loss: bool) -> None:
    """Raise a StoreError if etcd is not the one that a data directory belongs to. Nothing is written to it."""
    with etcd_extra():
        from pinnace.store.etcd.base import base_key  # noqa: PLC0415 - needs the extra
        from pinnace.store.etcd.identity import check_store  # noqa: PLC0415 - needs the extra

    await check_store(etcd, base_key(etcd.root), memory, accept_data_loss=accept_data_loss)


async def _open(path: Path | None, etcd: EtcdSettings | None, memory: Path | None, *, accept_data_loss: bool) -> Store:
    if etcd is not None:
        with etcd_extra():
            from pinnace.store.etcd.store import EtcdStore  # noqa: PLC0415 - needs the extra

        return await EtcdStore.open(
            etcd, prefix=REGISTRY, expiry=expiry(), memory=memory, accept_data_loss=accept_data_loss
        )
    if path is None:
        return MemoryStore()
    return await SqliteStore.open(path, accept_data_loss=accept_data_loss)


@contextmanager
def etcd_extra() -> Iterator[None]:
    """Import within a block what needs the extra. Raise a StoreError that names it if it is not installed."""
    try:
        yield
    except ImportError as error:
        raise StoreError(f"the store in etcd needs {error.name}: pip install 'pinnace[etcd]'") from error
