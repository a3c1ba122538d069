"""The handlers that an operator declares: each function with the objects for which it is called, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pinnace.client.mapping import KindLike, kind_from
from pinnace.model.objects import Key, Kind, Object
from pinnace.reconcile.cache import IndexFunction
from pinnace.sdk.resources.custom_resource import AnyResource

ToKeys = Callable[[Object], Iterable[Key]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileHandler:
    """Called for an object of a kind whenever the object, or one that it owns or watches, has changed."""

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
class CleanupHandler:
    """Called before an object of a kind is removed. A finalizer holds the object until the call has succeeded."""

    kind: KindLike
    handler: Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerHandler:
    """Called for each object of a kind every `seconds`."""

    kind: KindLike
    handler: Callable[..., Any]
    seconds: float
    labels: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeHandler:
    """Called with the old and the new state after each change of an object of a kind."""

    kind: KindLike
    handler: Callable[..., Any]
    labels: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionHandler:
    """May change (`mutates`) or deny an object before it is stored."""

    kind: KindLike
    handler: Callable[..., Any]
    operations: tuple[str, ...]
    mutates: bool
    plural: str
    ignore_failure: bool
    """Whether writes pass while the operator cannot be reached."""

    @property
    def path(self) -> str:
        """The URL path of its webhook."""
        kind = kind_from(self.kind)
        verb = "mutate" if self.mutates else "validate"
        name = getattr(self.handler, "__name__", "gate").strip("_").replace("_", "-")
        return f"/{verb}/{kind.group or 'core'}/{kind.version}/{kind.name.lower()}/{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionHandler:
    """Converts an object from one version of a kind to another."""

    old: type[AnyResource]
    new: type[AnyResource]
    handler: Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """A function that returns the values by which an object of a kind is found."""

    kind: KindLike
    name: str
    function: IndexFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedApi:
    """A kind whose API the operator serves itself, and the backend that holds its objects."""

    kind: type[AnyResource]
    backend: Any
    """An instance, or a class of which one instance is made when the API is served."""
    refresh: float
    """Read the backend again every so many seconds while a watch is open; 0 is never."""


class LocalAdmission:
    """The admission handlers of the kinds that the operator serves itself: these are called without a webhook."""

    def __init__(self, handlers: Sequence[AdmissionHandler]) -> None:
        self._handlers = handlers

    def handlers_for(self, kind: Kind, operation: str, *, mutates: bool) -> list[AdmissionHandler]:
        return [
            handler
            for handler in self._handlers
            if kind_from(handler.kind) == kind and handler.mutates is mutates and operation in handler.operations
        ]
