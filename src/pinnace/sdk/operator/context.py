"""The second argument of a handler: the cluster, seen from the handled object."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, cast, overload

from pinnace.client.client import Client
from pinnace.client.mapping import KindLike, KindName, kind_from
from pinnace.client.typed import SERVERS_OWN, Resource, applied_of, typed, wire_of
from pinnace.model import errors
from pinnace.model.objects import Key, Kind, Object, kind_of
from pinnace.model.selectors import label_selector
from pinnace.reconcile.conditions import set_condition
from pinnace.reconcile.events import EventType
from pinnace.reconcile.informer import Informer
from pinnace.reconcile.manager import Manager
from pinnace.reconcile.owners import set_owner
from pinnace.sdk.handlers.permissions import APPLY, OWN, ApplyForbidden, Permission
from pinnace.sdk.resources.custom_resource import CustomResource
from pinnace.sdk.resources.models import Condition

Log = logging.LoggerAdapter[logging.Logger]


class Context:
    """The cluster, seen from one object. Names without a namespace refer to that object's namespace."""

    def __init__(self, manager: Manager, obj: Object, typed: Any, *, operator: str, log: Log) -> None:
        self.client: Client = manager.client
        """For everything that the other methods do not do. The next `get` sees writes made through it."""
        self.log = log
        self.requeue_after = 0.0
        self._manager = manager
        self._obj = obj
        self._typed = typed
        self._operator = operator

    @property
    def key(self) -> Key:
        metadata = self._obj["metadata"]
        return Key(metadata.get("namespace", ""), metadata["name"])

    # Writing

    @overload
    async def apply(self, obj: Resource, *, own: bool = True, force: bool = True) -> Resource: ...
    @overload
    async def apply(self, obj: Mapping[str, Any], *, own: bool = True, force: bool = True) -> Object: ...
    async def apply(self, obj: Any, *, own: bool = True, force: bool = True) -> Any:
        """Apply an object server-side, with the operator's name as field manager, and return the stored object.

        It gets the handled object's namespace unless it names another, and an owner reference to the handled object,
        so that both are deleted together; use `own=False` for an object that stays or that is in another namespace.
        Fields of other managers are taken over; without `force` that raises ApplyConflict.
        """
        wire = {**applied_of(obj)}
        metadata = {name: value for name, value in (wire.get("metadata") or {}).items() if name not in SERVERS_OWN}
        wire["metadata"] = metadata
        served = await self.client.kinds.find(kind_of(wire))
        if served.namespaced:
            metadata.setdefault("namespace", self.key.namespace or self.client.namespace)
        if own:
            metadata["ownerReferences"] = [*(metadata.get("ownerReferences") or ())]
            try:
                set_owner(wire, self._obj)
            except ValueError as error:
                raise ValueError(f"{error}; apply it with own=False, and delete it in on_delete") from None
        try:
            answer = await self.client.apply(wire, field_manager=self._operator, force=force)
        except errors.Forbidden as denied:
            rules = [Permission(served.kind.group, served.plural, APPLY)]
            if own:
                owner = await self.client.kinds.find(kind_of(self._obj))
                rules.append(Permission(owner.kind.group, f"{owner.plural}/finalizers", OWN))
            raise ApplyForbidden(denied, rules) from None
        return typed(obj, answer)

    async def delete(self, kind: KindLike, name: str, *, namespace: str | None = None) -> None:
        """Delete an object and its dependents. An object that does not exist is no error."""
        where = self.key.namespace if namespace is None else namespace
        try:
            await self.client.delete(kind_from(kind), name, namespace=where, propagation="Background")
        except errors.NotFound:
            return

    # Reading

    @overload
    async def get(self, kind: type[Resource], name: str, *, namespace: str | None = None) -> Resource | None: ...
    @overload
    async def get(self, kind: KindName, name: str, *, namespace: str | None = None) -> Object | None: ...
    async def get(self, kind: Any, name: str, *, namespace: str | None = None) -> Any:
        """Return a copy of one object, or None. Kinds that the operator watches are read from its cache."""
        where = self.key.namespace if namespace is None else namespace
        informer = self._informer(kind_from(kind))
        if informer is not None:
            key = Key(where if informer.namespaced else "", name)
            found = informer.cache.get(key)
        else:
            found = await self.client.get_or_none(kind_from(kind), name, namespace=where)
        return found if found is None else typed(kind, found)

    @overload
    def indexed(self, kind: type[Resource], index: str, value: str) -> list[Resource]: ...
    @overload
    def indexed(self, kind: KindName, index: str, value: str) -> list[Object]: ...
    def indexed(self, kind: Any, index: str, value: str) -> list[Any]:
        """Return the objects of all namespaces for which an `@operator.index` function gives this value."""
        found = self._manager.cache(kind_from(kind)).by_index(index, value)
        return [typed(kind, obj) for obj in found]

    @overload
    async def list(self, kind: type[Resource], *, namespace: str | None = None, labels: str = "") -> list[Resource]: ...
    @overload
    async def list(self, kind: KindName, *, namespace: str | None = None, labels: str = "") -> list[Object]: ...
    async def list(self, kind: Any, *, namespace: str | None = None, labels: str = "") -> list[Any]:
        """Return the objects of the handled object's namespace, of the one given, or of all with `namespace=""`."""
        where = self.key.namespace if namespace is None else namespace
        informer = self._informer(kind_from(kind))
        if informer is not None:
            chosen = label_selector(labels) if labels else None
            found = informer.cache.list(namespace=where if informer.namespaced else "", labels=chosen)
        else:
            found = await self.client.list(kind_from(kind), namespace=where, labels=labels)
        return [typed(kind, obj) for obj in found]

    # Reporting

    def event(self, reason: str, message: str, *, type: EventType = "Normal") -> None:
        """Record an Event, which `kubectl describe` shows. `reason` is one word in CamelCase. Returns at once."""
        self._manager.recorder.record(self._obj, type, reason, message)

    def condition(self, type: str, status: bool | None, *, reason: str, message: str = "") -> None:
        """Set a condition in the object's status; None sets it to Unknown.

        Its last transition time changes only with its status. The status must have `conditions: Conditions`.
        """
        value = "Unknown" if status is None else str(status)
        clock = self.client.clock
        if not isinstance(self._typed, CustomResource):
            wire = wire_of(self._typed)
            set_condition(wire, type, cast(Any, value), reason=reason, message=message, clock=clock)
            if not isinstance(self._typed, dict):
                self._typed.status = typed(self._typed, wire).status
            return
        known: list[Condition] = self._typed.status.conditions
        about: Object = {
            "metadata": self._obj["metadata"],
            "status": {"conditions": [condition.to_wire() for condition in known]},
        }
        set_condition(about, type, cast(Any, value), reason=reason, message=message, clock=clock)
        self._typed.status.conditions = [Condition(**condition) for condition in about["status"]["conditions"]]

    def requeue(self, seconds: float) -> None:
        """Call the handler for this object again after so many seconds, even if nothing has changed."""
        self.requeue_after = seconds

    def _informer(self, kind: Kind) -> Informer | None:
        """Return the informer that holds every object of a kind, if there is one and it is up to date."""
        for informer in self._manager.informers:
            if informer.scope == (kind, "", "", "", False) and informer.is_synced and informer.error is None:
                return informer
        return None
