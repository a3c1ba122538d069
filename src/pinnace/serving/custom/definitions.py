"""From a CustomResourceDefinition to what it makes the API serve: one resource for each served version.

A cluster may have thousands of definitions with large schemas, so nothing of a schema is kept here: it is read again
from the definition's bytes, which the server holds anyway, when the first object of its kind is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

from pinnace.kinds import cells
from pinnace.model.jsonpath import JsonPathError, fields_of, value_at
from pinnace.model.objects import Kind, Object
from pinnace.model.printer_columns import RowSteps, column, column_weight
from pinnace.model.resources import Column, Resource, ScalePaths, Strategy, Subresource
from pinnace.schema.golang.decode import Decoder
from pinnace.schema.shape import Schema
from pinnace.serving.custom.versions import Convert, CustomVersion, Neighbours, VersionFacts

CHANGE = ("get", "patch", "update")
SCALE = Kind("autoscaling", "v1", "Scale")
DEFINITION = Kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition")


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """The schema and the decoder of metadata, which custom kinds share with the built-in ones."""

    schema: Callable[[str], Schema]
    """By the name of a definition."""
    metadata: Decoder


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a kind in URLs, on the command line and in manifests."""

    plural: str = ""
    singular: str = ""
    kind: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()

    @classmethod
    def read(cls, names: Mapping[str, Any] | None) -> Names:
        names = names or {}
        return cls(
            plural=names.get("plural") or "",
            singular=names.get("singular") or "",
            kind=names.get("kind") or "",
            list_kind=names.get("listKind") or "",
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
        )

    def written(self) -> Object:
        """As a status says them."""
        fields: Object = {
            "plural": self.plural,
            "singular": self.singular,
            "shortNames": list(self.short_names),
            "kind": self.kind,
            "listKind": self.list_kind,
            "categories": list(self.categories),
        }
        return {name: value for name, value in fields.items() if value or name in ("plural", "kind")}


@dataclass(frozen=True, slots=True)
class Definition:
    """The part of a definition that is kept in memory: little, since there may be thousands."""

    name: str
    uid: str
    group: str
    requested: Names
    accepted: Names
    is_established: bool
    is_leaving: bool
    spec_revision: int
    """The revision at which the spec became what it is, as far as that is known."""
    generation: int
    body: bytes = field(repr=False)
    """The very bytes that the server holds: a copy would cost as much as all else."""

    @classmethod
    def read(cls, obj: Object, body: bytes) -> Definition:
        metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
        return cls(
            name=metadata["name"],
            uid=metadata.get("uid", ""),
            group=spec["group"],
            requested=Names.read(spec.get("names")),
            accepted=Names.read(status.get("acceptedNames")),
            is_established=is_true(status, "Established"),
            is_leaving="deletionTimestamp" in metadata,
            spec_revision=int(metadata.get("resourceVersion") or 0),
            generation=int(metadata.get("generation") or 0),
            body=body,
        )


def is_true(status: Mapping[str, Any], condition: str) -> bool:
    conditions = status.get("conditions") or ()
    return any(entry.get("type") == condition and entry.get("status") == "True" for entry in conditions)


def resources_of(
    obj: Object,
    definition: Definition,
    names: Names,
    built_in: BuiltIn,
    convert: Convert | None,
    body: Callable[[], bytes],
) -> list[Resource]:
    """Return the resources of the definition under these names. `body` returns its bytes when a schema is needed."""
    spec = obj["spec"]
    versions = spec.get("versions") or []
    storage = next((version["name"] for version in versions if version.get("storage")), "")
    neighbours = Neighbours(definition.group, storage, convert)
    for declared in versions:
        neighbours.add(declared["name"], _custom_version(declared, spec, definition, names, built_in, neighbours, body))
    stored = Kind(definition.group, storage, names.kind)
    return [
        _resource(declared, definition, names, stored, neighbours.version(declared["name"]), built_in, spec)
        for declared in versions
        if declared.get("served")
    ]


def _custom_version(
    declared: Mapping[str, Any],
    spec: Mapping[str, Any],
    definition: Definition,
    names: Names,
    built_in: BuiltIn,
    neighbours: Neighbours,
    body: Callable[[], bytes],
) -> CustomVersion:
    return CustomVersion(
        Kind(definition.group, declared["name"], names.kind),
        load_schema=_loader(body, declared["name"]),
        metadata=built_in.metadata,
        facts=VersionFacts(
            keeps_unknown=bool(spec.get("preserveUnknownFields")),
            settled_since=definition.spec_revision,
            scale=_scale_paths(declared),
            is_leaving=definition.is_leaving,
        ),
        neighbours=neighbours,
    )


