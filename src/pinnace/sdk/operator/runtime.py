"""Everything that the handlers of one running operator share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pinnace.client.mapping import KindLike, kind_from
from pinnace.client.reading import Selection
from pinnace.model.objects import Key, Object
from pinnace.reconcile.exclusion import Exclusion
from pinnace.reconcile.informer import Informer
from pinnace.reconcile.manager import Manager
from pinnace.sdk.handlers.options import CallOptions
from pinnace.sdk.handlers.threads import HandlerThreads
from pinnace.sdk.operator.applied import AppliedObjects
from pinnace.sdk.operator.declarations import Declarations
from pinnace.sdk.operator.shared_resources import Shared
from pinnace.sdk.operator.waiting import WaitingHandlers


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRuntime:
    """One running operator: its declarations, and the parts that its handlers use."""

    declarations: Declarations
    manager: Manager
    threads: HandlerThreads
    shared: Shared
    applied: AppliedObjects = field(default_factory=AppliedObjects)
    exclusions: dict[tuple[str, str], Exclusion[Key]] = field(default_factory=dict)
    waiting: dict[tuple[str, str], WaitingHandlers] = field(default_factory=dict)

    def exclusion(self, kind: KindLike) -> Exclusion[Key]:
        """Return the exclusion of all handlers of a kind: they take turns for each object."""
        found = kind_from(kind)
        return self.exclusions.setdefault((found.group, found.name), Exclusion())

    def waiting_of(self, kind: KindLike) -> WaitingHandlers:
        """Return the handlers of a kind that have asked to be called later."""
        found = kind_from(kind)
        return self.waiting.setdefault((found.group, found.name), WaitingHandlers())

    def selections(self, options: CallOptions) -> list[Selection]:
        """Return one selection for each namespace of the operator."""
        namespaces = self.declarations.namespaces or ("",)
        return [Selection(namespace=one, labels=options.labels, fields=options.fields) for one in namespaces]


class ObjectCaches:
    """The caches of a handler's objects: one, or one for each namespace of the operator."""

    def __init__(self, runtime: OperatorRuntime, kind: KindLike, options: CallOptions) -> None:
        selections = runtime.selections(options)
        self._informers = [runtime.manager.informer(kind_from(kind), **selection) for selection in selections]

    @property
    def informers(self) -> list[Informer]:
        return list(self._informers)

    def get(self, key: Key) -> Object | None:
        for informer in self._informers:
            found = informer.cache.get(key)
            if found is not None:
                return found
        return None

    def __contains__(self, key: Any) -> bool:
        return any(key in informer.cache for informer in self._informers)
