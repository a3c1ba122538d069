"""From a CustomResourceDefinition to what it makes the API serve: one resource for each served version.

A cluster may have thousands of definitions with large schemas, so nothing of a schema is kept here: it is read again
from the definition's bytes, which the server holds anyway, when the first object of its kind is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from pinnace.extensions.custom.columns import columns_of
from pinnace.extensions.custom.conversion import Converter
from pinnace.extensions.custom.versions import CustomVersion, Neighbours, VersionFacts
from pinnace.model.jsonpath import JsonPathError, fields_of, value_at
from pinnace.model.objects import Kind, Object
from pinnace.model.resources import Resource, ScalePaths, Strategy, Subresource
from pinnace.schema.golang.decode import Decoder
from pinnace.schema.shape import Schema

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
    def read(cls, said: Mapping[str, Any] | None) -> Names:
        said = said or {}
        return cls(
            plural=said.get("plural") or "",
            singular=said.get("singular") or "",
            kind=said.get("kind") or "",
            list_kind=said.get("listKind") or "",
            short_names=tuple(said.get("shortNames") or ()),
            categories=tuple(said.get("categories") or ()),
        )

    def written(self) -> Object:
        """As a status says them."""
        said: Object = {
            "plural": self.plural,
            "singular": self.singular,
            "shortNames": list(self.short_names),
            "kind": self.kind,
            "listKind": self.list_kind,
            "categories": list(self.categories),
        }
        return {name: value for name, value in said.items() if value or name in ("plural", "kind")}


@dataclass(frozen=True, slots=True)
class Definition:
    """The part of a definition that is kept in memory: little, since there may be thousands."""

    name: str
    uid: str
    group: str
    asked: Names
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
            asked=Names.read(spec.get("names")),
            accepted=Names.read(status.get("acceptedNames")),
            is_established=is_true(status, "Established"),
            is_leaving="deletionTimestamp" in metadata,
            spec_revision=int(metadata.get("resourceVersion") or 0),
            generation=int(metadata.get("generation") or 0),
            body=body,
        )


def is_true(status: Mapping[str, Any], condition: str) -> bool:
    found = status.get("conditions") or ()
    return any(one.get("type") == condition and one.get("status") == "True" for one in found)


def resources_of(
    obj: Object,
    definition: Definition,
    names: Names,
    built_in: BuiltIn,
    converter: Converter | None,
    body: Callable[[], bytes],
) -> list[Resource]:
    """Return the resources of the definition under these names. `body` returns its bytes when a schema is needed."""
    spec = obj["spec"]
    versions = spec.get("versions") or []
    storage = next((one["name"] for one in versions if one.get("storage")), "")
    neighbours = Neighbours(definition.group, storage, converter)
    for said in versions:
        neighbours.add(said["name"], _custom_version(said, spec, definition, names, built_in, neighbours, body))
    stored = Kind(definition.group, storage, names.kind)
    return [
        _resource(said, definition, names, stored, neighbours.version(said["name"]), built_in, spec)
        for said in versions
        if said.get("served")
    ]


def _custom_version(
    said: Mapping[str, Any],
    spec: Mapping[str, Any],
    definition: Definition,
    names: Names,
    built_in: BuiltIn,
    neighbours: Neighbours,
    body: Callable[[], bytes],
) -> CustomVersion:
    return CustomVersion(
        Kind(definition.group, said["name"], names.kind),
        load_schema=_loader(body, said["name"]),
        metadata=built_in.metadata,
        facts=VersionFacts(
            keeps_unknown=bool(spec.get("preserveUnknownFields")),
            settled_since=definition.spec_revision,
            scale=_scale_paths(said),
            is_leaving=definition.is_leaving,
        ),
        neighbours=neighbours,
    )


def _resource(
    said: Mapping[str, Any],
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
        subresources=_subresources(said, kind),
        schema_of=lambda: shape_of(custom, built_in),
        columns=columns_of(said.get("additionalPrinterColumns") or ()),
        selectable=_selectable(said.get("selectableFields") or ()),
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
        list_name=names.list_kind,
        deprecation=_deprecation(said, kind),
        custom=custom,
        fingerprint=f"{definition.uid}/{definition.spec_revision}",
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
        said: Object = next((one for one in versions if one["name"] == version), {})
        schema: Object = (said.get("schema") or {}).get("openAPIV3Schema") or {}
        return schema

    return load


def _subresources(said: Mapping[str, Any], kind: Kind) -> tuple[Subresource, ...]:
    asked = said.get("subresources") or {}
    found = []
    if asked.get("status") is not None:
        found.append(Subresource("status", kind, CHANGE))
    if asked.get("scale") is not None:
        found.append(Subresource("scale", SCALE, CHANGE))
    return tuple(found)


def _scale_paths(said: Mapping[str, Any]) -> ScalePaths | None:
    asked = (said.get("subresources") or {}).get("scale")
    if asked is None:
        return None
    return ScalePaths(
        _fields(asked.get("specReplicasPath")),
        _fields(asked.get("statusReplicasPath")),
        _fields(asked.get("labelSelectorPath")),
    )


def _fields(path: str | None) -> tuple[str, ...]:
    return fields_of(path) if path else ()


def _selectable(fields: Sequence[Mapping[str, Any]]) -> dict[str, Callable[[Object], str]]:
    return {str(one["jsonPath"]).removeprefix("."): _text_at(str(one["jsonPath"])) for one in fields}


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


def _deprecation(said: Mapping[str, Any], kind: Kind) -> str:
    if not said.get("deprecated"):
        return ""
    return str(said.get("deprecationWarning") or f"{kind.api_version} {kind.name} is deprecated")
