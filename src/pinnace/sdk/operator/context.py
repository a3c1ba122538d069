"""The second argument of a handler: the cluster, seen from the handled object."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeVar, cast, overload

from pinnace.client.client import Client
from pinnace.client.mapping import KindLike, KindName, kind_from
from pinnace.client.snapshots import Snapshot
from pinnace.client.typed import SERVERS_OWN, Resource, applied_of, typed, typed_list, wire_of
from pinnace.model import errors
from pinnace.model.objects import Key, Kind, Object, key_of, kind_of
from pinnace.model.selectors import LabelsLike, label_selector, selector_text
from pinnace.reconcile.conditions import set_condition
from pinnace.reconcile.events import EventType
from pinnace.reconcile.informer import Informer
from pinnace.reconcile.owners import controller_of, set_owner
from pinnace.reconcile.readiness import ObjectReadiness, readiness_of
from pinnace.sdk.handlers.options import Select
from pinnace.sdk.handlers.permissions import APPLY, OWN, ApplyForbidden, Permission
from pinnace.sdk.operator.logs import Log
from pinnace.sdk.operator.runtime import Caches, OperatorRuntime
from pinnace.sdk.operator.shared_resources import Shared
from pinnace.sdk.resources.custom_resource import CustomResource
from pinnace.sdk.resources.models import Condition

Answer = TypeVar("Answer")
_CONTROLLER = "the uid of the controller"
_MOST_CHANGES = 10
Trigger = Literal["created", "changed", "deleted", "resumed", "related", "requeued", "resync"]


class AppliedChange(NamedTuple):
    """An object that an apply has created or changed."""

    kind: Kind
    key: Key
    before: Object | None
    """As the cache had it; None if it was created, or if its kind is not cached."""
    after: Object


def _controller_uid(snapshot: Snapshot[Any]) -> tuple[str, ...]:
    """Return the uid of the object's controller, as the values of an index."""
    owners = snapshot.metadata.get("ownerReferences") or ()
    return tuple(owner["uid"] for owner in owners if owner.get("controller"))


