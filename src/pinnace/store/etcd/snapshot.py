"""Snapshots of a store in etcd: read at one revision, and written to an etcd without one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from pinnace.process.grpc.errors import CallError
from pinnace.store.etcd import wire
from pinnace.store.etcd.base import base_key, move_base, read_state
from pinnace.store.etcd.client import EtcdClient
from pinnace.store.etcd.history import LARGE_PAGE, read_range
from pinnace.store.etcd.settings import EtcdSettings
from pinnace.store.etcd.store import EtcdStore
from pinnace.store.etcd.transactions import unreachable
from pinnace.store.snapshot import StoreSnapshot
from pinnace.store.store import Record, StoreError, end_of

_AT_ONCE = 64


async def read_etcd(settings: EtcdSettings, *, prefix: str) -> StoreSnapshot:
    """Read all records below a prefix at one revision, while servers write. Raise a StoreError."""
    client = EtcdClient(settings)
    try:
        state = await read_state(client, base_key(settings.root))
        if state.base is None:
            raise StoreError(f"etcd at {client.address} has no cluster; check the address")
        offset, first = state.base.offset, settings.root + prefix
        answer = await read_range(client, first.encode(), (end_of(first) or "\0").encode(), largest_page=LARGE_PAGE)
    except CallError as error:
        raise unreachable(client, error) from error
    finally:
        client.close()
    return StoreSnapshot(answer.revision + offset, [_record(pair, settings.root, offset) for pair in answer.pairs])


async def restore_etcd(
    settings: EtcdSettings, snapshot: StoreSnapshot, *, prefix: str, base: int, expiry: Mapping[str, int], memory: Path
) -> int:
    """Write the records of a snapshot at revisions above `base`; history begins after them. Return the last revision.

    `memory` will name the store; `expiry` is as in `EtcdStore.open`. Raise StoreError if there is a cluster already.
    """
    client = EtcdClient(settings)
    try:
        key = base_key(settings.root)
        if (await read_state(client, key)).base is not None:
            raise StoreError(
                f"etcd at {client.address} has a cluster already; delete its keys below {prefix} and /pinnace/ first"
            )
        await move_base(client, key, base, None)
    except CallError as error:
        raise unreachable(client, error) from error
    finally:
        client.close()
    memory.unlink(missing_ok=True)
    store = await EtcdStore.open(settings, prefix=prefix, expiry=expiry, memory=memory)
    try:
        ordered = sorted(snapshot.records, key=lambda record: (record.revision, record.key))
        for at in range(0, len(ordered), _AT_ONCE):
            writes = (store.put(record.key, record.value, expected=0) for record in ordered[at : at + _AT_ONCE])
            await asyncio.gather(*writes)
        await store.compact(store.revision)
        return store.revision
    finally:
        await store.close()


def _record(pair: wire.KeyValue, root: str, offset: int) -> Record:
    key = pair.key.decode()[len(root) :]
    return Record(key, pair.value, pair.mod_revision + offset, pair.create_revision + offset)
