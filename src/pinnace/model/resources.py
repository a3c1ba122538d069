"""Served resources: a kind with its plural, scope, schema, subresources, columns and strategy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, Protocol

from pinnace.model import names
from pinnace.model.field_errors import FieldError
from pinnace.model.names import NameRule
from pinnace.model.objects import Kind, Object
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.schema.golang.numbers import parse_int
from pinnace.schema.shape import Schema

Drop = Callable[[Object, Object | None], None]
Warn = Callable[[Object], list[str]]

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a Table. `value` takes the object and the current time; priority > 0 is for -o wide."""

    name: str
    type: str  # string, integer, number, boolean or date.
    description: str
    value: Callable[[Any, datetime], Any]
    priority: int = 0
    format: str = ""
    has_title: bool = True
    """If false, rows have the cell but the table has no column definition. Kubernetes has one such column."""
    weight: int = 1
    """How much work the cell is: 1 for reading a field."""

    @property
    def definition(self) -> Object:
        """The column definition in a Table."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


@dataclass(frozen=True, slots=True)
class Subresource:
    """A URL below an object: pods/status, deployments/scale. `kind` is that of its bodies."""

    name: str
    kind: Kind
    verbs: tuple[str, ...]


def _leave(obj: Object) -> None:
    """Set no defaults."""


def _leave_both(new: Object, old: Object | None) -> None:
    """Prepare nothing."""


def _leave_marked(obj: Object, now: datetime) -> None:
    """Mark nothing."""


def _accept(new: Object, old: Object | None) -> Iterable[FieldError]:
    return ()


def _identity(obj: Object) -> Object:
    return obj


def _without_status() -> Object | None:
    return None


class FieldsWithoutEffect(Protocol):
    """The fields of a kind without effect. Each is None if the kind has no such fields."""

    @property
    def drop(self) -> Drop | None:
        """Removes the fields of features that are off from the first object, unless the stored one uses them."""

    @property
    def warn(self) -> Warn | None:
        """Returns a warning for each reason for which nothing acts on fields of an object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """The behaviour of one kind that differs from the server's common pipeline.

    `default` and `prepare` change the object in place; it belongs to the request. The functions of a built-in kind take
    its type, as the schema has been checked before: every field has the right type, but any of them may be missing.
    """

    default: Callable[[Any], None] = _leave
    """Set defaults. Called on every write, before validation; must be idempotent."""
    prepare: Callable[[Any, Any], None] = _leave_both
    """Called before validation of a write through the main URL (old is None on create): drop fields that clients may
    not set. If the kind has /status, the status is already empty on create and kept from `old` on update."""
    prepare_status: Callable[[Any, Any], None] = _leave_both
    validate: Callable[[Any, Any], Iterable[FieldError]] = _accept
    """Return every error of `new`, also against `old` (immutable fields). Metadata is already checked."""
    validate_status: Callable[[Any, Any], Iterable[FieldError]] = _accept
    name_rule: NameRule = names.dns_subdomain
    names_itself: bool = False
    """Generate a random name for an object without one."""
    qualified_finalizers: bool = True
    """Finalizers must have a domain. Those of custom kinds and of some built-in ones need not."""
    tracks_generation: bool = False
    """metadata.generation starts at 1 and grows when anything but metadata and status changes."""
    may_update_unconditionally: bool = True
    """An update without resourceVersion overwrites the stored object."""
    may_create_on_update: bool = False
    prepare_subresource: Mapping[str, Callable[[Any, Any], None]] = field(default_factory=dict)
    """By subresource: called before validation of an update through it, to set back fields that it cannot change."""
    validate_subresource: Mapping[str, Callable[[Any, Any], Iterable[FieldError]]] = field(default_factory=dict)
    """By subresource: the errors of an update through it, if they are not those of the main URL."""
    takes_strategic_patches: bool = True
    """False for custom kinds, whose schemas have no merge keys."""
    keeps_status_on_create: bool = False
    """Nodes are created with a status; other kinds get theirs through /status."""
    grace: Callable[[Any, int | None], int] | None = None
    """For kinds that are deleted gracefully: the grace period in seconds, given the requested one."""
    mark: Callable[[Any, datetime], None] = _leave_marked
    """Called when the deletion of an object begins: add finalizers, and set the status."""
    dependents: Literal["delete", "orphan", "none"] = "delete"
    """The default propagation policy. None: the kind has no dependents, whatever the client requests."""
    deletion_warning: str = ""
    """The `Warning:` for clients that rely on the default propagation policy."""
    answers_with_deleted: bool = False
    """Respond to a finished deletion with the object instead of a Status."""
    warnings: Callable[[Any, Any], Iterable[str]] = lambda new, old: ()
    """Return warnings for the `Warning:` header: deprecated fields and the like."""
    is_computed: bool = False
    """Objects are not stored but computed for each request."""
    version_annotations: tuple[str, ...] = ()
    """Annotations that are fields in Kubernetes: the metadata representation lacks them."""

    @property
    def leaves_objects(self) -> bool:
        """Whether objects of this kind are stored as they are sent: without defaults and preparation."""
        return self.default is _leave and self.prepare is _leave_both and self.prepare_status is _leave_both


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """The field paths of /scale in a custom kind, from the top: ("spec", "replicas")."""

    spec: tuple[str, ...]
    status: tuple[str, ...]
    selector: tuple[str, ...] = ()


