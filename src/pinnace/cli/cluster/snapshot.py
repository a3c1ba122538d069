"""`pinnace snapshot`: save a cluster to one file, and make a cluster from it, on this or another store."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pinnace.cli.data_directory import default_data_dir
from pinnace.cli.failure import fail
from pinnace.cli.flags.groups import with_flags
from pinnace.cli.flags.store import etcd_settings
from pinnace.cluster.snapshots import BUMP, restore, save
from pinnace.store.etcd.settings import EtcdSettings
from pinnace.store.store import StoreError


class SnapshotAction(StrEnum):
    save = "save"
    restore = "restore"


@with_flags("etcd", etcd_settings)
def snapshot(
    action: Annotated[SnapshotAction, typer.Argument(help="The action.", metavar="save|restore")],
    file: Annotated[Path, typer.Argument(help="The snapshot.")],
    data_dir: Annotated[
        Path | None, typer.Option(help="The data directory of the cluster.", show_default=False)
    ] = None,
    etcd: EtcdSettings | None = None,
    encryption_key_file: Annotated[
        Path | None,
        typer.Option(help="restore: the keys with which credentials in etcd are encrypted.", show_default=False),
    ] = None,
    bump_revision: Annotated[
        int,
        typer.Option(help="restore: how far new revisions are above that of the snapshot.", min=0),
    ] = BUMP,
) -> None:
    """Save all objects and credentials of a cluster to a file, or make a cluster from such a file.

    A cluster is saved at one revision, also while it serves. It is restored into an empty data directory or etcd, also
    into the other kind of store. All revisions are above those of before, so that clients list again.

    \b
    Examples:
      pinnace snapshot save cluster.snapshot                          the default data directory, also while it serves
      pinnace snapshot restore cluster.snapshot --data-dir ~/copy     then: pinnace up --data-dir ~/copy
      pinnace snapshot restore cluster.snapshot --store etcd://127.0.0.1:2379
    """
    directory = data_dir or default_data_dir()
    try:
        if action is SnapshotAction.save:
            saved = asyncio.run(save(file, directory=directory, etcd=etcd))
            print(f"saved {len(saved.records)} objects at revision {saved.revision} to {file}")
        else:
            taken, revision = asyncio.run(
                restore(file, directory=directory, etcd=etcd, key_file=encryption_key_file, bump=bump_revision)
            )
            print(f"restored {len(taken.records)} objects; revisions go on after {revision}")
    except (StoreError, OSError) as error:
        fail(error)
