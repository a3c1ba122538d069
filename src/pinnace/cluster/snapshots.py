"""Saves and restores a cluster: its objects, its certificate authorities, and the keys of its tokens."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pinnace.auth.certificates.authority import CREDENTIALS
from pinnace.process.private_files import check_private, write_private
from pinnace.store.encryption_keys import read_keys
from pinnace.store.etcd.settings import EtcdSettings
from pinnace.store.opening import MASTER_LEASES, REGISTRY, STORE_MEMORY, expiry
from pinnace.store.snapshot import StoreSnapshot, read_snapshot, write_snapshot
from pinnace.store.sqlite.snapshot import read_file, restore_file
from pinnace.store.store import StoreError

BUMP = 1_000_000
"""How far restored revisions are above that of the snapshot: clients may have seen later ones."""


async def save(target: Path, *, directory: Path, etcd: EtcdSettings | None) -> StoreSnapshot:
    """Write a snapshot of the cluster in etcd or in the data directory, while it serves. Raise a StoreError."""
    if etcd is not None:
        from pinnace.store.etcd.snapshot import read_etcd  # noqa: PLC0415 - needs the extra

        stored = await read_etcd(etcd, prefix=REGISTRY)
    else:
        stored = await asyncio.to_thread(read_file, directory / "state.db")
    files = {name: (directory / name).read_bytes() for name in CREDENTIALS if (directory / name).exists()}
    objects = [record for record in stored.records if not record.key.startswith(MASTER_LEASES)]
    snapshot = StoreSnapshot(stored.revision, objects, files)
    await asyncio.to_thread(write_snapshot, target, snapshot)
    return snapshot


async def restore(
    source: Path, *, directory: Path, etcd: EtcdSettings | None, key_file: Path | None = None, bump: int = BUMP
) -> tuple[StoreSnapshot, int]:
    """Make a cluster from a snapshot, in an empty etcd or data directory. Return its last revision, too.

    Credentials that are there already are kept. Raise a StoreError.
    """
    snapshot = await asyncio.to_thread(read_snapshot, source)
    base = snapshot.revision + bump
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    if etcd is None:
        revision = await asyncio.to_thread(restore_file, directory / "state.db", snapshot, base=base)
    else:
        from pinnace.store.etcd.snapshot import restore_etcd  # noqa: PLC0415 - needs the extra

        memory = directory / STORE_MEMORY
        revision = await restore_etcd(etcd, snapshot, prefix=REGISTRY, base=base, expiry=expiry(), memory=memory)
    for name, content in snapshot.files.items():
        if name in CREDENTIALS and not (directory / name).exists():
            (directory / name).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_private(directory / name, content, durable=True)
    if etcd is not None and all((directory / name).exists() for name in CREDENTIALS):
        from pinnace.auth.certificates.shared_credentials import SharedCredentials  # noqa: PLC0415 - needs the extra

        if key_file is not None:
            check_private(key_file, "the encryption key file")
        keys = read_keys(key_file) if key_file is not None else None
        if not await SharedCredentials(etcd, directory, keys).publish():
            raise StoreError("another server has started on this etcd meanwhile; stop it and restore again")
    return snapshot, revision
