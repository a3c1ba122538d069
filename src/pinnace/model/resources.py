"""What a URL serves: a kind with its plural, scope, schema, subresources, columns, and what is special about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, Protocol

from pinnace.model import names
from pinnace.model.field_errors import FieldError
from pinnace.model.names import NameRule
from pinnace.model.objects import Kind, Object
from pinnace.schema.shape import Schema

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a Table answer. `value` is given the object and the present moment; priority > 0 is for -o wide."""

    name: str
    type: str  # string, integer, number, boolean or date.
    description: str
    value: Callable[[Object, datetime], Any]
    priority: int = 0
    format: str = ""
    has_title: bool = True
    """Without one, a row has the cell and the table does not say what it is. Kubernetes has one such column."""

    @property
    def definition(self) -> Object:
        """What a Table says of the column."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


@dataclass(frozen=True, slots=True)
class Subresource:
    """A further URL below an object: pods/status, deployments/scale. `kind` is what travels through it."""

    name: str
    kind: Kind
    verbs: tuple[str, ...]


def _leave(obj: Object) -> None:
    """Nothing to default."""


def _leave_both(new: Object, old: Object | None) -> None:
    """Nothing to prepare."""


def _leave_marked(obj: Object, now: datetime) -> None:
    """Nothing to mark."""


def _accept(new: Object, old: Object | None) -> Iterable[FieldError]:
    return ()


def _identity(obj: Object) -> Object:
    return obj


def _without_status() -> Object | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """What is special about one kind; all else is common to every kind and lives in the server's pipeline.

    `default` and `prepare` change the object they are given, which belongs to the request alone.
    """

    default: Callable[[Object], None] = _leave
    """Fill in what the client left out. Called on every write, before validation; must be idempotent."""
    prepare: Callable[[Object, Object | None], None] = _leave_both
    """Before validation of a write through the main URL (old is None on create): put aside what a client may not set
    there. Status is already emptied on create and kept from `old` on update, where the kind has /status."""
    prepare_status: Callable[[Object, Object | None], None] = _leave_both
    validate: Callable[[Object, Object | None], Iterable[FieldError]] = _accept
    """Every error of `new` (metadata is checked already), those against `old` (immutable fields) included."""
    validate_status: Callable[[Object, Object | None], Iterable[FieldError]] = _accept
    name_rule: NameRule = names.dns_subdomain
    names_itself: bool = False
    """An object that comes without a name is given a random one."""
    qualified_finalizers: bool = True
    """Finalizers must say whose they are. Custom kinds and their definitions have others, too."""
    tracks_generation: bool = False
    """metadata.generation starts at 1 and grows when anything but metadata and status changes."""
    may_update_unconditionally: bool = True
    """An update without resourceVersion overwrites whatever is there."""
    may_create_on_update: bool = False
    prepare_subresource: Mapping[str, Callable[[Object, Object], None]] = field(default_factory=dict)
    """By subresource: before validation of an update through it, put back what that cannot change."""
    validate_subresource: Mapping[str, Callable[[Object, Object], Iterable[FieldError]]] = field(default_factory=dict)
    """By subresource: the errors of an update through it, where they are not those of the main URL."""
    takes_strategic_patches: bool = True
    """Custom kinds do not: their schemas say nothing of merge keys."""
    keeps_status_on_create: bool = False
    """Nodes are born with a status; other kinds get theirs through /status."""
    grace: Callable[[Object, int | None], int] | None = None
    """For kinds that are deleted gracefully: how many seconds this one gets, given what the client asked for."""
    mark: Callable[[Object, datetime], None] = _leave_marked
    """When deletion of an object begins: add what is to hold it back, and say so in its status."""
    dependents: Literal["delete", "orphan", "none"] = "delete"
    """What becomes of an object's dependents where the client does not say. None: it has none, whatever one says."""
    deletion_warning: str = ""
    """The `Warning:` for those who do not say what is to become of the dependents."""
    answers_with_deleted: bool = False
    """A finished deletion is answered with the object instead of a Status."""
    warnings: Callable[[Object, Object | None], Iterable[str]] = lambda new, old: ()
    """Sentences for the `Warning:` header: deprecated fields and the like."""
    version_annotations: tuple[str, ...] = ()
    """Annotations in which versions write what is a field to Kubernetes: metadata that are shown alone lack them."""


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where a custom kind keeps what /scale shows, field by field from the top: ("spec", "replicas")."""

    spec: tuple[str, ...]
    status: tuple[str, ...]
    selector: tuple[str, ...] = ()


class Custom(Protocol):
    """What a version of a kind that was defined while running does itself. Its objects may lie in the store in any
    version that the kind ever had."""

    @property
    def scale(self) -> ScalePaths | None: ...

    @property
    def raw_schema(self) -> Mapping[str, Any]:
        """As the definition says it, which may be nothing at all."""

    @property
    def keeps_unknown(self) -> bool:
        """Fields that the schema does not name are kept."""

    @property
    def is_leaving(self) -> bool:
        """Its definition is being deleted: objects may go, and none may come."""

    @property
    def is_converted_elsewhere(self) -> bool:
        """Somebody else has to be asked what an object looks like in another version, which takes a while."""

    @property
    def settled_since(self) -> int:
        """What was stored in this version after this revision is shown as it is: nothing is to be filled in or taken
        away, since the schema was then what it is now."""

    def decode(self, obj: Object) -> list[str]:
        """Read a client's object in place; return the paths of the unknown fields that were removed."""

    def shown(self, stored: Sequence[Object]) -> list[Object] | Awaitable[list[Object]]:
        """Stored objects in this version; may change those given. Awaitable where somebody else has to convert them."""

    def kept(self, obj: Object) -> Object | Awaitable[Object]:
        """An object of this version in the version that is to be stored. May share parts with the one given."""

    def seen_in(self, obj: Object, api_version: str) -> Object | Awaitable[Object]:
        """An object of any version as it is in another, with nothing filled in or taken away. May share parts."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Resource:
    """One row of what the API serves. The same object again for each served version."""

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
    """What the rows of a table are sorted by, where that is not the name."""
    selectable: Mapping[str, Callable[[Object], str]] = field(default_factory=dict)
    """Field selectors beside metadata.name and metadata.namespace, which every kind has."""
    strategy: Strategy = Strategy()
    stored: Kind
    """The version that is written to the store; all served versions of a kind share it."""
    to_stored: Callable[[Object], Object] = _identity
    from_stored: Callable[[Object], Object] = _identity
    """Change everything but apiVersion and kind, which the server sets; may return the object it was given, changed."""
    empty_status: Callable[[], Object | None] = _without_status
    """The status, in the stored version, that an object is born with where it cannot bring one. None: it has none."""
    store_group: str = ""
    list_name: str = ""
    """The kind of a list, where it is not the kind's own name and "List"."""
    deprecation: str = ""
    """The `Warning:` that every use of this version is answered with."""
    custom: Custom | None = None
    """Only kinds that were defined while running have this, and it is asked instead of `to_stored`, `from_stored` and
    the decoder that the schema would make."""
    fingerprint: str = ""
    """Other when the schema is another, where that can be known without looking at the schema."""
    modernize: Callable[[Object], Iterable[str]] | None = None
    """Rewrite, before it is decoded, an object in a form that this version no longer has; return warnings."""

    @cached_property
    def schema(self) -> Schema:
        return self.schema_of()

    @cached_property
    def group(self) -> str:
        return self.kind.group

    @cached_property
    def version(self) -> str:
        return self.kind.version

    @cached_property
    def list_kind(self) -> str:
        return self.list_name or f"{self.kind.name}List"

    @cached_property
    def prefix(self) -> str:
        """Where the objects lie in the store: /registry/<group>/<plural>/<namespace>/<name>."""
        return f"/registry/{self.store_group or self.group or 'core'}/{self.plural}/"

    @cached_property
    def is_converted(self) -> bool:
        return self.to_stored is not _identity or self.from_stored is not _identity

    @cached_property
    def has_status(self) -> bool:
        return any(sub.name == "status" for sub in self.subresources)

    def subresource(self, name: str) -> Subresource | None:
        return next((sub for sub in self.subresources if sub.name == name), None)


_LOOKED_THROUGH = 256


class Registry:
    """The resources served now. Custom and aggregated ones join and leave; `revision` tells that something did."""

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
        return any(one.group == group and one.custom is None for one in self._by_url.values())

    def has_group_version(self, group: str, version: str) -> bool:
        return any(known[0] == group and known[1] == version for known in self._by_url)

    def shed(self, made: dict[Any, tuple[Resource, Any]]) -> None:
        """Forget what was made for resources that are no longer served as they were: custom kinds change and go.

        To be asked before something is added. Looks when there is twice as much as the last time, so it costs nothing.
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
