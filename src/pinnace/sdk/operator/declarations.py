"""What an operator declares: its functions, each with the objects for which it is called, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pinnace.client.mapping import KindLike, kind_from
from pinnace.model.objects import Key, Kind, Object
from pinnace.reconcile.cache import IndexFunction
from pinnace.sdk.operator.api_declarations import Api
from pinnace.sdk.operator.permissions import Permission
from pinnace.sdk.resources.custom_resource import AnyResource

ToKeys = Callable[[Object], Iterable[Key]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A function that is called for each object of a kind whenever something about it has changed."""

    kind: KindLike
    handler: Callable[..., Any]
    owns: tuple[KindLike, ...]
    watches: tuple[tuple[KindLike, ToKeys], ...]
    namespace: str
    labels: str
    fields: str
    workers: int
    resync: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """A function that is called for each object of a kind every so many seconds."""

    kind: KindLike
    handler: Callable[..., Any]
    seconds: float
    labels: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A function that is told what has become of each object of a kind."""

    kind: KindLike
    handler: Callable[..., Any]
    labels: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A function that may change or refuse an object before it is stored."""

    kind: KindLike
    handler: Callable[..., Any]
    operations: tuple[str, ...]
    changes: bool
    plural: str
    ignore_failure: bool
    """Whether objects pass while the operator cannot be reached."""

    @property
    def path(self) -> str:
        kind = kind_from(self.kind)
        verb = "mutate" if self.changes else "validate"
        name = getattr(self.handler, "__name__", "gate").strip("_").replace("_", "-")
        return f"/{verb}/{kind.group or 'core'}/{kind.version}/{kind.name.lower()}/{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """A function that makes an object of one version into one of another."""

    old: type[AnyResource]
    new: type[AnyResource]
    handler: Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """A function that says by which values the objects of a kind are found."""

    kind: KindLike
    name: str
    function: IndexFunction


@dataclass(slots=True)
class Declared:
    """All that one operator has declared."""

    loops: list[Loop] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    cleanups: list[tuple[KindLike, Callable[..., Any]]] = field(default_factory=list)
    gates: list[Gate] = field(default_factory=list)
    """Those that the server asks. Of kinds that are served here, nobody else need be asked: `own_gates`."""
    own_gates: list[Gate] = field(default_factory=list)
    apis: list[Api] = field(default_factory=list)
    conversions: list[Conversion] = field(default_factory=list)
    indexes: list[Index] = field(default_factory=list)
    permissions: list[Permission] = field(default_factory=list)


class Gates:
    """The functions that change or refuse objects of the kinds that are served here: no webhook is needed for these."""

    def __init__(self, gates: Sequence[Gate]) -> None:
        self._gates = gates

    def of(self, kind: Kind, operation: str, *, changes: bool) -> list[Gate]:
        return [
            gate
            for gate in self._gates
            if kind_from(gate.kind) == kind and gate.changes is changes and operation in gate.operations
        ]