class Custom(Protocol):
    """The behaviour of one version of a custom kind. Its stored objects may have any version that the kind ever had."""

    @property
    def scale(self) -> ScalePaths | None: ...

    @property
    def raw_schema(self) -> Mapping[str, Any]:
        """The schema as in the definition; may be empty."""

    @property
    def keeps_unknown(self) -> bool:
        """Keep fields that are not in the schema."""

    @property
    def is_leaving(self) -> bool:
        """The definition is being deleted: objects may be deleted, but not created."""

    @property
    def is_converted_elsewhere(self) -> bool:
        """A webhook converts objects to other versions, which takes time."""

    @property
    def settled_since(self) -> int:
        """Objects stored in this version after this revision need no pruning and defaulting: the schema has not changed
        since."""

    def has_version(self, api_version: str) -> bool:
        """Return whether the definition has this version, be it served or not."""

    def decode(self, obj: Object) -> list[str]:
        """Prune and default a client's object in place; return the paths of removed unknown fields."""

    def to_served(self, stored: Sequence[Object]) -> NowOrLater[list[Object]]:
        """Return stored objects in this version; may change its arguments. Awaitable if a webhook converts them."""

    def to_stored(self, obj: Object) -> NowOrLater[Object]:
        """Return an object of this version in the stored version. May share parts with its argument."""

    def convert_to(self, obj: Object, api_version: str) -> NowOrLater[Object]:
        """Convert an object to another version without pruning or defaulting. May share parts with its argument."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Resource:
    """A resource in one served version. All versions of a kind share the stored one."""

    kind: Kind
    plural: str
    singular: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    schema_of: Callable[[], Schema] = field(repr=False)
    columns: tuple[Column, ...] = ()
    row_order: Callable[[Object], Any] | None = None
    """The sort key of table rows, if not the name."""
    selectable: Mapping[str, Callable[[Object], str]] = field(default_factory=dict)
    """Field selectors besides metadata.name and metadata.namespace, which every kind has."""
    strategy: Strategy = Strategy()
    stored: Kind
    """The version in the store; all served versions of a kind share it."""
    to_stored: Callable[[Object], Object] = _identity
    from_stored: Callable[[Object], Object] = _identity
    """Convert everything but apiVersion and kind, which the server sets; may change and return its argument."""
    empty_status: Callable[[], Object | None] = _without_status
    """The status of a new object, in the stored version. None: it has none."""
    inert: FieldsWithoutEffect | None = None
    """None for custom kinds."""
    store_group: str = ""
    list_kind: str = ""
    """The kind of a list; by default the kind's name plus "List"."""
    deprecation: str = ""
    """The `Warning:` for every use of this version."""
    custom: Custom | None = None
    """Only for custom kinds, where it replaces `to_stored`, `from_stored` and the decoder of the schema."""
    fingerprint: str = ""
    """Differs when the schema differs; empty if only the schema itself shows that: no server stores its definition."""
    modernize: Callable[[Object], Iterable[str]] | None = None
    """Rewrite an object in an outdated form before it is decoded; return warnings."""

    # These follow from the others. They are plain attributes, because every request reads them.
    group: str = field(init=False)
    version: str = field(init=False)
    prefix: str = field(init=False)
    """The prefix of the objects' keys in the store: /registry/<group>/<plural>/<namespace>/<name>."""
    is_converted: bool = field(init=False)
    has_status: bool = field(init=False)

    def __post_init__(self) -> None:
        kind = self.kind
        for name, value in (
            ("group", kind.group),
            ("version", kind.version),
            ("prefix", f"/registry/{self.store_group or kind.group or 'core'}/{self.plural}/"),
            ("list_kind", self.list_kind or f"{kind.name}List"),
            ("is_converted", self.to_stored is not _identity or self.from_stored is not _identity),
            ("has_status", any(sub.name == "status" for sub in self.subresources)),
        ):
            object.__setattr__(self, name, value)

    @cached_property
    def schema(self) -> Schema:
        return self.schema_of()

    def subresource(self, name: str) -> Subresource | None:
        return next((sub for sub in self.subresources if sub.name == name), None)


