"""The handlers that an operator declares: each function with the objects for which it is called, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pinnace.client.mapping import KindLike, kind_from
from pinnace.model.objects import Key, Kind
from pinnace.reconcile.cache import IndexFunction
from pinnace.sdk.handlers.options import CallOptions, Select
from pinnace.sdk.resources.custom_resource import AnyResource

ToKeys = Callable[..., Iterable[Key]]
"""Called with an object that has changed, and, if it takes two arguments, with the operator's `Caches`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectHandler:
    """Called for single objects of a kind."""

    kind: KindLike
    handler: Callable[..., Any]
    options: CallOptions

    @property
    def name(self) -> str:
        return str(getattr(self.handler, "__name__", type(self.handler).__name__))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileHandler(ObjectHandler):
    """Called for an object of a kind whenever the object, or one that it owns or watches, has changed."""

    owns: tuple[Select, ...]
    watches: tuple[tuple[Select, ToKeys], ...]
    resync: float
    prune: bool = False
    """Whether owned objects that a call has not applied are deleted after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupHandler(ObjectHandler):
    """Called before an object of a kind is removed. A finalizer holds the object until the call has succeeded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerHandler(ObjectHandler):
    """Called for each object of a kind every `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeHandler(ObjectHandler):
    """Called with the old and the new state after each change of an object of a kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldHandler(ObjectHandler):
    """Called with the old and the new value after each change of one field."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonHandler(ObjectHandler):
    """Runs as long as its object exists and matches the selector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalSource:
    """Names objects to reconcile because of events outside of the cluster."""

    kind: KindLike
    function: Callable[..., Any]
    path: str
    """The URL path of a webhook; empty for an async generator."""


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
