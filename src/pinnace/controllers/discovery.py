"""Which kinds there are to look after: what the server offers at this moment, each kind once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import orjson

from pinnace.client.client import Client
from pinnace.client.mapping import ServedKind
from pinnace.model import errors
from pinnace.model.objects import Kind, Object


@dataclass(frozen=True, slots=True)
class Discovered:
    """What could be learnt, and what could not."""

    kinds: tuple[ServedKind, ...]
    failures: Mapping[str, str]
    """By group version, why its kinds are not known: mostly an aggregated server that cannot be reached."""

    def with_verbs(self, *verbs: str) -> list[ServedKind]:
        return [served for served in self.kinds if all(verb in served.verbs for verb in verbs)]


async def discover(client: Client) -> Discovered:
    """Every kind in the version that its group prefers, or in the next that has it.

    What is stored once and served in several groups (Ingress, Event) comes once.
    """
    kinds: list[ServedKind] = []
    failures: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    stored: set[str] = set()
    for group, version in await _group_versions(client):
        page = f"/apis/{group}/{version}" if group else f"/api/{version}"
        try:
            rows = orjson.loads(await client.read(page)).get("resources") or ()
        except errors.NoSuchPath:
            continue  # It has left since the groups were read.
        except errors.ApiError as error:
            failures[f"{group}/{version}" if group else version] = error.message
            continue
        for row in rows:
            if "/" in row["name"] or (group, row["name"]) in seen:
                continue
            seen.add((group, row["name"]))
            stored_as = row.get("storageVersionHash")
            if stored_as and stored_as in stored:
                continue
            stored.add(stored_as)
            kinds.append(_served(group, version, row))
    return Discovered(tuple(kinds), failures)


def failure_message(failures: Mapping[str, str]) -> str:
    """Which groups could not be asked, in Kubernetes' words."""
    each = ", ".join(f"{where}: {why}" for where, why in sorted(failures.items()))
    return f"unable to retrieve the complete list of server APIs: {each}"


async def _group_versions(client: Client) -> list[tuple[str, str]]:
    found = [("", version) for version in orjson.loads(await client.read("/api")).get("versions") or ()]
    for group in orjson.loads(await client.read("/apis")).get("groups") or ():
        preferred = (group.get("preferredVersion") or {}).get("version")
        versions = [version["version"] for version in group.get("versions") or ()]
        versions.sort(key=lambda version: version != preferred)
        found += [(group["name"], version) for version in versions]
    return found


def _served(group: str, version: str, row: Object) -> ServedKind:
    verbs: Collection[str] = row.get("verbs") or ()
    return ServedKind(
        kind=Kind(row.get("group") or group, row.get("version") or version, row["kind"]),
        plural=row["name"],
        namespaced=bool(row.get("namespaced")),
        verbs=tuple(verbs),
    )
