"""Opens what a cluster keeps its objects in: in memory or in a file, with its secrets sealed if there are keys."""

from __future__ import annotations

from pathlib import Path

from pinnace.store.encrypted import EncryptedStore, refuse_sealed
from pinnace.store.encryption_keys import read_keys
from pinnace.store.memory import MemoryStore
from pinnace.store.sqlite.store import SqliteStore
from pinnace.store.store import Store


async def open_store(path: Path | None, *, key_file: Path | None, accept_data_loss: bool = False) -> Store:
    """Open the store in the file, or in memory without one. With keys, seal all Secrets with the newest.

    With `accept_data_loss` a file is opened though acknowledged writes are missing from it. Raise a StoreError that
    says what to do: also if something is sealed and there is no key for it.
    """
    keys = read_keys(key_file) if key_file is not None else None
    store = MemoryStore() if path is None else await SqliteStore.open(path, accept_data_loss=accept_data_loss)
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
