"""Opens the store of a cluster: in memory, in a file or in etcd, with its secrets encrypted if there are keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pinnace.store.encrypted import EncryptedStore, refuse_sealed
from pinnace.store.encryption_keys import EncryptionKeys, read_keys
from pinnace.store.memory import MemoryStore
from pinnace.store.sqlite.store import SqliteStore
from pinnace.store.store import Store, StoreError

if TYPE_CHECKING:
    from pinnace.cluster.files.shared_credentials import SharedCredentials
    from pinnace.store.etcd.settings import EtcdSettings

REGISTRY = "/registry/"
EVENT_SECONDS = 3600
EVENT_PREFIXES = ("/registry/core/events/", "/registry/events.k8s.io/events/")
MASTER_LEASES = "/registry/masterleases/apiservers/"
"""The keys by which the servers on one etcd know of each other."""
MASTER_LEASE_SECONDS = 15
"""How long a server that does not renew its master lease counts as running."""


async def open_store(
    path: Path | None,
    *,
    key_file: Path | None,
    etcd: EtcdSettings | None = None,
    accept_data_loss: bool = False,
) -> Store:
    """Open the store in etcd if there are settings for it, else in the file, or in memory without one.

    With keys, encrypt all Secrets with the newest. With `accept_data_loss` a file is opened though acknowledged writes
    are missing from it. Raise a StoreError that says what to do: also if a value is encrypted and there is no key for
    it.
    """
    keys = read_keys(key_file) if key_file is not None else None
    store = await _open(path, etcd, accept_data_loss=accept_data_loss)
    try:
        if keys is None:
            await refuse_sealed(store)
            return store
        encrypted = EncryptedStore(store, keys)
        await encrypted.reseal()
        return encrypted
    except BaseException:
        await store.close()
        raise


def expiry() -> dict[str, int]:
    """Return the seconds after which etcd deletes a key, by the beginning of the key."""
    return {**dict.fromkeys(EVENT_PREFIXES, EVENT_SECONDS), MASTER_LEASES: MASTER_LEASE_SECONDS}


async def _open(path: Path | None, etcd: EtcdSettings | None, *, accept_data_loss: bool) -> Store:
    if etcd is not None:
        with _extra():
            from pinnace.store.etcd.store import EtcdStore  # noqa: PLC0415 - needs the extra

        return await EtcdStore.open(etcd, prefix=REGISTRY, expiry=expiry())
    if path is None:
        return MemoryStore()
    return await SqliteStore.open(path, accept_data_loss=accept_data_loss)


def shared_credentials(etcd: EtcdSettings, directory: Path, keys: EncryptionKeys | None) -> SharedCredentials:
    """Return the credentials in etcd. Raise a StoreError without the extra."""
    with _extra():
        from pinnace.cluster.files.shared_credentials import SharedCredentials  # noqa: PLC0415 - needs the extra

    return SharedCredentials(etcd, directory, keys)


@contextmanager
def _extra() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise StoreError(f"the store in etcd needs {error.name}: pip install 'pinnace[etcd]'") from error
