"""OpenAPI documents of the served resources: v3 for each group version, v2 as a whole."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import orjson

from pinnace.kinds import published as built_in
from pinnace.kinds.definitions import Definitions
from pinnace.model.objects import Kind, Object
from pinnace.model.openapi.custom import Envelope, publish_list, published
from pinnace.model.openapi.dialects import Dialect, OpenApiV2, OpenApiV3
from pinnace.model.openapi.parameters import Parameters, query_of_minor
from pinnace.model.openapi.paths import META, OK, PRODUCED, Paths, capital, group_words, tag_of
from pinnace.model.openapi.schemas import OPENNESS, REFERENCE, names_in, schema_name, with_references
from pinnace.model.resources import Registry, Resource
from pinnace.serving.discovery.discovery import Groups, group_resources
from pinnace.serving.discovery.documents import ServedDocument
from pinnace.serving.discovery.openapi_parts import DocumentParts, Form, Part, join_document, write_part
from pinnace.serving.discovery.openapi_protobuf import encode_document
from pinnace.serving.request.negotiation import clauses

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


class OpenApi:
    """OpenAPI documents, each written at the first request, and again only if its resources change.

    A document's hash is that of its resources, so that the index has all hashes without writing a document.
    """

    def __init__(self, registry: Registry, definitions: Definitions) -> None:
        self._registry = registry
        self._schemas = Schemas(definitions)
        self._minor = definitions.minor
        self._revision = -1
        self._groups: Groups = {}
        self._pages: dict[str, DescribedPage] = {}
        self._hashes: dict[str, str] = {}
        self._written: dict[str, ServedDocument] = {}
        self._parts_v2 = DocumentParts(partial(self._write_part, OpenApiV2(), _in_v2), _in_v2, definitions)
        self._parts_v3 = DocumentParts(partial(self._write_part, OpenApiV3(), _in_v3), _in_v3, definitions)

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
        """Write what `v2` puts together in slices, and encode it in a thread if it is protobuf.

        With 1,500 custom kinds the document has 50 MB.
        """
        content_type = _format_of_v2(accept)
        name = _V2_PROTOBUF if content_type == PROTOBUF_V2[-1] else "v2"
        etag, known = f'"{self._digest_v2()}"', self._written.get(name)
        if not content_type or (known is not None and known.etag == etag):
            return
        await self._parts_v2.prepare(self._every())
        if name == _V2_PROTOBUF:
            etag = f'"{self._digest_v2()}"'  # Of the resources of now.
            body = await asyncio.to_thread(_to_protobuf, *self._gather_v2(), self._head_v2())
            self._written[_V2_PROTOBUF] = ServedDocument(body, PROTOBUF_V2[-1], etag, _FRESH)

    async def prepare_v3(self, path: str) -> None:
        """Write what `v3` puts together in slices, if there may be many resources."""
        self._refresh()
        if path in self._hashes and path not in self._pages:
            resources = self._resources_of(path)
            if _is_custom(resources):
                await self._parts_v3.prepare(resources)

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
        for parts in (self._parts_v2, self._parts_v3):
            parts.forget_all_but(self._every())
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
        resources = self._resources_of(path) if page is None else []
        if page is None and _is_custom(resources):
            return self._write_custom_v3(resources)
        group, version = _group_version(path) if page is None else ("", "")
        if page is not None:
            paths: Object = {f"/{path}/": page.path(OpenApiV3())}
        else:
            paths = self._paths(OpenApiV3(), resources)
        title = {"title": "Kubernetes", "version": self._minor}
        head = orjson.dumps({"openapi": "3.0.0", "info": title, "paths": paths})
        schemas = self._schemas.of(resources, head)
        _narrow(schemas, {("", "v1"), (group, version)})
        parts = [b'"schemas":{' + _join(schemas, _in_v3) + b"}"] if schemas else []
        parts += [b'"securitySchemes":' + _SECURITY]
        return b'%b,"components":{%b}}' % (head[:-1], b",".join(parts))

    def _write_custom_v3(self, resources: Sequence[Resource]) -> bytes:
        title = {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}
        head = orjson.dumps({"openapi": "3.0.0", "info": title})
        paths, schemas = self._parts_v3.gather(resources)
        return join_document(head, b'"paths":{', paths, b'},"components":{"schemas":{', schemas, b"}}}")

    def _write_v2(self) -> bytes:
        paths, schemas = self._gather_v2()
        return join_document(orjson.dumps(self._head_v2()), b'"paths":{', paths, b'},"definitions":{', schemas, b"}}")

    def _write_v2_protobuf(self) -> bytes:
        return _to_protobuf(*self._gather_v2(), self._head_v2())

    def _head_v2(self) -> Object:
        """Return the document without its paths and schemas."""
        return {
            "swagger": "2.0",
            "info": {"title": "Kubernetes", "version": self._minor},
            "securityDefinitions": orjson.loads(_SECURITY),
            "security": [{"BearerToken": []}],
        }

    def _gather_v2(self) -> tuple[dict[str, bytes], dict[str, bytes]]:
        pages = write_part({f"/{path}/": page.path(OpenApiV2()) for path, page in self._pages.items()}, {}, _in_v2)
        paths, schemas = self._parts_v2.gather(self._every(), *pages.referenced)
        return pages.paths | paths, schemas

    def _every(self) -> list[Resource]:
        return [
            resource for versions in self._groups.values() for resources in versions.values() for resource in resources
        ]

    def _resources_of(self, path: str) -> Sequence[Resource]:
        group, version = _group_version(path)
        return self._groups[group][version]

    def _paths(self, dialect: Dialect, resources: Sequence[Resource]) -> Object:
        names, is_typed = self._schemas.names(resources), self._schemas.typed_name
        place = (resources[0].group, resources[0].version)
        return Paths(dialect, place, names, is_typed=is_typed, query=self._query, has_watches=True).of(resources)

    @cached_property
    def _query(self) -> Parameters:
        return query_of_minor(self._minor, self._schemas.definition(f"{META}DeleteOptions"))

    def _write_part(self, dialect: Dialect, form: Form, resource: Resource) -> Part:
        own = self._schemas.own(resource, is_v2=isinstance(dialect, OpenApiV2))
        return write_part(self._paths(dialect, [resource]), own, form)


def _format_of_v2(accept: str) -> str:
    """Return the content type of /openapi/v2 for a client; empty if it accepts neither JSON nor protobuf."""
    for media_type, _ in clauses(accept or JSON):
        if media_type in (JSON, "*/*", "application/*"):
            return JSON
        if media_type in PROTOBUF_V2:
            return PROTOBUF_V2[-1]
    return ""


def _to_protobuf(paths: Mapping[str, bytes], schemas: Mapping[str, bytes], head: Object) -> bytes:
    return encode_document(head, paths.values(), schemas.values())


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

    def __init__(self, definitions: Definitions) -> None:
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
        decoded: Object = orjson.loads(self._definitions.raw_bytes(name))
        return decoded

    def of(self, resources: Iterable[Resource], paths: bytes) -> dict[str, bytes]:
        """Return every schema that the paths of these resources refer to, directly or not, by name."""
        definitions: dict[str, bytes] = {}
        for resource in resources:
            definitions |= self.own(resource)
        return with_references(definitions, names_in(paths), self._definitions)

    def own(self, resource: Resource, *, is_v2: bool = False) -> dict[str, bytes]:
        """Return the schemas of a resource that has none among the definitions: of its kind, and of its list."""
        if self.is_built_in(resource.kind):
            return {}
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


def _is_custom(resources: Sequence[Resource]) -> bool:
    return all(resource.custom is not None for resource in resources)


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


_JSON = ("application/json",)


@dataclass(frozen=True)
class DescribedPage:
    """One page, which is read with GET."""

    tag: str
    operation: str
    """Its operationId."""
    description: str
    schema: str = ""
    produced: tuple[str, ...] = PRODUCED
    consumed: tuple[str, ...] = PRODUCED

    def path(self, dialect: Dialect) -> Object:
        answer = dialect.operation(schema=self.schema, codes=OK, produced=self.produced, consumed=self.consumed)
        return {"get": {"tags": [self.tag], "description": self.description, "operationId": self.operation, **answer}}


_FIXED = {
    ".well-known/openid-configuration": DescribedPage(
        "WellKnown",
        "getServiceAccountIssuerOpenIDConfiguration",
        "get the OpenID configuration of the issuer of service account tokens",
        produced=_JSON,
        consumed=(),
    ),
    "api": DescribedPage("core", "getCoreAPIVersions", "get available API versions", f"{META}APIVersions"),
    "apis": DescribedPage("apis", "getAPIVersions", "get available API versions", f"{META}APIGroupList"),
    "openid/v1/jwks": DescribedPage(
        "openid",
        "getServiceAccountIssuerOpenIDKeyset",
        "get the public keys that verify service account tokens",
        produced=("application/jwk-set+json",),
        consumed=(),
    ),
    "version": DescribedPage(
        "version",
        "getCodeVersion",
        "get the version information for this server",
        "io.k8s.apimachinery.pkg.version.Info",
        produced=_JSON,
        consumed=_JSON,
    ),
}


def described_pages(groups: Iterable[str]) -> dict[str, DescribedPage]:
    """Return the pages by the names of their documents, with one for each of these API groups."""
    return _FIXED | {f"apis/{group}": _group_page(group) for group in groups if group}


def _group_page(group: str) -> DescribedPage:
    operation = f"get{''.join(map(capital, group_words(group)))}APIGroup"
    return DescribedPage(tag_of(group), operation, "get information of a group", f"{META}APIGroup")
