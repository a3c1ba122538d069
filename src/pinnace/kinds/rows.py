"""The table format of the built-in kinds: one row per kind, with its versions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any, TypedDict

from pinnace.kinds import cells
from pinnace.kinds.definitions import Definitions
from pinnace.kinds.feature_gates.gates import FeatureGates
from pinnace.kinds.feature_gates.inert_fields import InertFields
from pinnace.kinds.golang.empty_fields import empty_status
from pinnace.model.objects import Kind, Object
from pinnace.model.resources import ALL_VERBS, Column, Resource, Strategy, Subresource
from pinnace.schema.shape import Schema

NO_DELETE_COLLECTION = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")
CHANGE = ("get", "patch", "update")
FORWARD = ("create", "delete", "get", "patch", "update")
ASK = ("create",)

Convert = Callable[[Object], Object]
Read = Callable[[Any], str]
"""Read a field that can be selected, as text, from the stored object."""


def same_shape(schema: Schema) -> Schema:
    return schema


@dataclass(frozen=True)
class Version:
    """One version of a kind, from its introduction to its removal. The definitions decide in which minor versions it
    exists."""

    name: str
    _: KW_ONLY
    group: str | None = None
    """The group that serves it, if not the row's own."""
    is_on: bool = True
    """Served by default. New betas and all alphas are not."""
    is_old: bool = False
    """Removed from Kubernetes and the definitions. Still served, with the schema of the stored version reshaped."""
    deprecated: str = ""
    removed: str = ""
    replacement: str = ""
    """The group and version to use instead, and the kind if its name differs."""
    to_stored: Convert | None = None
    from_stored: Convert | None = None
    """None where the shapes are equal."""
    reshape: Callable[[Schema], Schema] = same_shape
    modernize: Callable[[Object], Iterable[str]] | None = None
    """Rewrite fields that this version no longer has but many manifests still use; return warnings."""
    selectable: Mapping[str, Read] | None = None
    """The selectable fields, where their names differ in this version. They always read the stored object."""
    subresources: tuple[str, ...] | None = None
    """The subresources of this version, if not all of the row."""
    strategy: Strategy | None = None
    """The strategy of this version, if it differs."""


GA = Version("v1")
on_request = partial(Version, is_on=False)
"""A version that is served only on request: an alpha, or a beta since 1.24."""
old = partial(Version, is_old=True)
"""A version that Kubernetes removed before the oldest supported minor version."""


PLAIN = Strategy()


