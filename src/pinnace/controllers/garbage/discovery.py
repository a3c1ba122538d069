"""Finds the kinds that the server serves at this moment, each kind once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache

import orjson

from pinnace.client.client import Client
from pinnace.client.mapping import ServedKind, resource_rows
from pinnace.model import errors
from pinnace.model.objects import Kind, Object


@dataclass(frozen=True, slots=True)
class Discovered:
    """The kinds that could be discovered, and the failures."""

    kinds: tuple[ServedKind, ...]
    failures: Mapping[str, str]
    """By group version, why its kinds are unknown: mostly an aggregated server that cannot be reached."""

    def with_verbs(self, *verbs: str) -> list[ServedKind]:
        return [served for served in self.kinds if all(verb in served.verbs for verb in verbs)]


_Page = tuple[Object, ...] | str
"""The rows of a group version, or why there are none."""


class Discovery:
    """The kinds that the server serves, by group version. Only pages that may have changed are read again."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pages: dict[tuple[str, str], _Page] = {}
        """By group version, the preferred version first."""

    async def reread(self, group: str | None = None) -> Discovered:
        """Read all groups, or one group again, and return all kinds."""
        if group is None:
            self._pages = await self._read(await _group_versions(self._client))
            return self._collect()
        anew = await self._read(await _versions_of(self._client, group))
        before = list(self._pages.items())
        at = next((at for at, (place, _) in enumerate(before) if place[0] == group), len(before))
        others = [(place, page) for place, page in before if place[0] != group]
        # In its old place: where several groups serve a resource, the first one counts.
        self._pages = dict([*others[:at], *anew.items(), *others[at:]])
        return self._collect()

    async def _read(self, versions: list[tuple[str, str]]) -> dict[tuple[str, str], _Page]:
        pages = {place: await self._page(*place) for place in versions}
        return {place: page for place, page in pages.items() if page is not None}

    async def _page(self, group: str, version: str) -> _Page | None:
        page = f"/apis/{group}/{version}" if group else f"/api/{version}"
        try:
            return _rows_on(await self._client.read(page))
        except errors.NoSuchPath:
            return None  # It was removed after the groups were read.
        except orjson.JSONDecodeError as error:
            return f"the server did not answer with JSON: {error}"
        except errors.ApiError as error:
            return error.message

    def _collect(self) -> Discovered:
        kinds: list[ServedKind] = []
        failures: dict[str, str] = {}
        seen: set[tuple[str, str]] = set()
        stored: set[str] = set()
        for (group, version), page in self._pages.items():
            if isinstance(page, str):
                failures[f"{group}/{version}" if group else version] = page
                continue
            for row in page:
                if "/" in row["name"] or (group, row["name"]) in seen:
                    continue
                seen.add((group, row["name"]))
                stored_as: str = row.get("storageVersionHash") or ""
                if stored_as and stored_as in stored:
                    continue
                stored.add(stored_as)
                kinds.append(_parse_kind(group, version, row))
        return Discovered(tuple(kinds), failures)


@lru_cache(maxsize=256)
def _rows_on(page: bytes) -> tuple[Object, ...]:
    """Return the rows of a page. Most pages are the same at each discovery, and in each cluster of a test."""
    return tuple(resource_rows(orjson.loads(page)))


async def discover(client: Client) -> Discovered:
    """Return every kind in the version that its group prefers, or in the next that has it.

    A resource that is stored once and served in several groups (Ingress, Event) is returned once.
    """
    return await Discovery(client).reread()


def failure_message(failures: Mapping[str, str]) -> str:
    """Return which groups could not be discovered, in Kubernetes' words."""
    each = ", ".join(f"{where}: {why}" for where, why in sorted(failures.items()))
    return f"unable to retrieve the complete list of server APIs: {each}"


async def _group_versions(client: Client) -> list[tuple[str, str]]:
    versions = await _versions_of(client, "")
    for group in orjson.loads(await client.read("/apis")).get("groups") or ():
        versions += _in_order(group)
    return versions


async def _versions_of(client: Client, group: str) -> list[tuple[str, str]]:
    if not group:
        return [("", version) for version in orjson.loads(await client.read("/api")).get("versions") or ()]
    try:
        return _in_order(orjson.loads(await client.read(f"/apis/{group}")))
    except errors.NoSuchPath:
        return []


def _in_order(group: Object) -> list[tuple[str, str]]:
    preferred = (group.get("preferredVersion") or {}).get("version")
    versions = [version["version"] for version in group.get("versions") or ()]
    versions.sort(key=lambda version: version != preferred)
    return [(group["name"], version) for version in versions]


def _parse_kind(group: str, version: str, row: Object) -> ServedKind:
    verbs: Collection[str] = row.get("verbs") or ()
    return ServedKind(
        kind=Kind(row.get("group") or group, row.get("version") or version, row["kind"]),
        plural=row["name"],
        namespaced=bool(row.get("namespaced")),
        verbs=tuple(verbs),
    )
