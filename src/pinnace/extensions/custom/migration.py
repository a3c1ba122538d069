"""Rewrites the stored objects of a kind: in the storage version of a custom one, and with the newest encryption key.

It goes through the API alone, so it works on any cluster: an update that changes nothing is stored in today's version.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.objects import Kind, Object, key_of
from pinnace.serving.custom.definitions import DEFINITION

PAGE = 500
_AT_ONCE = 32
_ATTEMPTS = 10


class CannotMigrate(Exception):
    """The message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Migrated:
    """The result of a migration."""

    objects: int
    version: str
    dropped: tuple[str, ...]
    """The versions in which nothing is stored any more."""


async def migrate_storage(client: Client, name: str) -> Migrated:
    """Rewrite every object of a definition, then say in its status that one version is stored.

    A `name` such as secrets or deployments.apps is that of a built-in kind, which has no definition. Raises
    CannotMigrate, and NotFound if there is no such kind.
    """
    try:
        definition = await client.get(DEFINITION, name)
    except errors.NotFound:
        built_in = await _find_served(client, name)
        if built_in is None:
            raise
        return Migrated(await _rewrite_all(client, built_in), built_in.version, ())
    spec, stored = definition["spec"], definition.get("status", {}).get("storedVersions") or []
    storage = next(version["name"] for version in spec["versions"] if version.get("storage"))
    served = [version["name"] for version in spec["versions"] if version.get("served")]
    if not served:
        raise CannotMigrate(f"{name} serves no version, so its objects cannot be reached; serve one of its versions")
    # Written in the version that is stored, objects need to be converted once only.
    kind = Kind(spec["group"], storage if storage in served else served[0], spec["names"]["kind"])
    rewritten = await _rewrite_all(client, kind)
    await _say_stored(client, name, storage, definition)
    return Migrated(rewritten, storage, tuple(version for version in stored if version != storage))


async def _find_served(client: Client, name: str) -> Kind | None:
    """Return the kind of a resource that is named by its plural and its group, in the preferred version."""
    plural, _, group = name.partition(".")
    for served in await client.kinds.all():
        if (served.plural, served.kind.group) == (plural, group) and {"list", "update"} <= set(served.verbs):
            return served.kind
    return None


async def _rewrite_all(client: Client, kind: Kind) -> int:
    """Update every object of a kind without a change. Return how many there were."""
    rewritten = 0
    async for page in client.pages(kind, limit=PAGE):
        room = asyncio.Semaphore(_AT_ONCE)

        async def rewrite(obj: Object, room: asyncio.Semaphore = room) -> None:
            async with room:
                await _rewrite(client, kind, obj)

        await asyncio.gather(*(rewrite(obj) for obj in page.items))
        rewritten += len(page.items)
    return rewritten


async def _rewrite(client: Client, kind: Kind, obj: Object) -> None:
    key = key_of(obj)
    for _ in range(_ATTEMPTS):
        try:
            await client.update(obj)
            return
        except errors.NotFound:
            return  # It was deleted meanwhile, with all its stored versions.
        except errors.Conflict:
            present = await client.get_or_none(kind, key.name, namespace=key.namespace)
            if present is None:
                return
            obj = present
        except errors.Invalid as error:
            raise CannotMigrate(f"{key} cannot be written again as it is: {error.message}; correct it first") from None
    raise CannotMigrate(f"{key} is changed faster than it can be rewritten; try again")


async def _say_stored(client: Client, name: str, storage: str, before: Object) -> None:
    for _ in range(_ATTEMPTS):
        present = await client.get(DEFINITION, name)
        if present["metadata"].get("generation") != before["metadata"].get("generation"):
            raise CannotMigrate(f"{name} has changed meanwhile, and may be stored in another version now; try again")
        if present["status"].get("storedVersions") == [storage]:
            return
        present["status"]["storedVersions"] = [storage]
        try:
            await client.update_status(present)
            return
        except errors.Conflict:
            continue  # Another write came first: read the status again.
    raise CannotMigrate(f"the status of {name} is changed faster than it can be written; try again")