def _resource(
    declared: Mapping[str, Any],
    definition: Definition,
    names: Names,
    stored: Kind,
    custom: CustomVersion,
    built_in: BuiltIn,
    spec: Mapping[str, Any],
) -> Resource:
    kind = custom.kind
    return Resource(
        kind=kind,
        plural=names.plural,
        singular=names.singular,
        namespaced=spec.get("scope") == "Namespaced",
        short_names=names.short_names,
        categories=names.categories,
        subresources=_subresources(declared, kind),
        schema_of=lambda: shape_of(custom, built_in),
        columns=columns_of(declared.get("additionalPrinterColumns") or ()),
        selectable=_selectable(declared.get("selectableFields") or ()),
        strategy=Strategy(
            default=custom.default,
            validate=custom.errs,
            validate_status=custom.validate_status_fields,
            validate_subresource={"scale": custom.errs},
            qualified_finalizers=False,
            tracks_generation=True,
            may_update_unconditionally=False,
            takes_strategic_patches=False,
            warnings=custom.warnings,
        ),
        stored=stored,
        list_kind=names.list_kind,
        deprecation=_deprecation(declared, kind),
        custom=custom,
        fingerprint=f"{definition.uid}/{definition.spec_revision}" if definition.uid else "",
    )


_METADATA = {"$ref": "#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
_TEXT = {"type": "string"}


def shape_of(custom: CustomVersion, built_in: BuiltIn) -> Schema:
    """Return the schema of the whole object, for apply, OpenAPI and explain."""
    raw = dict(custom.raw_schema)
    own = {name: value for name, value in (raw.get("properties") or {}).items() if name not in _ENVELOPE}
    raw["properties"] = {"apiVersion": _TEXT, "kind": _TEXT, "metadata": _METADATA, **own}
    raw.setdefault("type", "object")
    if custom.keeps_unknown:
        raw["x-kubernetes-preserve-unknown-fields"] = True
    return Schema(raw, built_in.schema)


_ENVELOPE = frozenset(("apiVersion", "kind", "metadata"))


def _loader(body: Callable[[], bytes], version: str) -> Callable[[], Object]:
    def load() -> Object:
        versions = orjson.loads(body())["spec"].get("versions") or []
        declared: Object = next((entry for entry in versions if entry["name"] == version), {})
        schema: Object = (declared.get("schema") or {}).get("openAPIV3Schema") or {}
        return schema

    return load


def _subresources(declared: Mapping[str, Any], kind: Kind) -> tuple[Subresource, ...]:
    wanted = declared.get("subresources") or {}
    subresources = []
    if wanted.get("status") is not None:
        subresources.append(Subresource("status", kind, CHANGE))
    if wanted.get("scale") is not None:
        subresources.append(Subresource("scale", SCALE, CHANGE))
    return tuple(subresources)


def _scale_paths(declared: Mapping[str, Any]) -> ScalePaths | None:
    scale = (declared.get("subresources") or {}).get("scale")
    if scale is None:
        return None
    return ScalePaths(
        _fields(scale.get("specReplicasPath")),
        _fields(scale.get("statusReplicasPath")),
        _fields(scale.get("labelSelectorPath")),
    )


def _fields(path: str | None) -> tuple[str, ...]:
    return fields_of(path) if path else ()


def _selectable(fields: Sequence[Mapping[str, Any]]) -> dict[str, Callable[[Object], str]]:
    return {str(entry["jsonPath"]).removeprefix("."): _text_at(str(entry["jsonPath"])) for entry in fields}


def _text_at(path: str) -> Callable[[Object], str]:
    fields = fields_of(path)

    def text(obj: Object) -> str:
        try:
            value = value_at(obj, fields)
        except JsonPathError:
            return ""
        if value is None:
            return ""
        return str(value).lower() if isinstance(value, bool) else str(value)

    return text


def _deprecation(declared: Mapping[str, Any], kind: Kind) -> str:
    if not declared.get("deprecated"):
        return ""
    return str(declared.get("deprecationWarning") or f"{kind.api_version} {kind.name} is deprecated")


_NAME = (
    "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a "
    "client to request the generation of an appropriate name automatically. Name is primarily intended for creation "
    "idempotence and configuration definition. Cannot be updated. More info: "
    "https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"
)
_AGE = {
    "name": "Age",
    "type": "date",
    "description": (
        "CreationTimestamp is a timestamp representing the server time when this object was created. It is not "
        "guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It "
        "is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More "
        "info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
    ),
    "jsonPath": ".metadata.creationTimestamp",
}


def columns_of(declared: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """Return the columns: the name, then those of the definition, or the age if it has none."""
    row = RowSteps()

    def name(obj: Object, now: datetime) -> Any:
        row.begin()  # It is the first cell of every row.
        return cells.name(obj, now)

    return (
        Column("Name", "string", _NAME, name, format="name"),
        *(_column(column, row) for column in declared or (_AGE,)),
    )


def _column(declared: Mapping[str, Any], row: RowSteps) -> Column:
    path, type_ = str(declared["jsonPath"]), str(declared["type"])
    return Column(
        str(declared["name"]),
        type_,
        str(declared.get("description") or f"Custom resource definition column (in JSONPath format): {path}"),
        column(path, type_, since=cells.since, row=row),
        int(declared.get("priority") or 0),
        str(declared.get("format") or ""),
        weight=column_weight(path),
    )
