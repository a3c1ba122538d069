"""`pinnace migrate-storage`: rewrite the stored objects of a custom kind in its storage version."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from pinnace.cli.failure import fail
from pinnace.cli.flags.shared import Context
from pinnace.cli.progress import progress
from pinnace.client.connect import connect
from pinnace.client.kubeconfig import KubeconfigError
from pinnace.extensions.custom.migration import CannotMigrate, Migrated, migrate_storage
from pinnace.model import errors


def migrate(
    definition: Annotated[
        str,
        typer.Argument(help="The CustomResourceDefinition, such as websites.example.com, or a resource: secrets."),
    ],
    kubeconfig: Annotated[Path | None, typer.Option(help="The kubeconfig file to use.", show_default=False)] = None,
    context: Context = "",
) -> None:
    """Rewrite all objects of a custom kind in its storage version, and remove the others from its storedVersions.

    Do this after a new version has become the storage version, before the old one is removed from the CRD. Objects of
    any kind are also encrypted with the newest key: do this before an old key is removed.

    \b
    Examples:
      pinnace migrate-storage websites.extensions.example.com
      pinnace migrate-storage websites.extensions.example.com --context prod
      pinnace migrate-storage secrets                          with a new encryption key
    """
    try:
        done = asyncio.run(_migrate(definition, kubeconfig, context))
    except (KubeconfigError, CannotMigrate, errors.ApiError, OSError) as error:
        fail(error)
    objects = "1 object is" if done.objects == 1 else f"{done.objects} objects are"
    print(f"{objects} stored as {done.version}.")
    if done.dropped:
        print(
            f"{definition} no longer needs {', '.join(done.dropped)}: remove it from spec.versions when it is unused."
        )


async def _migrate(definition: str, kubeconfig: Path | None, context: str) -> Migrated:
    async with connect(kubeconfig=kubeconfig, context=context, field_manager="pinnace-migration") as client:
        with progress(f"rewriting the objects of {definition}"):
            return await migrate_storage(client, definition)
