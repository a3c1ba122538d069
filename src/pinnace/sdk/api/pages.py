"""The discovery and OpenAPI pages of an API server."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

import orjson

from pinnace.kinds.definitions import Definitions
from pinnace.model.objects import Kind, Object
from pinnace.model.openapi.custom import Envelope, publish_list, published
from pinnace.model.openapi.dialects import Dialect, OpenApiV2, OpenApiV3
from pinnace.model.openapi.paths import Paths
from pinnace.model.openapi.schemas import OPENNESS, names_in, schema_name, with_references
from pinnace.model.resources import Resource
from pinnace.model.version_order import version_rank
from pinnace.sdk.api.computed import ComputedApi
from pinnace.sdk.api.kinds import ApiKind

DISCOVERY_VERSIONS = ("v2", "v2beta1")

_BESIDE_OTHERS = re.compile(rb'(?<!\{)"\$ref":"#/\$defs/([^"]+)"|"\$ref":"#/\$defs/([^"]+)"(?!\})')


class Pages:
    """The pages of all versions of all groups that one process serves. They never change while it runs."""

    def __init__(
        self, kinds: Sequence[ApiKind], definitions: Definitions, *, title: str, computed: ComputedApi | None = None
    ) -> None:
        """`computed`: an API that is in discovery, but in no OpenAPI document."""
        self._definitions = definitions
        self._title = title
        self._versions: dict[tuple[str, str], list[ApiKind]] = {}
        for kind in sorted(kinds, key=lambda kind: version_rank(kind.kind.version)):
            self._versions.setdefault((kind.kind.group, kind.kind.version), []).append(kind)
        self._computed = computed
        self._places = [*self._versions, *(computed.versions if computed is not None else ())]

    # Discovery.

    def groups(self) -> Object:
        """/apis"""
        names = dict.fromkeys(group for group, _ in self._places)
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [self._group(name) for name in names]}

    def group(self, name: str) -> Object | None:
        """/apis/<group>"""
        if not any(group == name for group, _ in self._places):
            return None
        return {"kind": "APIGroup", "apiVersion": "v1", **self._group(name)}

    def _group(self, name: str) -> Object:
        versions = [
            {"groupVersion": f"{group}/{version}", "version": version}
            for group, version in self._places
            if group == name
        ]
        return {"name": name, "versions": versions, "preferredVersion": versions[0]}

    def resources(self, group: str, version: str) -> Object | None:
        """/apis/<group>/<version>"""
        if (group, version) not in self._places:
            return None
        kinds = self._versions.get((group, version))
        if kinds is not None:
            rows = [row for kind in kinds for row in _rows(kind.resource)]
        else:
            rows = self._computed.rows(group, version) if self._computed is not None else []
        head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{version}"}
        return {**head, "resources": rows}

    def aggregated(self, discovery_version: str) -> Object:
        """/apis as aggregated discovery."""
        groups: dict[str, list[Object]] = {}
        for (group, version), kinds in self._versions.items():
            rows = [_aggregated_row(kind.resource) for kind in kinds]
            groups.setdefault(group, []).append({"version": version, "resources": rows, "freshness": "Current"})
        computed = self._computed
        for group, version in computed.versions if computed is not None else ():
            rows = _aggregated_rows(computed.rows(group, version), group, version) if computed is not None else []
            groups.setdefault(group, []).append({"version": version, "resources": rows, "freshness": "Current"})
        return {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": f"apidiscovery.k8s.io/{discovery_version}",
            "metadata": {},
            "items": [{"metadata": {"name": name}, "versions": versions} for name, versions in groups.items()],
        }

    # OpenAPI.

    def openapi_index(self) -> Object:
        """/openapi/v3"""
        paths = {}
        for group, version in self._versions:
            page = f"apis/{group}/{version}"
            paths[page] = {"serverRelativeURL": f"/openapi/v3/{page}?hash={_hash(self._v3[group, version])}"}
        return {"paths": paths}

    def openapi_v3(self, group: str, version: str) -> tuple[bytes, str] | None:
        """/openapi/v3/apis/<group>/<version> and its hash."""
        body = self._v3.get((group, version))
        return (body, _hash(body)) if body is not None else None

    def openapi_v2(self) -> tuple[bytes, str]:
        """/openapi/v2 and its hash."""
        return self._v2, _hash(self._v2)

    @cached_property
    def _v3(self) -> dict[tuple[str, str], bytes]:
        return {place: self._write_v3(*place) for place in self._versions}

    def _write_v3(self, group: str, version: str) -> bytes:
        paths = self._paths(OpenApiV3(), group, version)
        information = {"title": self._title, "version": version}
        head = orjson.dumps({"openapi": "3.0.0", "info": information, "paths": paths})
        schemas = _join(self._schemas(self._versions[group, version], head, is_v2=False), _in_v3)
        return b'%b,"components":{"schemas":{%b}}}' % (head[:-1], schemas)

    @cached_property
    def _v2(self) -> bytes:
        paths: Object = {}
        for group, version in self._versions:
            paths |= self._paths(OpenApiV2(), group, version)
        every = [kind for kinds in self._versions.values() for kind in kinds]
        information = {"title": self._title, "version": "unversioned"}
        head = orjson.dumps({"swagger": "2.0", "info": information, "paths": paths})
        schemas = _join(self._schemas(every, head, is_v2=True), _in_v2)
        return b'%b,"definitions":{%b}}' % (head[:-1], schemas)

    def _paths(self, dialect: Dialect, group: str, version: str) -> Object:
        resources = [kind.resource for kind in self._versions[group, version]]
        return Paths(dialect, (group, version), self._names(resources), is_typed=lambda kind: "").of(resources)

    def _names(self, resources: Iterable[Resource]) -> Callable[[Kind], str]:
        own: dict[Kind, str] = {}
        for resource in resources:
            listed = resource.kind._replace(name=resource.list_kind)
            own |= {resource.kind: schema_name(resource.kind), listed: schema_name(listed)}
        return lambda kind: own.get(kind) or self._definitions.name_of_kind(kind) or ""

    def _schemas(self, kinds: Iterable[ApiKind], paths: bytes, *, is_v2: bool) -> dict[str, bytes]:
        """Return the schemas of these kinds and all schemas that they or the paths refer to."""
        found: dict[str, bytes] = {}
        for kind in kinds:
            resource, name = kind.resource, schema_name(kind.kind)
            shape = published(resource, kind.raw_schema, self._envelope, keeps_unknown=False, is_v2=is_v2)
            found[name] = orjson.dumps(shape)
            listed = schema_name(kind.kind._replace(name=resource.list_kind))
            found[listed] = orjson.dumps(publish_list(resource, name, self._envelope))
        return with_references(found, names_in(paths), self._definitions)

    @cached_property
    def _envelope(self) -> Envelope:
        return Envelope(lambda name: orjson.loads(self._definitions.raw_bytes(name)))


def _rows(resource: Resource) -> list[Object]:
    row: Object = {"name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced}
    row |= {"kind": resource.kind.name, "verbs": list(resource.verbs)}
    if resource.short_names:
        row["shortNames"] = list(resource.short_names)
    if resource.categories:
        row["categories"] = list(resource.categories)
    rows = [row]
    for below in resource.subresources:
        named = {"name": f"{resource.plural}/{below.name}", "singularName": "", "namespaced": resource.namespaced}
        rows.append({**named, "kind": below.kind.name, "verbs": list(below.verbs)})
    return rows


def _aggregated_row(resource: Resource) -> Object:
    kind = resource.kind
    row: Object = {
        "resource": resource.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.name},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        row["shortNames"] = list(resource.short_names)
    if resource.categories:
        row["categories"] = list(resource.categories)
    if resource.subresources:
        row["subresources"] = [
            {"subresource": below.name, "responseKind": row["responseKind"], "verbs": list(below.verbs)}
            for below in resource.subresources
        ]
    return row


def _aggregated_rows(rows: Iterable[Object], group: str, version: str) -> list[Object]:
    """Return plain rows of a discovery page as rows of aggregated discovery. A name with a / is a subresource."""
    found: dict[str, Object] = {}
    for row in rows:
        plural, _, below = row["name"].partition("/")
        kind = {"group": group, "version": version, "kind": row["kind"]}
        named = found.setdefault(
            plural, {"resource": plural, "scope": _scope(row), "singularResource": "", "verbs": []}
        )
        if below:
            subresource = {"subresource": below, "responseKind": kind, "verbs": row["verbs"]}
            named["subresources"] = [*named.get("subresources", ()), subresource]
        else:
            named |= {"responseKind": kind, "verbs": row["verbs"]}
    return list(found.values())


def _scope(row: Object) -> str:
    return "Namespaced" if row["namespaced"] else "Cluster"


def _join(schemas: dict[str, bytes], form: Callable[[bytes], bytes]) -> bytes:
    closed = {
        name: body.replace(OPENNESS, b"") if name.startswith("io.k8s.api") else body for name, body in schemas.items()
    }
    return b",".join(b'"%b":%b' % (name.encode(), form(body)) for name, body in closed.items())


def _in_v2(body: bytes) -> bytes:
    return body.replace(b'"#/$defs/', b'"#/definitions/')


def _in_v3(body: bytes) -> bytes:
    """Move references into an allOf: in v3 a reference has no siblings."""
    body = _BESIDE_OTHERS.sub(
        lambda found: b'"allOf":[{"$ref":"#/components/schemas/%b"}]' % (found[1] or found[2]), body
    )
    return body.replace(b'"#/$defs/', b'"#/components/schemas/')


def _hash(body: bytes) -> str:
    return hashlib.sha512(body).hexdigest().upper()
