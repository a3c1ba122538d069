"""The operations of an OpenAPI document: URLs, methods, parameters and bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from pinnace.model.objects import Kind, Object
from pinnace.model.resources import Resource, Subresource

META = "io.k8s.apimachinery.pkg.apis.meta.v1."
PATCHES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
PRODUCED = ("application/json", "application/yaml")
STREAMED = "application/json;stream=watch"

_PARAMETERS: dict[str, tuple[str, str]] = {
    "allowWatchBookmarks": ("boolean", "Whether a watch may send events of type BOOKMARK."),
    "continue": ("string", "Where a list goes on: the token from the page before."),
    "dryRun": ("string", "All: go through every step of the write, but do not store the result."),
    "fieldManager": ("string", "Who makes this change, for the record of field ownership."),
    "fieldSelector": ("string", "Restrict the list of returned objects by their fields: metadata.name=web."),
    "fieldValidation": ("string", "What to do about unknown and repeated fields: Ignore, Warn or Strict."),
    "force": ("boolean", "Of an apply: take over fields that others own."),
    "gracePeriodSeconds": ("integer", "How long the object may take to end; 0 is at once."),
    "labelSelector": ("string", "Restrict the list of returned objects by their labels: app=web,tier!=cache."),
    "limit": ("integer", "How many objects a page of a list holds at most."),
    "orphanDependents": ("boolean", "Deprecated, see propagationPolicy."),
    "propagationPolicy": ("string", "What becomes of dependents: Orphan, Background or Foreground."),
    "resourceVersion": ("string", "The revision to answer from, or to watch from."),
    "resourceVersionMatch": ("string", "How resourceVersion constrains a list: Exact or NotOlderThan."),
    "sendInitialEvents": ("boolean", "Whether a watch begins with the objects that are there."),
    "timeoutSeconds": ("integer", "How long a list or watch may last."),
    "watch": ("boolean", "Watch for changes to the described resources instead of listing them."),
}
_STREAM_PARAMETERS: dict[str, tuple[str, str]] = {
    "command": ("string", "The command to run, without a shell: one parameter for each argument."),
    "container": ("string", "The container of the pod; its only one if this is empty."),
    "follow": ("boolean", "Follow the log until the container ends."),
    "insecureSkipTLSVerifyBackend": ("boolean", "Do not verify the certificate of the kubelet."),
    "limitBytes": ("integer", "The most bytes of the log to return."),
    "path": ("string", "The path of the request to the target."),
    "ports": ("integer", "The ports to forward, for WebSocket connections."),
    "previous": ("boolean", "Return the log of the container before its last restart."),
    "sinceSeconds": ("integer", "Return the log of this many last seconds."),
    "stderr": ("boolean", "Stream the standard error."),
    "stdin": ("boolean", "Stream the standard input."),
    "stdout": ("boolean", "Stream the standard output."),
    "stream": ("string", "The stream of the log to return: All, Stdout or Stderr."),
    "tailLines": ("integer", "Return this many last lines of the log."),
    "timestamps": ("boolean", "Begin each line of the log with its time."),
    "tty": ("boolean", "Allocate a terminal."),
}
_STREAMS = {
    "attach": ("container", "stderr", "stdin", "stdout", "tty"),
    "exec": ("command", "container", "stderr", "stdin", "stdout", "tty"),
    "log": (
        "container", "follow", "insecureSkipTLSVerifyBackend", "limitBytes", "previous", "sinceSeconds", "stream",
        "tailLines", "timestamps",
    ),
    "portforward": ("ports",),
    "proxy": ("path",),
}  # fmt: skip
"""The query parameters of subresources that stream."""
_LIST = (
    "allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit", "resourceVersion",
    "resourceVersionMatch", "sendInitialEvents", "timeoutSeconds", "watch",
)  # fmt: skip
_WRITE = ("dryRun", "fieldManager", "fieldValidation")
_DELETE = ("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy")
_DELETE_MANY = (
    "continue", "dryRun", "fieldSelector", "gracePeriodSeconds", "labelSelector", "limit", "orphanDependents",
    "propagationPolicy", "resourceVersion", "resourceVersionMatch", "sendInitialEvents", "timeoutSeconds",
)  # fmt: skip

_OK = {"200": "OK"}
_WRITTEN = {"200": "OK", "201": "Created"}


@dataclass(frozen=True)
class _Operation:
    """The properties that operations of one sort share."""

    prefix: str
    """The beginning of its operationId."""
    action: str
    parameters: tuple[str, ...] = ()
    codes: Mapping[str, str] = field(default_factory=lambda: _OK)
    streams: bool = False


_LISTING = _Operation("list", "list", _LIST, streams=True)
_CREATING = _Operation("create", "post", _WRITE, {**_WRITTEN, "202": "Accepted"})
_CREATING_SUBRESOURCE = _Operation("create", "post", _WRITE, {**_WRITTEN, "202": "Accepted"})
_READING = _Operation("read", "get")
_REPLACING = _Operation("replace", "put", _WRITE, _WRITTEN)
_PATCHING = _Operation("patch", "patch", (*_WRITE, "force"), _WRITTEN)
_DELETING = _Operation("delete", "delete", _DELETE, {"200": "OK", "202": "Accepted"})
_DELETING_MANY = _Operation("deleteCollection", "deletecollection", _DELETE_MANY)
_CONNECTING = _Operation("connect", "connect")

_CONNECTIONS = frozenset({"attach", "exec", "portforward", "proxy"})
_METHODS = {"create": "post", "delete": "delete", "get": "get", "patch": "patch", "update": "put"}

NameOf = Callable[[Kind], str]
"""Returns the schema name of a kind; empty if it has none."""


class Dialect(Protocol):
    """The differences between the versions of OpenAPI."""

    def parameter(self, name: str, place: str, type: str, description: str) -> Object: ...
    def operation(self, *, schema: str, codes: Mapping[str, str], streams: bool) -> Object: ...
    def with_body(self, operation: Object, schema: str, media_types: Iterable[str], *, required: bool) -> None: ...


class Paths:
    """Writes the paths of one group and version."""

    def __init__(self, dialect: Dialect, group: str, version: str, name_of: NameOf, *, is_typed: NameOf) -> None:
        self._dialect = dialect
        self._root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        self._name_of = name_of
        self._is_typed = is_typed
        words = (group.removesuffix(".k8s.io") or "core").split(".")
        self._tag = f"{words[0]}{''.join(_capital(word) for word in words[1:])}_{version}"
        self._owner = "".join(_capital(word) for word in (*words, version))
        self._query = {
            name: dialect.parameter(name, "query", type, description)
            for name, (type, description) in _PARAMETERS.items()
        }
        self._pretty = dialect.parameter("pretty", "query", "string", "true: write the answer for people to read.")
        self._namespace = dialect.parameter("namespace", "path", "string", "The namespace of the objects.")

    def of(self, resources: Iterable[Resource]) -> Object:
        paths: Object = {f"{self._root}/": {"get": self._resources()}}
        for resource in resources:
            self._collection(paths, resource)
            self._single(paths, resource)
            for below in resource.subresources:
                self._below(paths, resource, below)
        return dict(sorted(paths.items()))

    def _resources(self) -> Object:
        operation = self._dialect.operation(schema=f"{META}APIResourceList", codes=_OK, streams=False)
        description = {"tags": [self._tag], "description": "get available resources"}
        return {**description, "operationId": f"get{self._owner}APIResources", **operation}

    def _collection(self, paths: Object, resource: Resource) -> None:
        kind, item = resource.kind, Object()
        name, listed = self._name_of(kind), self._name_of(kind._replace(name=resource.list_kind))
        if "list" in resource.verbs:
            verbs = "list or watch" if "watch" in resource.verbs else "list"
            description = f"{verbs} objects of kind {kind.name}"
            item["get"] = self._operation(_LISTING, resource, description, listed)
            if resource.namespaced:
                of_all = replace(_LISTING, parameters=())
                everywhere = self._operation(
                    of_all, resource, description, listed, suffix="ForAllNamespaces", everywhere=True
                )
                shared = [*(self._query[name] for name in _LIST), self._pretty]
                paths[f"{self._root}/{resource.plural}"] = {"get": everywhere, "parameters": shared}
        if "create" in resource.verbs:
            create = self._operation(_CREATING, resource, f"create {_a(kind.name)}", name)
            self._dialect.with_body(create, name, ("*/*",), required=True)
            item["post"] = create
        if "deletecollection" in resource.verbs:
            description = f"delete collection of {kind.name}"
            delete = self._operation(_DELETING_MANY, resource, description, f"{META}Status")
            delete["operationId"] = delete["operationId"].replace("deleteCollection", "delete", 1)
            delete["operationId"] = delete["operationId"].replace(
                f"delete{self._owner}", f"delete{self._owner}Collection"
            )
            self._dialect.with_body(delete, f"{META}DeleteOptions", ("*/*",), required=False)
            item["delete"] = delete
        if item:
            paths[self._path(resource)] = {**item, "parameters": self._shared_parameters(resource)}

    def _single(self, paths: Object, resource: Resource) -> None:
        kind, item = resource.kind, Object()
        name = self._name_of(kind)
        if "get" in resource.verbs:
            item["get"] = self._operation(_READING, resource, f"read the specified {kind.name}", name)
        if "update" in resource.verbs:
            description = f"replace the specified {kind.name}"
            item["put"] = self._replace(resource, description, name)
        if "delete" in resource.verbs:
            delete = self._operation(_DELETING, resource, f"delete {_a(kind.name)}", f"{META}Status")
            self._dialect.with_body(delete, f"{META}DeleteOptions", ("*/*",), required=False)
            item["delete"] = delete
        if "patch" in resource.verbs:
            item["patch"] = self._patch(resource, f"partially update the specified {kind.name}", name)
        if item:
            paths[f"{self._path(resource)}/{{name}}"] = {
                **item,
                "parameters": self._shared_parameters(resource, named=True),
            }

    def _connect(self, paths: Object, resource: Resource, below: Subresource) -> None:
        """Add a subresource that takes over the connection, with every method."""
        item: Object = {}
        for verb in below.verbs:
            method = _METHODS[verb]
            description = f"connect {method.upper()} requests to {below.name} of {resource.kind.name}"
            connect = self._operation(_CONNECTING, resource, description, "", suffix=_capital(below.name))
            connect["operationId"] = connect["operationId"].replace(self._owner, self._owner + method.title(), 1)
            item[method] = connect | {"x-kubernetes-group-version-kind": _wire(below.kind)}
        shared = self._shared_parameters(resource, named=True)[:-1]  # The answer is not indented.
        paths[f"{self._path(resource)}/{{name}}/{below.name}"] = {
            **item,
            "parameters": [*shared, *self._stream_parameters(below.name)],
        }

    def _below(self, paths: Object, resource: Resource, below: Subresource) -> None:
        if below.name in _CONNECTIONS:
            self._connect(paths, resource, below)
            return
        suffix, kind, item = _capital(below.name), below.kind, Object()
        name = self._name_of(kind)
        of = f"{below.name} of the specified {resource.kind.name}"
        if "get" in below.verbs:
            item["get"] = self._operation(_READING, resource, f"read {of}", name, suffix=suffix, kind=kind)
        if "update" in below.verbs:
            item["put"] = self._replace(resource, f"replace {of}", name, suffix=suffix, kind=kind)
        if "patch" in below.verbs:
            item["patch"] = self._patch(resource, f"partially update {of}", name, suffix=suffix, kind=kind)
        if "create" in below.verbs:
            create = self._operation(_CREATING_SUBRESOURCE, resource, f"create {of}", name, suffix=suffix, kind=kind)
            if name:
                self._dialect.with_body(create, name, ("*/*",), required=True)
            item["post"] = create
        if item:
            path = f"{self._path(resource)}/{{name}}/{below.name}"
            shared = [*self._shared_parameters(resource, named=True), *self._stream_parameters(below.name)]
            paths[path] = {**item, "parameters": shared}

    def _stream_parameters(self, subresource: str) -> list[Object]:
        names = _STREAMS.get(subresource, ())
        return [self._dialect.parameter(name, "query", *_STREAM_PARAMETERS[name]) for name in names]

    def _replace(
        self, resource: Resource, description: str, name: str, *, suffix: str = "", kind: Kind | None = None
    ) -> Object:
        operation = self._operation(_REPLACING, resource, description, name, suffix=suffix, kind=kind)
        if name:
            self._dialect.with_body(operation, name, ("*/*",), required=True)
        return operation

    def _patch(
        self, resource: Resource, description: str, name: str, *, suffix: str = "", kind: Kind | None = None
    ) -> Object:
        patch = self._operation(_PATCHING, resource, description, name, suffix=suffix, kind=kind)
        media_types = PATCHES if self._is_typed(resource.kind) else PATCHES[:-1]
        self._dialect.with_body(patch, f"{META}Patch", media_types, required=True)
        return patch

    def _operation(
        self,
        operation: _Operation,
        resource: Resource,
        description: str,
        schema: str,
        *,
        suffix: str = "",
        kind: Kind | None = None,
        everywhere: bool = False,
    ) -> Object:
        scope = "Namespaced" if resource.namespaced and not everywhere else ""
        kind = kind or resource.kind
        parameters = [self._query[name] for name in operation.parameters]
        return {
            "tags": [self._tag],
            "description": description,
            "operationId": f"{operation.prefix}{self._owner}{scope}{resource.kind.name}{suffix}",
            **({"parameters": parameters} if parameters else {}),
            **self._dialect.operation(schema=schema, codes=operation.codes, streams=operation.streams),
            "x-kubernetes-action": operation.action,
            "x-kubernetes-group-version-kind": _wire(kind),
        }

    def _path(self, resource: Resource) -> str:
        scope = "/namespaces/{namespace}" if resource.namespaced else ""
        return f"{self._root}{scope}/{resource.plural}"

    def _shared_parameters(self, resource: Resource, *, named: bool = False) -> list[Object]:
        shared = []
        if named:
            description = f"The name of the {resource.kind.name}."
            shared.append(self._dialect.parameter("name", "path", "string", description))
        if resource.namespaced:
            shared.append(self._namespace)
        return [*shared, self._pretty]


class OpenApiV3:
    def parameter(self, name: str, place: str, type: str, description: str) -> Object:
        parameter: Object = {"name": name, "in": place, "description": description}
        if place == "path":
            parameter["required"] = True
        return {**parameter, "schema": {"type": type, "uniqueItems": True}}

    def operation(self, *, schema: str, codes: Mapping[str, str], streams: bool) -> Object:
        content = self._content(schema, (*PRODUCED, STREAMED) if streams else PRODUCED)
        responses: Object = {code: {"description": description, **content} for code, description in codes.items()}
        return {"responses": {**responses, "401": {"description": "Unauthorized"}}}

    def with_body(self, operation: Object, schema: str, media_types: Iterable[str], *, required: bool) -> None:
        body: Object = self._content(schema, media_types)
        operation["requestBody"] = {**body, "required": True} if required else body

    def _content(self, schema: str, media_types: Iterable[str]) -> Object:
        if not schema:
            return {"content": {media_type: {"schema": {"type": "string"}} for media_type in media_types}}
        reference = {"$ref": f"#/components/schemas/{schema}"}
        return {"content": {media_type: {"schema": reference} for media_type in media_types}}


class OpenApiV2:
    def parameter(self, name: str, place: str, type: str, description: str) -> Object:
        parameter: Object = {"uniqueItems": True, "type": type, "description": description, "name": name, "in": place}
        return {**parameter, "required": True} if place == "path" else parameter

    def operation(self, *, schema: str, codes: Mapping[str, str], streams: bool) -> Object:
        shape: Any = {"$ref": f"#/definitions/{schema}"} if schema else {"type": "string"}
        responses: Object = {code: {"description": description, "schema": shape} for code, description in codes.items()}
        return {
            "consumes": ["*/*"],
            "produces": [*PRODUCED, STREAMED] if streams else list(PRODUCED),
            "schemes": ["https"],
            "responses": {**responses, "401": {"description": "Unauthorized"}},
        }

    def with_body(self, operation: Object, schema: str, media_types: Iterable[str], *, required: bool) -> None:
        body: Object = {"name": "body", "in": "body", "schema": {"$ref": f"#/definitions/{schema}"}}
        if required:
            body["required"] = True
        operation["parameters"] = [body, *operation.get("parameters", ())]
        operation["consumes"] = list(media_types)


def _wire(kind: Kind) -> Object:
    return {"group": kind.group, "version": kind.version, "kind": kind.name}


def _capital(word: str) -> str:
    return word[:1].upper() + word[1:]


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "AEIOU" else f"a {noun}"