class Context:
    """The cluster, seen from one object. Names without a namespace refer to that object's namespace."""

    def __init__(self, runtime: OperatorRuntime, obj: Object, typed: Any, *, log: Log, trigger: Trigger) -> None:
        manager = runtime.manager
        self.client: Client = manager.client
        """For everything that the other methods do not do. The next `get` sees writes made through it."""
        self.log = log
        """Logs about the object: `ctx.log.info("reconciled", ready=2)`."""
        self.trigger: Trigger = trigger
        """The reason for the call: the object was `created` or `changed`, is being `deleted`, or existed when the
        operator started (`resumed`); an owned or watched object changed (`related`); the handler or a source asked for
        it (`requeued`); or it is time for a `resync`. A call that is repeated after a failure keeps the first reason.
        """
        self.shared: Shared = runtime.shared
        """The values of `@operator.startup` functions, by their type: `ctx.shared[Session]`."""
        self.requeue_after = 0.0
        self.is_expired = False
        self._loop = asyncio.get_running_loop()
        self._runtime = runtime
        self._manager = manager
        self._obj = obj
        self._typed = typed
        self._operator = runtime.declarations.name
        self._applied: set[tuple[str, str, Key]] = set()
        """Group, kind and key of each object that was applied with the handled object as its owner."""
        self.changed: list[AppliedChange] = []
        """The objects that an apply has changed or created; the first few."""

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
        Fields of other managers are taken over; without `force` that raises ApplyConflict. No request is sent if the
        cache shows that the object is as wanted already.
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
        name = Key(metadata.get("namespace", "") if served.namespaced else "", metadata.get("name", ""))
        if own:
            self._applied.add((served.kind.group, served.kind.name, name))
        present = self._cached(served.kind, name)
        applied, manager = self._runtime.applied, self._operator
        if present is not None and applied.is_applied(served.kind, name, wire, present, manager=manager):
            return typed(obj, present)
        try:
            answer = await self.client.apply(wire, field_manager=manager, force=force)
        except errors.Forbidden as denied:
            rules = [Permission(served.kind.group, served.plural, APPLY)]
            if own:
                owner = await self.client.kinds.find(kind_of(self._obj))
                rules.append(Permission(owner.kind.group, f"{owner.plural}/finalizers", OWN))
            raise ApplyForbidden(denied, rules) from None
        applied.remember(served.kind, name, wire, answer, manager=manager)
        self._note_change(AppliedChange(served.kind, name, present, answer))
        return typed(obj, answer)

    def _note_change(self, change: AppliedChange) -> None:
        before = change.before["metadata"].get("resourceVersion") if change.before is not None else None
        if len(self.changed) < _MOST_CHANGES and before != change.after["metadata"].get("resourceVersion"):
            self.changed.append(change)

    async def delete(self, kind: KindLike, name: str, *, namespace: str | None = None) -> None:
        """Delete an object and its dependents. An object that does not exist is no error.

        No request is sent for an object of a watched kind that is not in the cache.
        """
        where = self.key.namespace if namespace is None else namespace
        informer = self._informer(kind_from(kind), where)
        if informer is not None and Key(where if informer.namespaced else "", name) not in informer.cache:
            return
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
        informer = self._informer(kind_from(kind), where)
        if informer is not None:
            key = Key(where if informer.namespaced else "", name)
            obj = informer.cache.get(key)
        else:
            obj = await self.client.get_or_none(kind_from(kind), name, namespace=where)
        return obj if obj is None else typed(kind, obj)

    @overload
    def indexed(self, kind: type[Resource], index: str, value: str) -> list[Resource]: ...
    @overload
    def indexed(self, kind: KindName, index: str, value: str) -> list[Object]: ...
    def indexed(self, kind: Any, index: str, value: str) -> list[Any]:
        """Return the objects of all namespaces for which an `@operator.index` function gives this value."""
        return Caches(self._manager, self._runtime.declarations.namespaces).indexed(kind, index, value)

    @overload
    async def owned(self, kind: type[Resource]) -> list[Resource]: ...
    @overload
    async def owned(self, kind: KindName) -> list[Object]: ...
    async def owned(self, kind: Any) -> list[Any]:
        """Return the objects of a kind that the handled object controls, as `apply` makes them, sorted by name."""
        uid, where = self._obj["metadata"]["uid"], self.key.namespace
        informer = self._informer(kind_from(kind), where)
        if informer is None:
            listed = await self.client.list(kind_from(kind), namespace=where)
            objects = [obj for obj in listed if (controller_of(obj) or {}).get("uid") == uid]
        else:
            informer.cache.add_encoded_index(_CONTROLLER, _controller_uid)
            objects = informer.cache.by_index(_CONTROLLER, uid)
        return typed_list(kind, sorted(objects, key=key_of))

    def ready(self, obj: Any) -> ObjectReadiness:
        """Return whether an object is as its spec says, by the rules of kstatus; its `message` says what is missing.

        `if not (ready := ctx.ready(deployment)): raise Retry(reason=ready.message)`. It judges the kinds of Kubernetes,
        and custom kinds by `observedGeneration` and the conditions Ready, Reconciling and Stalled.
        """
        return readiness_of(wire_of(obj), now=self.now())

    async def prune(self, owns: Iterable[Select]) -> None:
        """Delete what earlier calls have applied as owned by the handled object, and this one has not."""
        uid = self._obj["metadata"]["uid"]
        for select in owns:
            kind = kind_from(select.kind)
            for informer in self._manager.informers:
                scope = informer.scope
                if (scope.kind, scope.labels, scope.fields) != (kind, selector_text(select.labels), select.fields):
                    continue
                informer.cache.add_encoded_index(_CONTROLLER, _controller_uid)
                for key in sorted(informer.cache.keys_by_index(_CONTROLLER, uid)):
                    snapshot = informer.cache.snapshot(key)
                    if snapshot is not None and (kind.group, kind.name, key) not in self._applied:
                        await self._delete_unapplied(kind, snapshot)

    async def _delete_unapplied(self, kind: Kind, snapshot: Snapshot[Any]) -> None:
        metadata, key = snapshot.metadata, snapshot.key
        managers = metadata.get("managedFields") or ()
        is_applied = any((by.get("manager"), by.get("operation")) == (self._operator, "Apply") for by in managers)
        if metadata.get("deletionTimestamp") or not is_applied:
            return
        try:
            await self.client.delete(
                kind, key.name, namespace=key.namespace, propagation="Background", uid=metadata["uid"]
            )
        except (errors.NotFound, errors.Conflict):
            return  # Another object has taken the name, or there is none any more.
        self.log.info("deleted %s %s, which is no longer applied", kind.name, key)

    @overload
    async def list(
        self, kind: type[Resource], *, namespace: str | None = None, labels: LabelsLike = ""
    ) -> list[Resource]: ...
    @overload
    async def list(self, kind: KindName, *, namespace: str | None = None, labels: LabelsLike = "") -> list[Object]: ...
    async def list(self, kind: Any, *, namespace: str | None = None, labels: LabelsLike = "") -> list[Any]:
        """Return the objects of the handled object's namespace, of the one given, or of all with `namespace=""`."""
        where = self.key.namespace if namespace is None else namespace
        informer = self._informer(kind_from(kind), where)
        if informer is not None:
            chosen = label_selector(selector_text(labels)) if labels else None
            objects = informer.cache.list(namespace=where if informer.namespaced else "", labels=chosen)
        else:
            objects = await self.client.list(kind_from(kind), namespace=where, labels=labels)
        return typed_list(kind, objects)

    # Reporting

    def event(self, reason: str, message: str, *, type: EventType = "Normal") -> None:
        """Record an Event, which `kubectl describe` shows. `reason` is one word in CamelCase. Returns at once."""
        self._loop.call_soon_threadsafe(self._manager.recorder.record, self._obj, type, reason, message)

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
        if not hasattr(self._typed.status, "conditions"):
            raise TypeError(
                f"the status of {self._typed.declared.kind.name} has no conditions; "
                "write in its class: conditions: Conditions = Field(default_factory=list)"
            )
        known: list[Condition] = self._typed.status.conditions
        about: Object = {
            "metadata": self._obj["metadata"],
            "status": {"conditions": [condition.to_wire() for condition in known]},
        }
        set_condition(about, type, cast(Any, value), reason=reason, message=message, clock=clock)
        self._typed.status.conditions = [Condition(**condition) for condition in about["status"]["conditions"]]

    def requeue(self, seconds: float) -> None:
        """Call the handler for this object again after so many seconds, even if nothing has changed.

        In on_delete the object stays until then: the finalizer is removed after a call that does not ask for another.
        """
        self.requeue_after = seconds

    # Time

    def now(self) -> datetime:
        """Return the current time, in UTC; in a test that of the test's clock."""
        return self.client.clock.now()

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds; in a test those of the test's clock. For daemons: other handlers requeue."""
        await self.client.clock.sleep(seconds)

    # Handlers that are `def`

    def wait(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Return the result of an async method, for `def` handlers: `ctx.wait(ctx.apply(deployment))`."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            work.close()
            raise RuntimeError("ctx.wait is for `def` handlers; in an `async def` handler write await instead")
        if self.is_expired:
            work.close()
            raise TimeoutError("the handler's timeout is over: nothing more is sent for it")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def expire(self) -> None:
        """End the time of a handler that runs in a thread: its next `wait` fails."""
        self.is_expired = True

    def _cached(self, kind: Kind, key: Key) -> Object | None:
        """Return an object from any up-to-date cache that has it."""
        for informer in self._manager.informers:
            scope = informer.scope
            if scope.kind == kind and not scope.metadata_only and informer.is_synced and informer.error is None:
                obj = informer.cache.get(key)
                if obj is not None:
                    return obj
        return None

    def _informer(self, kind: Kind, namespace: str) -> Informer | None:
        """Return the informer that holds every object of a kind, or of a namespace, if there is one up to date."""
        for informer in self._manager.informers:
            scope = informer.scope
            if scope.kind != kind or scope.labels or scope.fields or scope.metadata_only or scope.is_sharded:
                continue
            if scope.namespace in ("", namespace) and informer.is_synced and informer.error is None:
                return informer
        return None