@dataclass(frozen=True, kw_only=True)
class Row:
    """Everything about one built-in kind. Versions are in order of preference for storage: the first that the
    definitions have is stored."""

    group: str = ""
    """Empty for the core group."""
    name: str
    plural: str
    versions: tuple[Version, ...]
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[tuple[str, tuple[str, ...]] | Subresource, ...] = ()
    """A pair of name and verbs where the subresource has the kind itself as its body."""
    since: Mapping[str, str] = field(default_factory=dict)
    """The first minor version of a subresource that is newer than the oldest supported minor version."""
    columns: tuple[Column, ...] = cells.PLAIN
    newer_columns: tuple[str, tuple[Column, ...]] | None = None
    """A minor version, and the columns since then."""
    row_order: Callable[[Any], Any] | None = None
    selectable: Mapping[str, Read] = field(default_factory=dict)
    strategy: Strategy = PLAIN
    gated: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By feature gate: what the strategy has in place of its own while the gate is on."""
    gate: str = ""
    """The feature gate without which the kind is not served, whatever the runtime configuration says."""


STATUS = ("status", CHANGE)
SCALE = Subresource("scale", Kind("autoscaling", "v1", "Scale"), CHANGE)


def kind_of(row: Row, version: Version) -> Kind:
    return Kind(row.group if version.group is None else version.group, version.name, row.name)


def resource(
    row: Row, version: Version, stored_version: Version, definitions: Definitions, gates: FeatureGates
) -> Resource:
    """Return the resource that serves one version of a row."""
    kind, stored = kind_of(row, version), kind_of(row, stored_version)
    is_guest = kind.group != row.group
    # A version in another group has no short names and categories: `kubectl get all` would show its objects twice.
    is_quiet = is_guest and version.is_old
    stored_schema_of = _schema_of(stored_version, stored, stored, definitions)
    return Resource(
        kind=kind,
        plural=row.plural,
        singular=row.name.lower(),
        namespaced=row.namespaced,
        short_names=() if is_quiet else row.short_names,
        categories=() if is_quiet else row.categories,
        verbs=row.verbs,
        subresources=_subresources(row, version, kind, definitions.minor),
        schema_of=_schema_of(version, kind, stored, definitions),
        columns=tuple(_describe(column, definitions.schema) for column in _columns(row, definitions.minor)),
        row_order=row.row_order,
        selectable=row.selectable if version.selectable is None else version.selectable,
        strategy=version.strategy or _strategy(row, gates),
        stored=stored,
        empty_status=empty_status(stored_schema_of),
        inert=InertFields(stored_schema_of, gates),
        store_group=(row.group or "core") if is_guest else "",
        deprecation=_deprecation(version, kind, definitions.minor),
        modernize=version.modernize,
        **_conversions(version, stored_version),
    )


def scale_resource(schema: Schema, columns: tuple[Column, ...]) -> Resource:
    """Return a resource for Scale objects, which have no URL of their own, so that they have columns and a schema."""
    return Resource(
        kind=SCALE.kind,
        plural="scales",
        singular="scale",
        namespaced=True,
        schema_of=lambda: schema,
        columns=tuple(_describe(column, schema.resolve) for column in columns),
        stored=SCALE.kind,
    )


def _describe(column: Column, schema_of: Callable[[str], Schema]) -> Column:
    """Return the column with the description of the field that it names."""
    if not column.description.startswith("io.k8s."):
        return column
    name, _, documented = column.description.rpartition(".")
    try:
        fields = schema_of(name).raw.get("properties", {})
    except KeyError:
        fields = {}  # Newer than this minor version.
    return replace(column, description=fields.get(documented, {}).get("description", ""))


class _Ways(TypedDict, total=False):
    to_stored: Convert
    from_stored: Convert


def _conversions(version: Version, stored: Version) -> _Ways:
    """Return the conversions between a version and the stored one. They are written against a row's first version; an
    older minor version may lack it, and then conversion goes through it."""
    if version is stored:
        return {}
    ways: _Ways = {}
    if version.to_stored or stored.from_stored:
        ways["to_stored"] = _chain(version.to_stored, stored.from_stored)
    if stored.to_stored or version.from_stored:
        ways["from_stored"] = _chain(stored.to_stored, version.from_stored)
    return ways


def _chain(*steps: Convert | None) -> Convert:
    taken = [step for step in steps if step is not None]
    if len(taken) == 1:
        return taken[0]

    def convert(obj: Object) -> Object:
        for step in taken:
            obj = step(obj)
        return obj

    return convert


def _columns(row: Row, minor: str) -> tuple[Column, ...]:
    if row.newer_columns is not None and minor_number(minor) >= minor_number(row.newer_columns[0]):
        return row.newer_columns[1]
    return row.columns


def _strategy(row: Row, gates: FeatureGates) -> Strategy:
    changes = {name: value for gate, parts in row.gated.items() if gates.is_on(gate) for name, value in parts.items()}
    return replace(row.strategy, **changes)


def _subresources(row: Row, version: Version, kind: Kind, minor: str) -> tuple[Subresource, ...]:
    subs = (sub if isinstance(sub, Subresource) else Subresource(sub[0], kind, sub[1]) for sub in row.subresources)
    return tuple(
        sub
        for sub in subs
        if (version.subresources is None or sub.name in version.subresources)
        and minor_number(row.since.get(sub.name, minor)) <= minor_number(minor)
    )


def _schema_of(version: Version, kind: Kind, stored: Kind, definitions: Definitions) -> Callable[[], Schema]:
    def of_definitions() -> Schema:
        schema = definitions.of_kind(kind)
        if schema is None:
            raise KeyError(f"the definitions of {definitions.minor} have no {kind.api_version} {kind.name}")
        return schema

    def reshaped() -> Schema:
        schema = definitions.of_kind(stored)
        if schema is None:
            raise KeyError(f"the definitions of {definitions.minor} have no {stored.api_version} {stored.name}")
        shape = version.reshape(schema)
        own_kind = {"group": kind.group, "version": kind.version, "kind": kind.name}
        name = f"io.k8s.api.{kind.group.partition('.')[0]}.{kind.version}.{kind.name}"
        return Schema({**shape.raw, "x-kubernetes-group-version-kind": [own_kind]}, shape.resolve, name)

    return reshaped if version.is_old else of_definitions


def minor_number(minor: str) -> int:
    """Return 37 for "1.37"."""
    return int(minor.split(".")[1])


def _deprecation(version: Version, kind: Kind, minor: str) -> str:
    if not version.deprecated or minor_number(minor) < minor_number(version.deprecated):
        return ""
    warning = f"{kind.api_version} {kind.name} is deprecated in v{version.deprecated}+"
    if version.removed:
        warning += f", unavailable in v{version.removed}+"
    if version.replacement:
        named = " " in version.replacement
        warning += f"; use {version.replacement}" if named else f"; use {version.replacement} {kind.name}"
    return warning


def text_at(path: str, default: str = "") -> Read:
    """Return a reader of a dotted path; a missing field reads as `default`, booleans as in Go."""
    steps = path.split(".")

    def read(obj: Object) -> str:
        value: Any = obj
        for step in steps:
            value = value.get(step) if isinstance(value, dict) else None
            if value is None:
                return default
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value)

    return read


def fields(*paths: str) -> Mapping[str, Read]:
    return {path: text_at(path) for path in paths}
