"""OpenAPI documents of the served resources: v3 for each group version, v2 as a whole."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Protocol

import orjson

from pinnace.kinds import published as built_in
from pinnace.model.objects import Kind, Object
from pinnace.model.openapi.custom import Envelope, publish_list, published
from pinnace.model.openapi.dialects import Dialect, OpenApiV2, OpenApiV3
from pinnace.model.openapi.parameters import query_of_minor
from pinnace.model.openapi.paths import META, Paths
from pinnace.model.openapi.schemas import OPENNESS, REFERENCE, names_in, schema_name, with_references
from pinnace.model.resources import Registry, Resource
from pinnace.server.discovery.discovery import Groups, group_resources
from pinnace.server.discovery.documents import ServedDocument
from pinnace.server.discovery.openapi_pages import DescribedPage, described_pages
from pinnace.server.discovery.openapi_protobuf import encode_document
from pinnace.server.request.negotiation import clauses

JSON = "application/json"
PROTOBUF_V2 = (
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
)

_V2_PROTOBUF = "v2 protobuf"
_EDITION = b"5"  # Part of every hash: raise it when documents change although the resources do not.
_FRESH = (("Cache-Control", "no-cache, private"), ("Vary", "Accept"))
_FOREVER = (("Cache-Control", "public, immutable"), ("Vary", "Accept"))

_KINDS = "x-kubernetes-group-version-kind"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_BARE_REFERENCE = re.compile(rb'\{"\$ref":"#/\$defs/([^"]+)"\}')


class SchemaDefinitions(Protocol):
    """The definitions of the built-in kinds."""

    minor: str

    def __contains__(self, name: str) -> bool: ...
    def raw_bytes(self, name: str) -> bytes: ...
    def name_of_kind(self, kind: Kind) -> str | None: ...


class OpenApi:
    """OpenAPI documents, each written at the first request, and again only if its resources change.

    A document's hash is that of its resources, so that the index has all hashes without writing a document.
    """

    def __init__(self, registry: Registry, definitions: SchemaDefinitions) -> None:
        self._registry = registry
        self._schemas = Schemas(definitions)
        self._minor = definitions.minor
        self._revision = -1
        self._groups: Groups = {}
        self._pages: dict[str, DescribedPage] = {}
        self._hashes: dict[str, str] = {}
        self._written: dict[str, ServedDocument] = {}

    def index(self) -> ServedDocument:
        """Return /openapi/v3: the URL of the document of each group and version."""
        self._refresh()
        paths = {path: {"serverRelativeURL": _url(path, digest)} for path, digest in self._hashes.items()}
        return ServedDocument(orjson.dumps({"paths": paths}), "text/plain; charset=utf-8")

    def v3(self, path: str, *, hash: str = "") -> ServedDocument | None:
        """Return /openapi/v3/<path>: the document of `apis/<group>/<version>` or of a page; None if it is not served.

        A document that is requested with its hash may be cached forever. With another hash, `location` is set.
        """
        self._refresh()
        present = self._hashes.get(path)
        if present is None:
            return None
        if hash and hash != present:
            return ServedDocument(b"", JSON, f'"{present}"', _FRESH, location=_url(path, present))
        if hash:
            return self._document_for(f"{path} forever", present, lambda: self._write_v3(path), headers=_FOREVER)
        return self._document_for(path, present, lambda: self._write_v3(path))

    def v2(self, accept: str = "") -> ServedDocument | None:
        """Return /openapi/v2: all APIs in one document; None if the client accepts neither JSON nor protobuf."""
        content_type = _format_of_v2(accept)
        if content_type == JSON:
            return self._document_for("v2", self._digest_v2(), self._write_v2)
        if content_type:
            return self._document_for(_V2_PROTOBUF, self._digest_v2(), self._write_v2_protobuf, content_type)
        return None

    async def prepare_v2(self, accept: str) -> None:
        """Encode /openapi/v2 in a thread if `v2` would encode protobuf, which takes 0.1 s after each definition."""
        if _format_of_v2(accept) != PROTOBUF_V2[-1]:
            return
        etag, known = f'"{self._digest_v2()}"', self._written.get(_V2_PROTOBUF)
        if known is None or known.etag != etag:
            body = await asyncio.to_thread(_to_protobuf, self._write_v2())
            self._written[_V2_PROTOBUF] = ServedDocument(body, PROTOBUF_V2[-1], etag, _FRESH)

    def _digest_v2(self) -> str:
        self._refresh()
        return hashlib.sha512("".join(self._hashes.values()).encode()).hexdigest().upper()

    def _refresh(self) -> None:
        if self._revision == self._registry.revision:
            return
        self._revision = self._registry.revision
        self._groups = group_resources(self._registry)
        self._hashes = {
            _path(group, version): self._hash(resources)
            for group, versions in self._groups.items()
            for version, resources in versions.items()
        }
        self._pages = described_pages(group for group, versions in self._groups.items() if _is_built_in(versions))
        self._hashes |= {path: self._hash([], path) for path in self._pages}
        for name in list(self._written):
            path = name.partition(" ")[0]
            if path != "v2" and path not in self._hashes:
                del self._written[name]

    def _hash(self, resources: Iterable[Resource], page: str = "") -> str:
        digest = hashlib.sha512(_EDITION + self._minor.encode() + page.encode())
        for resource in resources:
            described = (resource.kind, resource.plural, resource.namespaced, resource.verbs, resource.subresources)
            digest.update(repr(described).encode())
            if resource.fingerprint:
                digest.update(resource.fingerprint.encode())
            elif not self._schemas.is_built_in(resource.kind):
                digest.update(self._schemas.raw(resource))
        return digest.hexdigest().upper()

    def _document_for(
        self,
        name: str,
        digest: str,
        write: Callable[[], bytes],
        content_type: str = JSON,
        headers: tuple[tuple[str, str], ...] = _FRESH,
    ) -> ServedDocument:
        etag = f'"{digest}"'
        document = self._written.get(name)
        if document is None or document.etag != etag:
            document = self._written[name] = ServedDocument(write(), content_type, etag, headers)
        return document

    def _write_v3(self, path: str) -> bytes:
        page = self._pages.get(path)
        group, version = _group_version(path) if page is None else ("", "")
        resources = self._groups[group][version] if page is None else []
        is_custom = page is None and not _is_built_in({version: resources})
        title = {"title": "Kubernetes", "version": self._minor}
        if page is not None:
            paths: Object = {f"/{path}/": page.path(OpenApiV3())}
        else:
            paths = self._paths(OpenApiV3(), group, version, self._schemas.names(resources))
        if is_custom:
            title = {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}
        head = orjson.dumps({"openapi": "3.0.0", "info": title, "paths": paths})
        schemas = self._schemas.of(resources, head)
        if not is_custom:
            _narrow(schemas, {("", "v1"), (group, version)})
        parts = [b'"schemas":{' + _join(schemas, _in_v3) + b"}"] if schemas else []
        parts += [b'"securitySchemes":' + _SECURITY] if not is_custom else []
        return b'%b,"components":{%b}}' % (head[:-1], b",".join(parts))

    def _write_v2(self) -> bytes:
        every = [resource for versions in self._groups.values() for found in versions.values() for resource in found]
        names = self._schemas.names(every)
        paths: Object = {f"/{path}/": page.path(OpenApiV2()) for path, page in self._pages.items()}
        for group, versions in self._groups.items():
            for version in versions:
                paths.update(self._paths(OpenApiV2(), group, version, names))
        head = orjson.dumps({"swagger": "2.0", "info": {"title": "Kubernetes", "version": self._minor}, "paths": paths})
        return b"".join(
            (
                head[:-1],
                b',"definitions":{',
                _join(self._schemas.of(every, head, is_v2=True), _in_v2),
                b'},"securityDefinitions":',
                _SECURITY,
                b',"security":[{"BearerToken":[]}]}',
            )
        )

    def _paths(self, dialect: Dialect, group: str, version: str, names: Callable[[Kind], str]) -> Object:
        query = query_of_minor(self._minor, self._schemas.definition(f"{META}DeleteOptions"))
        is_typed = self._schemas.typed_name
        paths = Paths(dialect, (group, version), names, is_typed=is_typed, query=query, has_watches=True)
        return paths.of(self._groups[group][version])

    def _write_v2_protobuf(self) -> bytes:
        return _to_protobuf(self._write_v2())


def _format_of_v2(accept: str) -> str:
    """Return the content type of /openapi/v2 for a client; empty if it accepts neither JSON nor protobuf."""
    for media_type, _ in clauses(accept or JSON):
        if media_type in (JSON, "*/*", "application/*"):
            return JSON
        if media_type in PROTOBUF_V2:
            return PROTOBUF_V2[-1]
    return ""


def _to_protobuf(document: bytes) -> bytes:
    return encode_document(orjson.loads(document))


_SECURITY = orjson.dumps(
    {
        "BearerToken": {
            "type": "apiKey",
            "description": "Bearer Token authentication",
            "name": "authorization",
            "in": "header",
        }
    }
)


class Schemas:
    """The schemas of resources, as JSON with references `#/$defs/<name>`."""

    def __init__(self, definitions: SchemaDefinitions) -> None:
        self._definitions = definitions

    def is_built_in(self, kind: Kind) -> bool:
        return self._definitions.name_of_kind(kind) is not None

    def typed_name(self, kind: Kind) -> str:
        return self._definitions.name_of_kind(kind) or ""

    def names(self, resources: Iterable[Resource]) -> Callable[[Kind], str]:
        """Return the names, in documents, of these resources' kinds, of their lists and of the built-in kinds."""
        own = {}
        for resource in resources:
            if not self.is_built_in(resource.kind):
                kind = resource.kind
                own[kind] = schema_name(kind)
                own[kind._replace(name=resource.list_kind)] = schema_name(kind._replace(name=resource.list_kind))
        return lambda kind: own.get(kind) or self.typed_name(kind)

    def raw(self, resource: Resource) -> bytes:
        return orjson.dumps(resource.schema.raw, default=dict)

    def definition(self, name: str) -> Object:
        found: Object = orjson.loads(self._definitions.raw_bytes(name))
        return found

    def of(self, resources: Iterable[Resource], paths: bytes, *, is_v2: bool = False) -> dict[str, bytes]:
        """Return every schema that the paths of these resources refer to, directly or not, by name."""
        found: dict[str, bytes] = {}
        for resource in resources:
            if not self.is_built_in(resource.kind):
                found |= self._custom(resource, is_v2=is_v2)
        return with_references(found, names_in(paths), self._definitions)

    def _custom(self, resource: Resource, *, is_v2: bool) -> dict[str, bytes]:
        name = schema_name(resource.kind)
        list_name = schema_name(resource.kind._replace(name=resource.list_kind))
        custom = resource.custom
        schema = resource.schema.raw if custom is None else custom.raw_schema or None
        keeps_unknown = custom is not None and custom.keeps_unknown
        shape = published(resource, schema, self._envelope, keeps_unknown=keeps_unknown, is_v2=is_v2)
        listed = publish_list(resource, name, self._envelope)
        return {name: orjson.dumps(shape, default=dict), list_name: orjson.dumps(listed)}

    @cached_property
    def _envelope(self) -> Envelope:
        return Envelope(self.definition)


