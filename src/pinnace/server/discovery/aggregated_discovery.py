"""Discovery and OpenAPI v3 of the groups and versions that aggregated API servers serve."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import orjson

from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.model.resources import Resource
from pinnace.server.aggregation import AggregatedBackend, AggregatedBackends
from pinnace.server.discovery.documents import ServedDocument

Served = list[Resource] | AggregatedBackend
"""One version of a group: the resources of this server, or a backend."""
Rank = tuple[int, int, int, str]

_CUSTOM_KIND_PRIORITIES = (1000, 100)
"""The priorities of the group and version of custom kinds, which have no APIService here."""
_FIRST = frozenset(("", "apiregistration.k8s.io"))
"""These groups come first, whatever the priorities of others."""


def merge_groups(
    local: Mapping[str, Mapping[str, list[Resource]]], aggregated: AggregatedBackends, *, rank: Callable[[str], Rank]
) -> dict[str, dict[str, Served]]:
    """Return all groups and versions, in the order that clients should prefer. A backend replaces a local version.

    `rank` orders versions of the same priority.
    """
    groups: dict[str, dict[str, Served]] = {name: {**versions} for name, versions in local.items()}
    for backend in aggregated.backends():
        groups.setdefault(backend.group, {})[backend.version] = backend
    mixed = {backend.group for backend in aggregated.backends()}
    for name in mixed:
        order_of = {version: (-_priorities(aggregated, name, version)[1], rank(version)) for version in groups[name]}
        groups[name] = {version: groups[name][version] for version in sorted(order_of, key=order_of.__getitem__)}
    order = list(local)
    highest = {name: max(_priorities(aggregated, name, version)[0] for version in groups[name]) for name in groups}
    for name in sorted(mixed - set(local), key=lambda name: (-highest[name], name)):
        lower = (at for at, other in enumerate(order) if other not in _FIRST and _comes_before(name, other, highest))
        order.insert(next(lower, len(order)), name)
    return {name: groups[name] for name in order}


def _comes_before(name: str, other: str, highest: Mapping[str, int]) -> bool:
    return (-highest[name], name) < (-highest[other], other)


def _priorities(aggregated: AggregatedBackends, group: str, version: str) -> tuple[int, int]:
    return aggregated.priorities(group, version) or _CUSTOM_KIND_PRIORITIES


def version_of_backend(backend: AggregatedBackend) -> Object:
    """Return a backend's version for aggregated discovery: as last seen, and stale if it is unavailable now."""
    rows: dict[str, Object] = {}
    for row in backend.resources:
        name, _, below = str(row.get("name") or "").partition("/")
        kind = {
            "group": row.get("group") or backend.group,
            "version": row.get("version") or backend.version,
            "kind": row.get("kind") or "",
        }
        scope = "Namespaced" if row.get("namespaced") else "Cluster"
        if below:
            parent = rows.setdefault(name, {"resource": name, "scope": scope, "singularResource": "", "verbs": []})
            found = {"subresource": below, "responseKind": kind, "verbs": row.get("verbs") or []}
            parent.setdefault("subresources", []).append(found)
            continue
        resource: Object = {"resource": name, "responseKind": kind, "scope": scope}
        resource |= {"singularResource": row.get("singularName") or "", "verbs": row.get("verbs") or []}
        resource |= {field: row[field] for field in ("shortNames", "categories") if row.get(field)}
        rows[name] = {**resource, **{k: v for k, v in rows.get(name, {}).items() if k == "subresources"}}
    freshness = "Stale" if backend.unavailable_reason else "Current"
    return {"version": backend.version, "resources": list(rows.values()), "freshness": freshness}


def merge_index(own: ServedDocument, aggregated: AggregatedBackends) -> ServedDocument:
    """Return the index of /openapi/v3 with the documents of backends."""
    index = orjson.loads(own.body)
    for backend in aggregated.backends():
        index["paths"].pop(_path(backend), None)
        if backend.openapi_url:
            index["paths"][_path(backend)] = {"serverRelativeURL": backend.openapi_url}
    return ServedDocument(orjson.dumps(index), own.content_type, own.etag, own.headers)


async def fetch_openapi(backend: AggregatedBackend) -> ServedDocument:
    """Fetch the OpenAPI v3 document of a backend. Raise Unavailable."""
    try:
        body, digest = await backend.openapi()
    except (OSError, TimeoutError, ValueError) as error:
        raise errors.Unavailable(f"service unavailable: {error}") from None
    headers = (("Cache-Control", "no-cache, private"), ("Vary", "Accept"))
    return ServedDocument(body, etag=f'"{digest}"' if digest else "", headers=headers)


def _path(backend: AggregatedBackend) -> str:
    return f"apis/{backend.group}/{backend.version}"