_LOOKED_THROUGH = 256


class Registry:
    """The resources served now. Custom and aggregated ones come and go; `revision` grows with each change."""

    def __init__(self, resources: Iterable[Resource] = ()) -> None:
        self._by_url: dict[tuple[str, str, str], Resource] = {}
        self._by_kind: dict[Kind, Resource] = {}
        self.revision = 0
        for resource in resources:
            self.add(resource)

    def add(self, resource: Resource) -> None:
        self._by_url[resource.group, resource.version, resource.plural] = resource
        self._by_kind[resource.kind] = resource
        self.revision += 1

    def remove(self, resource: Resource) -> None:
        self._by_url.pop((resource.group, resource.version, resource.plural), None)
        self._by_kind.pop(resource.kind, None)
        self.revision += 1

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._by_url.get((group, version, plural))

    def of_kind(self, kind: Kind) -> Resource | None:
        return self._by_kind.get(kind)

    def has_built_in_group(self, group: str) -> bool:
        return any(resource.group == group and resource.custom is None for resource in self._by_url.values())

    def has_group_version(self, group: str, version: str) -> bool:
        return any(known[0] == group and known[1] == version for known in self._by_url)

    def drop_stale(self, made: dict[Any, tuple[Resource, Any]]) -> None:
        """Drop cached values of resources that are no longer served: custom kinds change and go.

        Call this before adding to the cache. It scans only when the cache has doubled, so its cost is amortized.
        """
        if len(made) < _LOOKED_THROUGH or len(made).bit_count() != 1:
            return
        for place, (resource, _) in list(made.items()):
            if self.find(resource.group, resource.version, resource.plural) is not resource:
                del made[place]

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._by_url.values())

    def __len__(self) -> int:
        return len(self._by_url)


_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
_STABILITY = {None: 0, "beta": 1, "alpha": 2}


def version_rank(version: str) -> tuple[int, int, int, str]:
    """Return a sort key: v2, v1, v2beta2, v2beta1, v1alpha1 in this order, and other names last, by their letters."""
    parsed = _VERSION.fullmatch(version)
    if parsed is None:
        return len(_STABILITY), 0, 0, version
    stability, major, step = parsed[2], parse_int(parsed[1]), parse_int(parsed[3] or "0")
    if major is None or step is None:
        return len(_STABILITY), 0, 0, version
    return _STABILITY[stability], -major, -step, version
