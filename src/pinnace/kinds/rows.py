"""How a built-in kind is written down: one row per kind, with the versions it is served in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypedDict

from pinnace.kinds import cells
from pinnace.kinds.golang.empty_fields import empty_status
from pinnace.model.objects import Kind, Object
from pinnace.model.resources import ALL_VERBS, Column, Resource, Strategy, Subresource
from pinnace.schema.shape import Schema

NO_DELETE_COLLECTION = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")
CHANGE = ("get", "patch", "update")
FORWARD = ("create", "delete", "get", "patch", "update")
ASK = ("create",)

Convert = Callable[[Object], Object]


class Definitions(Protocol):
    """The schemas of one Kubernetes minor."""

    @property
    def minor(self) -> str: ...
    def name_of_kind(self, kind: Kind) -> str | None: ...
    def of_kind(self, kind: Kind) -> Schema | None: ...
    def schema(self, name: str) -> Schema: ...


def same_shape(schema: Schema) -> Schema:
    return schema


@dataclass(frozen=True)
class Version:
    """One version of a kind, from its introduction to its removal. Whether it exists is what the definitions say."""

    name: str
    _: KW_ONLY
    group: str | None = None
    """Where it is served, if not in the row's own group."""
    is_on: bool = True
    """Served without being asked for. New betas and all alphas are not."""
    is_old: bool = False
    """Gone from Kubernetes and from the definitions: served all the same, with the stored version's schema reshaped."""
    deprecated: str = ""
    removed: str = ""
    replacement: str = ""
    """The group and version to use instead, and the kind where it has another name."""
    to_stored: Convert | None = None
    from_stored: Convert | None = None
    """None where the shapes are equal."""
    reshape: Callable[[Schema], Schema] = same_shape
    modernize: Callable[[Object], Iterable[str]] | None = None
    """Rewrites what this version no longer is but many manifests still have; tells of it."""
    selectable: Mapping[str, Callable[[Object], str]] | None = None
    """Where the version calls the selectable fields differently. They are always given the stored object."""
    subresources: tuple[str, ...] | None = None
    """Only these of the row's."""
    strategy: Strategy | None = None
    """Where something else is special about the kind in this version."""


GA = Version("v1")
on_request = partial(Version, is_on=False)
"""A version that exists, but is served only when asked for: an alpha, or a beta since 1.24."""
old = partial(Version, is_old=True)
"""A version that Kubernetes removed before the oldest minor served here."""


PLAIN = Strategy()


@dataclass(frozen=True, kw_only=True)
class Row:
    """What is known of one built-in kind. Versions stand in the order in which they may be stored: the first that the
    definitions have is the stored one."""

    group: str
    name: str
    plural: str
    versions: tuple[Version, ...]
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[tuple[str, tuple[str, ...]] | Subresource, ...] = ()
    """A pair of name and verbs where the kind itself travels through."""
    since: Mapping[str, str] = field(default_factory=dict)
    """The first minor of a subresource that is younger than the oldest minor served here."""
    columns: tuple[Column, ...] = cells.PLAIN
    row_order: Callable[[Object], Any] | None = None
    selectable: Mapping[str, Callable[[Object], str]] = field(default_factory=dict)
    strategy: Strategy = PLAIN


STATUS = ("status", CHANGE)
SCALE = Subresource("scale", Kind("autoscaling", "v1", "Scale"), CHANGE)


def kind_of(row: Row, version: Version) -> Kind:
    return Kind(row.group if version.group is None else version.group, version.name, row.name)


def resource(row: Row, version: Version, stored_version: Version, definitions: Definitions) -> Resource:
    """The resource that serves one version of a row."""
    kind, stored = kind_of(row, version), kind_of(row, stored_version)
    is_guest = kind.group != row.group
    # A guest must not answer to the short names and categories of its host: `kubectl get all` would show it twice.
    is_quiet = is_guest and version.is_old
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
        columns=tuple(_documented(column, definitions.schema) for column in row.columns),
        row_order=row.row_order,
        selectable=row.selectable if version.selectable is None else version.selectable,
        strategy=version.strategy or row.strategy,
        stored=stored,
        empty_status=empty_status(_schema_of(stored_version, stored, stored, definitions)),
        store_group=(row.group or "core") if is_guest else "",
        deprecation=_deprecation(version, kind, definitions.minor),
        modernize=version.modernize,
        **_conversions(version, stored_version),
    )


def scale_resource(schema: Schema, columns: tuple[Column, ...]) -> Resource:
    """What the scales of workloads would be if they had a URL of their own."""
    return Resource(
        kind=SCALE.kind,
        plural="scales",
        singular="scale",
        namespaced=True,
        schema_of=lambda: schema,
        columns=tuple(_documented(column, schema.resolve) for column in columns),
        stored=SCALE.kind,
    )


def _documented(column: Column, schema_of: Callable[[str], Schema]) -> Column:
    """The column with its description, where it only says which field documents it."""
    if not column.description.startswith("io.k8s."):
        return column
    name, _, documented = column.description.rpartition(".")
    try:
        fields = schema_of(name).raw.get("properties", {})
    except KeyError:
        fields = {}  # Younger than this minor.
    return replace(column, description=fields.get(documented, {}).get("description", ""))


class _Ways(TypedDict, total=False):
    to_stored: Convert
    from_stored: Convert


def _conversions(version: Version, stored: Version) -> _Ways:
    """What differs from the stored version. Conversions are written down against a row's first version, which an older
    minor may lack: then the way leads through it."""
    if version is stored:
        return {}
    ways: _Ways = {}
    if version.to_stored or stored.from_stored:
        ways["to_stored"] = _in_turn(version.to_stored, stored.from_stored)
    if stored.to_stored or version.from_stored:
        ways["from_stored"] = _in_turn(stored.to_stored, version.from_stored)
    return ways


def _in_turn(*steps: Convert | None) -> Convert:
    taken = [step for step in steps if step is not None]
    if len(taken) == 1:
        return taken[0]

    def convert(obj: Object) -> Object:
        for step in taken:
            obj = step(obj)
        return obj

    return convert


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
        found = definitions.of_kind(kind)
        if found is None:
            raise KeyError(f"the definitions of {definitions.minor} have no {kind.api_version} {kind.name}")
        return found

    def reshaped() -> Schema:
        found = definitions.of_kind(stored)
        if found is None:
            raise KeyError(f"the definitions of {definitions.minor} have no {stored.api_version} {stored.name}")
        shape = version.reshape(found)
        own_kind = {"group": kind.group, "version": kind.version, "kind": kind.name}
        name = f"io.k8s.api.{kind.group.partition('.')[0]}.{kind.version}.{kind.name}"
        return Schema({**shape.raw, "x-kubernetes-group-version-kind": [own_kind]}, shape.resolve, name)

    return reshaped if version.is_old else of_definitions


def minor_number(minor: str) -> int:
    """37 of "1.37"."""
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
