"""Discovery: the served groups, versions and resources, one page for each or all in one."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable

import orjson

from pinnace.model.objects import Kind, Object
from pinnace.model.resources import Registry, Resource
from pinnace.model.version_order import version_rank
from pinnace.server.aggregation import AggregatedBackends, NoBackends
from pinnace.server.discovery.aggregated_discovery import Served, merge_groups, version_of_backend
from pinnace.server.discovery.documents import ServedDocument, content_hash
from pinnace.server.request.negotiation import JSON, clauses

_AGGREGATED_VERSIONS = ("v2", "v2beta1")
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
            version = _preferred_aggregation(accept)
            if version:
                return self._page_for(f"{path} {version}", lambda: self._aggregate(parts[0], version))
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
        found = self._groups.get(group, {}).get(version)
        if not isinstance(found, list):
            return None
        listed = [row for resource in found for row in _rows(resource)]
        group_version = f"{group}/{version}" if group else version
        page: Object = {"kind": "APIResourceList"}
        if group:
            page["apiVersion"] = "v1"
        return _document({**page, "groupVersion": group_version, "resources": listed})

    def _aggregate(self, root: str, version: str) -> ServedDocument | None:
        if root not in ("api", "apis"):
            return None
        items = [
            {
                "metadata": {"name": name} if name else {},
                "versions": [_aggregated_version(served, found) for served, found in versions.items()],
            }
            for name, versions in self._groups.items()
            if bool(name) == (root == "apis")
        ]
        page = {"kind": "APIGroupDiscoveryList", "apiVersion": f"apidiscovery.k8s.io/{version}", "metadata": {}}
        body = orjson.dumps({**page, "items": items}, option=orjson.OPT_APPEND_NEWLINE)
        content_type = f"{JSON};g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
        return ServedDocument(body, content_type, etag=f'"{content_hash(body)}"', headers=_SHARED)


def group_resources(registry: Registry) -> Groups:
    """Group resources by group, in the order of the registry, and version, ranked. Resources are sorted by name."""
    groups: Groups = {}
    for resource in registry:
        groups.setdefault(resource.group, {}).setdefault(resource.version, []).append(resource)
    for name, versions in groups.items():
        groups[name] = {
            version: sorted(versions[version], key=lambda found: found.plural)
            for version in sorted(versions, key=version_rank)
        }
    return groups


def storage_version_hash(stored: Kind) -> str:
    digest = hashlib.sha256(f"{stored.group}/{stored.version}/{stored.name}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()


def _preferred_aggregation(accept: str) -> str:
    """Return the version of aggregated discovery that the client prefers; empty if it prefers the plain page."""
    if "apidiscovery" not in accept:
        return ""
    for media_type, parameters in clauses(accept):
        if media_type == JSON:
            if "as" not in parameters:
                return ""
            version = parameters.get("v", "")
            is_ours = parameters["as"] == "APIGroupDiscoveryList" and parameters.get("g") == "apidiscovery.k8s.io"
            if is_ours and version in _AGGREGATED_VERSIONS:
                return version
    return ""


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
    for below in sorted(resource.subresources, key=lambda found: found.name):
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


def _aggregated_version(version: str, found: Served) -> Object:
    if not isinstance(found, list):
        return version_of_backend(found)
    return {"version": version, "resources": [_aggregated_row(one) for one in found], "freshness": "Current"}


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
        {"subresource": found.name, "responseKind": _response_kind(found.kind, resource), "verbs": sorted(found.verbs)}
        for found in sorted(resource.subresources, key=lambda found: found.name)
    ]
    if below:
        row["subresources"] = below
    return row


def _response_kind(kind: Kind, resource: Resource) -> Object:
    """Return the kind. Group and version are empty if they are those of the page."""
    if (kind.group, kind.version) == (resource.group, resource.version):
        return {"group": "", "version": "", "kind": kind.name}
    return {"group": kind.group, "version": kind.version, "kind": kind.name}
