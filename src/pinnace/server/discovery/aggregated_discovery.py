"""What discovery and OpenAPI say of groups and versions that other servers answer for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import orjson

from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.model.resources import Resource
from pinnace.server.aggregation import AggregatedBackend, AggregatedBackends
from pinnace.server.discovery.documents import ServedDocument

Served = list[Resource] | AggregatedBackend
"""One version of a group: resources of this server, or all that a backend has."""
Rank = tuple[int, int, int, str]

_OF_CUSTOM_KINDS = (1000, 100)
"""Their group's priority and their version's: they need no APIService here."""
_FIRST = frozenset(("", "apiregistration.k8s.io"))
"""Come first whatever others want: the core, and the group that says who comes first."""


def merge_groups(
    local: Mapping[str, Mapping[str, list[Resource]]], aggregated: AggregatedBackends, *, rank: Callable[[str], Rank]
) -> dict[str, dict[str, Served]]:
    """All groups and versions, in the order that clients are to prefer. A version that is both is the backend's.

    `rank` sorts the versions that have the same priority.
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
    return aggregated.priorities(group, version) or _OF_CUSTOM_KINDS


def version_of_backend(backend: AggregatedBackend) -> Object:
    """A backend's version as the aggregated page has it: what was last seen, stale if it cannot be asked now."""
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
        said: Object = {"resource": name, "responseKind": kind, "scope": scope}
        said |= {"singularResource": row.get("singularName") or "", "verbs": row.get("verbs") or []}
        said |= {field: row[field] for field in ("shortNames", "categories") if row.get(field)}
        rows[name] = {**said, **{k: v for k, v in rows.get(name, {}).items() if k == "subresources"}}
    freshness = "Stale" if backend.unavailable_reason else "Current"
    return {"version": backend.version, "resources": list(rows.values()), "freshness": freshness}


def merge_index(own: ServedDocument, aggregated: AggregatedBackends) -> ServedDocument:
    """The index of /openapi/v3 with the documents of backends, where those say they are."""
    index = orjson.loads(own.body)
    for backend in aggregated.backends():
        index["paths"].pop(_path(backend), None)
        if backend.openapi_url:
            index["paths"][_path(backend)] = {"serverRelativeURL": backend.openapi_url}
    return ServedDocument(orjson.dumps(index), own.content_type, own.etag, own.headers)


async def fetch_openapi(backend: AggregatedBackend) -> ServedDocument:
    """The OpenAPI v3 document of a backend. Raises Unavailable if it cannot be had."""
    try:
        body, told = await backend.openapi()
    except (OSError, TimeoutError, ValueError) as error:
        raise errors.Unavailable(f"service unavailable: {error}") from None
    headers = (("Cache-Control", "no-cache, private"), ("Vary", "Accept"))
    return ServedDocument(body, etag=f'"{told}"' if told else "", headers=headers)


def _path(backend: AggregatedBackend) -> str:
    return f"apis/{backend.group}/{backend.version}"
