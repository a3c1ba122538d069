"""The operations of an OpenAPI document: URLs, methods, parameters and bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from pinnace.model.objects import Kind, Object
from pinnace.model.openapi import parameters
from pinnace.model.openapi.dialects import ANY_TYPE, Dialect
from pinnace.model.resources import Resource, Subresource

META = "io.k8s.apimachinery.pkg.apis.meta.v1."
STRATEGIC = "application/strategic-merge-patch+json"
PATCHES = ("application/json-patch+json", "application/merge-patch+json", STRATEGIC, "application/apply-patch+yaml")
PRODUCED = ("application/json", "application/yaml")
STREAMED = (*PRODUCED, "application/json;stream=watch")

_NAMESPACE = "io.k8s.api.core.v1.Namespace"
"""Published as if a deletion showed a Status."""
OK = {"200": "OK"}
_WRITTEN = {"200": "OK", "201": "Created"}


@dataclass(frozen=True)
class _Operation:
    """The properties that operations of one sort share."""

    prefix: str
    """The beginning of its operationId."""
    action: str
    parameters: tuple[str, ...] = ()
    codes: Mapping[str, str] = field(default_factory=lambda: OK)
    produced: tuple[str, ...] = PRODUCED


_LISTING = _Operation("list", "list", parameters.LIST, produced=STREAMED)
_WATCHING_LIST = _Operation("watch", "watchlist", parameters.LIST, produced=STREAMED)
_WATCHING = _Operation("watch", "watch", parameters.LIST, produced=STREAMED)
_CREATING = _Operation("create", "post", parameters.WRITE, {**_WRITTEN, "202": "Accepted"})
_READING = _Operation("read", "get")
_READING_LOG = _Operation("read", "get", produced=("text/plain", *PRODUCED))
_REPLACING = _Operation("replace", "put", parameters.WRITE, _WRITTEN)
_PATCHING = _Operation("patch", "patch", (*parameters.WRITE, "force"), _WRITTEN)
_DELETING = _Operation("delete", "delete", parameters.DELETE, {"200": "OK", "202": "Accepted"})
_DELETING_MANY = _Operation("deleteCollection", "deletecollection", parameters.DELETE_MANY)
_CONNECTING = _Operation("connect", "connect", produced=ANY_TYPE)

_CONNECTIONS = frozenset({"attach", "exec", "portforward", "proxy"})
_METHODS = {"create": "post", "delete": "delete", "get": "get", "patch": "patch", "update": "put"}

NameOf = Callable[[Kind], str]
"""Returns the schema name of a kind; empty if it has none."""


class Paths:
    """Writes the paths of one group and version.

    Custom resources differ from other ones as in Kubernetes: no operation streams, bodies are JSON or YAML, a patch
    creates nothing, and a collection is deleted without a body.
    """

    def __init__(
        self,
        dialect: Dialect,
        group_version: tuple[str, str],
        name_of: NameOf,
        *,
        is_typed: NameOf,
        query: parameters.Parameters = parameters.QUERY,
        has_watches: bool = False,
    ) -> None:
        """`has_watches`: the server has the deprecated paths below /watch too."""
        group, version = group_version
        self._dialect = dialect
        self._root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        self._name_of = name_of
        self._is_typed = is_typed
        self._has_watches = has_watches
        words = group_words(group)
        self._tag = f"{tag_of(group)}_{version}"
        self._owner = "".join(capital(word) for word in (*words, version))
        self._query = {
            name: dialect.parameter(name, "query", type, description) for name, (type, description) in query.items()
        }
        self._pretty = dialect.parameter("pretty", "query", "string", "true: write the answer for people to read.")
        self._namespace = dialect.parameter("namespace", "path", "string", "The namespace of the objects.")

    def of(self, resources: Iterable[Resource]) -> Object:
        paths: Object = {}
        for resource in resources:
            if resource.custom is None:
                paths[f"{self._root}/"] = {"get": self._resources()}
            self._collection(paths, resource)
            self._single(paths, resource)
            if self._has_watches and resource.custom is None and "watch" in resource.verbs:
                self._watches(paths, resource)
            for below in resource.subresources:
                self._below(paths, resource, below)
        return dict(sorted(paths.items()))

    def _resources(self) -> Object:
        name = f"{META}APIResourceList"
        operation = self._dialect.operation(schema=name, codes=OK, produced=PRODUCED, consumed=PRODUCED)
        description = {"tags": [self._tag], "description": "get available resources"}
        return {**description, "operationId": f"get{self._owner}APIResources", **operation}

    def _collection(self, paths: Object, resource: Resource) -> None:
        kind, item = resource.kind, Object()
        name = self._name_of(kind)
        if "list" in resource.verbs:
            item["get"] = self._list(resource)
            if resource.namespaced:
                everywhere = {"get": self._list(resource, everywhere=True)}
                self._add(paths, f"{self._root}/{resource.plural}", everywhere, [self._pretty])
        if "create" in resource.verbs:
            create = self._operation(_CREATING, resource, f"create {_a(kind.name)}", name)
            self._dialect.with_body(create, name, _bodies(resource), required=True)
            item["post"] = create
        if "deletecollection" in resource.verbs:
            item["delete"] = self._delete_collection(resource)
        self._add(paths, self._path(resource), item, self._shared_parameters(resource))

    def _list(self, resource: Resource, *, everywhere: bool = False) -> Object:
        kind = resource.kind
        listed = self._name_of(kind._replace(name=resource.list_kind))
        listing = _LISTING if resource.custom is None else replace(_LISTING, produced=PRODUCED)
        verbs = "list or watch" if "watch" in resource.verbs and resource.custom is None else "list"
        description, suffix = f"{verbs} objects of kind {kind.name}", "ForAllNamespaces" if everywhere else ""
        return self._operation(listing, resource, description, listed, suffix=suffix, everywhere=everywhere)

    def _delete_collection(self, resource: Resource) -> Object:
        names = parameters.LIST if resource.custom is not None else parameters.DELETE_MANY
        operation = replace(_DELETING_MANY, parameters=names)
        description = f"delete collection of {resource.kind.name}"
        delete = self._operation(operation, resource, description, f"{META}Status")
        delete["operationId"] = delete["operationId"].replace(
            f"deleteCollection{self._owner}", f"delete{self._owner}Collection", 1
        )
        if resource.custom is None:
            self._dialect.with_body(delete, f"{META}DeleteOptions", ANY_TYPE, required=False)
        return delete

    def _single(self, paths: Object, resource: Resource) -> None:
        kind, item = resource.kind, Object()
        name = self._name_of(kind)
        if "get" in resource.verbs:
            item["get"] = self._operation(_reading(resource), resource, f"read the specified {kind.name}", name)
        if "update" in resource.verbs:
            description = f"replace the specified {kind.name}"
            item["put"] = self._replace(resource, description, name)
        if "delete" in resource.verbs:
            answer = name if resource.strategy.answers_with_deleted and name != _NAMESPACE else f"{META}Status"
            delete = self._operation(_DELETING, resource, f"delete {_a(kind.name)}", answer)
            self._dialect.with_body(delete, f"{META}DeleteOptions", _bodies(resource), required=False)
            item["delete"] = delete
        if "patch" in resource.verbs:
            item["patch"] = self._patch(resource, f"partially update the specified {kind.name}", name)
        self._add(paths, f"{self._path(resource)}/{{name}}", item, self._shared_parameters(resource, named=True))

    def _watches(self, paths: Object, resource: Resource) -> None:
        """Add the deprecated paths that watch without a parameter."""
        description = f"watch a list of {resource.kind.name}. deprecated: use the parameter watch of a list"
        root, event = f"{self._root}/watch", f"{META}WatchEvent"
        below = self._path(resource).replace(self._root, root, 1)
        if resource.namespaced:
            everywhere = self._operation(
                _WATCHING_LIST, resource, description, event, suffix="ListForAllNamespaces", everywhere=True
            )
            self._add(paths, f"{root}/{resource.plural}", {"get": everywhere}, [self._pretty])
        listed = self._operation(_WATCHING_LIST, resource, description, event, suffix="List")
        self._add(paths, below, {"get": listed}, self._shared_parameters(resource))
        description = (
            f"watch one {resource.kind.name}. deprecated: use the parameters watch and fieldSelector of a list"
        )
        single = self._operation(_WATCHING, resource, description, event)
        self._add(paths, f"{below}/{{name}}", {"get": single}, self._shared_parameters(resource, named=True))

    def _connect(self, paths: Object, resource: Resource, below: Subresource) -> None:
        """Add a subresource that takes over the connection, with every method."""
        path, suffix = f"{self._path(resource)}/{{name}}/{below.name}", capital(below.name)
        methods = [_METHODS[verb] for verb in below.verbs]
        shared = self._shared_parameters(resource, named=True)[:-1]  # The answer is not indented.
        shared += self._stream_parameters(below.name)
        if below.name == "proxy":
            methods += ["head", "options"]
            rest = self._dialect.parameter("path", "path", "string", "The path of the request to the target.")
            item = {method: self._connection(resource, below, method, f"{suffix}WithPath") for method in methods}
            self._add(paths, f"{path}/{{path}}", item, [*shared, rest])
        self._add(
            paths, path, {method: self._connection(resource, below, method, suffix) for method in methods}, shared
        )

    def _connection(self, resource: Resource, below: Subresource, method: str, suffix: str) -> Object:
        description = f"connect {method.upper()} requests to {below.name} of {resource.kind.name}"
        connect = self._operation(_CONNECTING, resource, description, "", suffix=suffix, kind=below.kind)
        connect["operationId"] = connect["operationId"].replace(self._owner, self._owner + method.title(), 1)
        return connect

    def _below(self, paths: Object, resource: Resource, below: Subresource) -> None:
        if below.name in _CONNECTIONS:
            self._connect(paths, resource, below)
            return
        suffix, item = capital(below.name), Object()
        kind = below.kind if resource.custom is None else resource.kind
        name = self._name_of(below.kind) if below.name != "log" else ""
        of = f"{below.name} of the specified {resource.kind.name}"
        if "get" in below.verbs:
            reading = _READING_LOG if below.name == "log" else _reading(resource)
            item["get"] = self._operation(reading, resource, f"read {of}", name, suffix=suffix, kind=kind)
        if "update" in below.verbs:
            item["put"] = self._replace(resource, f"replace {of}", name, suffix=suffix, kind=kind)
        if "patch" in below.verbs:
            item["patch"] = self._patch(resource, f"partially update {of}", name, suffix=suffix, kind=kind)
        if "create" in below.verbs:
            description = f"create {below.name} of {_a(resource.kind.name)}"
            create = self._operation(_CREATING, resource, description, name, suffix=suffix, kind=kind)
            if name:
                self._dialect.with_body(create, name, _bodies(resource), required=True)
            item["post"] = create
        shared = [*self._shared_parameters(resource, named=True), *self._stream_parameters(below.name)]
        self._add(paths, f"{self._path(resource)}/{{name}}/{below.name}", item, shared)

    def _add(self, paths: Object, path: str, item: Object, shared: list[Object]) -> None:
        """Add a path. Parameters that all of its operations have belong to the path."""
        if not item:
            return
        first, *others = (operation.get("parameters", []) for operation in item.values())
        common = [
            parameter
            for parameter in first
            if parameter["in"] != "body" and all(parameter in other for other in others)
        ]
        for operation in item.values():
            own = [given for given in operation.pop("parameters", ()) if given not in common]
            if own:
                operation["parameters"] = own
        paths[path] = {
            **item,
            "parameters": sorted([*shared, *common], key=lambda parameter: (parameter["name"], parameter["in"])),
        }

    def _stream_parameters(self, subresource: str) -> list[Object]:
        names = parameters.STREAMS.get(subresource, ())
        return [self._dialect.parameter(name, "query", *parameters.STREAM_QUERY[name]) for name in names]

    def _replace(
        self, resource: Resource, description: str, name: str, *, suffix: str = "", kind: Kind | None = None
    ) -> Object:
        operation = self._operation(_REPLACING, resource, description, name, suffix=suffix, kind=kind)
        if name:
            self._dialect.with_body(operation, name, _bodies(resource), required=True)
        return operation

    def _patch(
        self, resource: Resource, description: str, name: str, *, suffix: str = "", kind: Kind | None = None
    ) -> Object:
        patching = _PATCHING if resource.custom is None else replace(_PATCHING, codes=OK)
        patch = self._operation(patching, resource, description, name, suffix=suffix, kind=kind)
        is_typed = self._is_typed(resource.kind)
        media_types = [media_type for media_type in PATCHES if is_typed or media_type != STRATEGIC]
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
        own = [self._query[name] for name in operation.parameters if name in self._query]
        return {
            "tags": [self._tag],
            "description": description,
            "operationId": f"{operation.prefix}{self._owner}{scope}{resource.kind.name}{suffix}",
            **({"parameters": own} if own else {}),
            **self._dialect.operation(
                schema=schema, codes=operation.codes, produced=operation.produced, consumed=_bodies(resource)
            ),
            "x-kubernetes-action": operation.action,
            "x-kubernetes-group-version-kind": _wire(kind),
        }

    def _path(self, resource: Resource) -> str:
        scope = "/namespaces/{namespace}" if resource.namespaced else ""
        return f"{self._root}{scope}/{resource.plural}"

    def _shared_parameters(self, resource: Resource, *, named: bool = False) -> list[Object]:
        shared = []
        if named:
            shared.append(self._dialect.parameter("name", "path", "string", f"name of the {resource.kind.name}"))
        if resource.namespaced:
            shared.append(self._namespace)
        return [*shared, self._pretty]


def group_words(group: str) -> list[str]:
    """Return the words of a group in operationIds: ["flowcontrol", "apiserver"] for flowcontrol.apiserver.k8s.io."""
    return (group.removesuffix(".k8s.io") or "core").split(".")


def tag_of(group: str) -> str:
    first, *others = group_words(group)
    return f"{first}{''.join(map(capital, others))}"


def capital(word: str) -> str:
    return word[:1].upper() + word[1:]


def _bodies(resource: Resource) -> tuple[str, ...]:
    return ANY_TYPE if resource.custom is None else PRODUCED


def _reading(resource: Resource) -> _Operation:
    return _READING if resource.custom is None else replace(_READING, parameters=("resourceVersion",))


def _wire(kind: Kind) -> Object:
    return {"group": kind.group, "version": kind.version, "kind": kind.name}


def _a(noun: str) -> str:
    if noun.endswith("s") and not noun.endswith("ss"):
        return noun  # Endpoints
    return f"an {noun}" if noun[0] in "AEIOU" else f"a {noun}"