def _is_built_in(versions: Mapping[str, Sequence[Resource]]) -> bool:
    return any(resource.custom is None for resources in versions.values() for resource in resources)


def _narrow(schemas: dict[str, bytes], versions: set[tuple[str, str]]) -> None:
    """Keep of the kinds that DeleteOptions and WatchEvent have, one in each version, those of these versions."""
    for name in (f"{META}DeleteOptions", f"{META}WatchEvent"):
        if name in schemas:
            definition = orjson.loads(schemas[name])
            kinds = definition.get(_KINDS) or ()
            definition[_KINDS] = [kind for kind in kinds if (kind["group"], kind["version"]) in versions]
            schemas[name] = orjson.dumps(definition)


def _join(schemas: dict[str, bytes], form: Callable[[str, bytes], bytes]) -> bytes:
    return b",".join(b'"' + name.encode() + b'":' + form(name, body) for name, body in schemas.items())


def _in_v3(name: str, body: bytes) -> bytes:
    """Write a schema for v3, where a reference with other keys beside it must be in an allOf."""
    if name == _QUANTITY:
        return body.replace(b'"type":"string","format":"quantity"', b'"oneOf":[{"type":"string"},{"type":"number"}]')
    if name == _INT_OR_STRING:
        return body.replace(b'"type":"string",', b'"oneOf":[{"type":"integer"},{"type":"string"}],')
    body = built_in.in_v3(name, body)
    body = _BARE_REFERENCE.sub(rb'{"$ref":"#/components/schemas/\1"}', body)
    body = REFERENCE.sub(rb'"allOf":[{"$ref":"#/components/schemas/\1"}]', body)
    return body.replace(OPENNESS, b"") if name.startswith("io.k8s.api") else body


def _in_v2(name: str, body: bytes) -> bytes:
    if name == _QUANTITY:
        return body.replace(b',"format":"quantity"', b"")
    body = built_in.in_v2(name, body).replace(b'"#/$defs/', b'"#/definitions/')
    return body.replace(OPENNESS, b"") if name.startswith("io.k8s.api") else body


def _path(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _group_version(path: str) -> tuple[str, str]:
    _, *group, version = path.split("/")
    return (group[0] if group else ""), version


def _url(path: str, digest: str) -> str:
    return f"/openapi/v3/{path}?hash={digest}"
