"""Discovery: the served groups, versions and resources, one page for each or all in one."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping

import orjson

from pinnace.model import errors
from pinnace.model.objects import Kind, Object
from pinnace.model.resources import Registry, Resource, version_rank
from pinnace.serving.cache.protobuf_representation import to_protobuf
from pinnace.serving.discovery.backends import AggregatedBackend, AggregatedBackends, NoBackends
from pinnace.serving.discovery.documents import ServedDocument, content_hash
from pinnace.serving.request.negotiation import JSON, PROTOBUF, clauses

_AGGREGATED_VERSIONS = {JSON: ("v2", "v2beta1"), PROTOBUF: ("v2",)}
"""By format."""
_SHARED = (("Cache-Control", "public"), ("Vary", "Accept"))

Groups = dict[str, dict[str, list[Resource]]]
"""Resources by group and version, in the order that clients should prefer."""


class DiscoveryPages:
    """The discovery pages of a registry and of aggregated servers, kept until one of them changes.

    An aggregated server writes the page of its own version.
    """

    def __init__(self, registry: Registry, *, aggregated: AggregatedBackends | None = None) -> None:
        self._registry = registry
        self._others = aggregated or NoBackends()
        self._address = ""
        self._revisions = (-1, -1)
        self._groups: dict[str, dict[str, Served]] = {}
        self._pages: dict[str, ServedDocument] = {}

    def page(self, path: str, accept: str = "") -> ServedDocument | None:
        """Return /api, /api/<version>, /apis, /apis/<group> or /apis/<group>/<version>; None if it does not exist."""
        if "//" in path[1:]:
            return None
        self._refresh()
        parts = path.strip("/").split("/")
        if len(parts) == 1:
            version, media_type = _preferred_aggregation(accept)
            if version:
                name = f"{path} {version} {media_type}"
                return self._page_for(name, lambda: self._aggregate(parts[0], version, media_type))
        return self._page_for(path, lambda: self._single(parts))

    def set_address(self, address: str) -> None:
        """Set the server's address for /api. It is known once the server listens."""
        self._address = address
        self._pages.clear()

    def _refresh(self) -> None:
        revisions = (self._registry.revision, self._others.revision)
        if self._revisions != revisions:
            self._revisions = revisions
            self._groups = merge_groups(group_resources(self._registry), self._others, rank=version_rank)
            self._pages.clear()

    def _page_for(self, name: str, write: Callable[[], ServedDocument | None]) -> ServedDocument | None:
        page = self._pages.get(name)
        if page is None:
            page = write()
            if page is not None:
                self._pages[name] = page
        return page

    def _single(self, parts: list[str]) -> ServedDocument | None:
        match parts:
            case ["api"]:
                return _document(self._core_versions())
            case ["apis"]:
                groups = [_group(name, versions) for name, versions in self._groups.items() if name]
                return _document({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
            case ["apis", name] if name and name in self._groups:
                return _document({"kind": "APIGroup", "apiVersion": "v1", **_group(name, self._groups[name])})
            case ["api", version]:
                return self._resources("", version)
            case ["apis", name, version] if name:
                return self._resources(name, version)
        return None

    def _core_versions(self) -> Object:
        return {
            "kind": "APIVersions",
            "versions": list(self._groups.get("", ())),
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": self._address}],
        }

    def _resources(self, group: str, version: str) -> ServedDocument | None:
        served = self._groups.get(group, {}).get(version)
        if not isinstance(served, list):
            return None
        listed = [row for resource in served for row in _rows(resource)]
        group_version = f"{group}/{version}" if group else version
        page: Object = {"kind": "APIResourceList"}
        if group:
            page["apiVersion"] = "v1"
        return _document({**page, "groupVersion": group_version, "resources": listed})

    def _aggregate(self, root: str, version: str, media_type: str) -> ServedDocument | None:
        if root not in ("api", "apis"):
            return None
        items = [
            {
                "metadata": {"name": name} if name else {},
                "versions": [_aggregated_version(served, resources) for served, resources in versions.items()],
            }
            for name, versions in self._groups.items()
            if bool(name) == (root == "apis")
        ]
        page: Object = {"kind": "APIGroupDiscoveryList", "apiVersion": f"apidiscovery.k8s.io/{version}", "metadata": {}}
        page["items"] = items
        is_protobuf = media_type == PROTOBUF
        body = to_protobuf(page) if is_protobuf else orjson.dumps(page, option=orjson.OPT_APPEND_NEWLINE)
        content_type = f"{media_type};g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
        return ServedDocument(body, content_type, etag=f'"{content_hash(body)}"', headers=_SHARED)


def group_resources(registry: Registry) -> Groups:
    """Group resources by group, in the order of the registry, and version, ranked. Resources are sorted by name."""
    groups: Groups = {}
    for resource in registry:
        groups.setdefault(resource.group, {}).setdefault(resource.version, []).append(resource)
    for name, versions in groups.items():
        groups[name] = {
            version: sorted(versions[version], key=lambda entry: entry.plural)
            for version in sorted(versions, key=version_rank)
        }
    return groups


def storage_version_hash(stored: Kind) -> str:
    digest = hashlib.sha256(f"{stored.group}/{stored.version}/{stored.name}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()


def _preferred_aggregation(accept: str) -> tuple[str, str]:
    """Return the version and format of aggregated discovery that the client prefers; empty if it prefers the plain
    page."""
    if "apidiscovery" not in accept:
        return "", ""
    for media_type, parameters in clauses(accept):
        versions = _AGGREGATED_VERSIONS.get(media_type)
        if versions is None:
            continue
        if "as" not in parameters:
            break
        version = parameters.get("v", "")
        is_ours = parameters["as"] == "APIGroupDiscoveryList" and parameters.get("g") == "apidiscovery.k8s.io"
        if is_ours and version in versions:
            return version, media_type
    return "", ""


def _document(page: Object) -> ServedDocument:
    return ServedDocument(orjson.dumps(page, option=orjson.OPT_APPEND_NEWLINE))


def _group(name: str, versions: dict[str, Served]) -> Object:
    named = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": named, "preferredVersion": named[0]}


def _rows(resource: Resource) -> list[Object]:
    """Return the rows of an APIResourceList for a resource and its subresources."""
    row: Object = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind.name,
        "verbs": _verbs(resource),
    }
    row.update(_nicknames(resource))
    if "watch" in resource.verbs:
        row["storageVersionHash"] = storage_version_hash(resource.stored)
    rows = [row] if resource.verbs else []
    for below in sorted(resource.subresources, key=lambda subresource: subresource.name):
        name = f"{resource.plural}/{below.name}"
        rows.append({"name": name, "singularName": "", "namespaced": resource.namespaced})
        if (below.kind.group, below.kind.version) != (resource.group, resource.version):
            rows[-1] |= {"group": below.kind.group, "version": below.kind.version}
        rows[-1] |= {"kind": below.kind.name, "verbs": sorted(below.verbs)}
    return rows


def _verbs(resource: Resource) -> list[str]:
    is_leaving = resource.custom is not None and resource.custom.is_leaving
    return sorted(verb for verb in resource.verbs if not is_leaving or verb not in ("create", "patch", "update"))


def _nicknames(resource: Resource) -> Object:
    nicknames = {"shortNames": list(resource.short_names), "categories": list(resource.categories)}
    return {field: names for field, names in nicknames.items() if names}


def _aggregated_version(version: str, served: Served) -> Object:
    if not isinstance(served, list):
        return version_of_backend(served)
    return {"version": version, "resources": [_aggregated_row(row) for row in served], "freshness": "Current"}


def _aggregated_row(resource: Resource) -> Object:
    row: Object = {
        "resource": resource.plural,
        "responseKind": _response_kind(resource.kind, resource),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": _verbs(resource),
        **_nicknames(resource),
    }
    below = [
        {
            "subresource": subresource.name,
            "responseKind": _response_kind(subresource.kind, resource),
            "verbs": sorted(subresource.verbs),
        }
        for subresource in sorted(resource.subresources, key=lambda subresource: subresource.name)
    ]
    if below:
        row["subresources"] = below
    return row


def _response_kind(kind: Kind, resource: Resource) -> Object:
    """Return the kind. Group and version are empty if they are those of the page."""
    if (kind.group, kind.version) == (resource.group, resource.version):
        return {"group": "", "version": "", "kind": kind.name}
    return {"group": kind.group, "version": kind.version, "kind": kind.name}


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
            subresource = {"subresource": below, "responseKind": kind, "verbs": row.get("verbs") or []}
            parent.setdefault("subresources", []).append(subresource)
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
