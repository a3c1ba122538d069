"""The last argument of a scheduler's functions: caches of any kind, state, permits, and a client.

A function gets it if its last parameter is `ctx: SchedulerContext`. Functions decide one pod after the other and must
not wait, so they read caches, which the scheduler keeps up to date; those that are `async def` may use the client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, overload

from pinnace.client.client import Client
from pinnace.client.mapping import KindLike, KindName, kind_from
from pinnace.client.snapshots import Snapshot, snapshot_of
from pinnace.client.typed import Resource, typed
from pinnace.model.objects import Key, Kind, Object
from pinnace.model.selectors import label_selector
from pinnace.process.clock import Clock, SystemClock
from pinnace.reconcile.cache import Cache
from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.events import NODE, POD, ActionType, ClusterEvent, EventRegistration, is_own_update
from pinnace.scheduler.framework.one_node import NodeView
from pinnace.scheduler.listener import LOOKUPS
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.state.pods import Pod
from pinnace.sdk.handlers.calls import parameter_count
from pinnace.sdk.operator.shared_resources import Shared

_CONTEXT = "pinnace.sdk/context"

Wake = Callable[..., bool]
"""`def wakes(pod, old, new) -> bool`: whether a change of an object may make a refused pod schedulable."""


class Permits(Protocol):
    """The pods that a permit function holds back."""

    def allow(self, uid: str) -> None: ...
    def reject(self, uid: str, message: str) -> None: ...
    def waiting(self) -> Sequence[tuple[Pod, str]]: ...


@dataclass(frozen=True, slots=True)
class CachedKind:
    """A kind whose objects a scheduler keeps in memory, with the functions that index them."""

    kind: KindLike
    indexes: dict[str, Callable[[Object], Iterable[str]]] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class SchedulerRuntime:
    """The caches and state that the functions of one running scheduler, or of one trial, share."""

    name: str
    caches: Mapping[Kind, Cache[Any]]
    shared: Shared = field(default_factory=Shared)
    client: Client | None = None
    clock: Clock = field(default_factory=SystemClock)
    permits: Permits | None = None
    state: ClusterState | None = None
    """Pods and nodes, for hints about nodes."""
    _known: dict[tuple[Kind, Key], tuple[Snapshot[Any], Any]] = field(default_factory=dict)
    """Objects as instances of their classes: each version is decoded once, however many nodes ask for it."""

    def cache(self, kind: KindLike) -> Cache[Any]:
        """Return the cache of a kind. Raise LookupError for a kind that the scheduler does not keep."""
        cache = self.caches.get(kind_from(kind))
        if cache is None:
            name = getattr(kind, "__name__", repr(kind))
            raise LookupError(
                f"{self.name} does not keep {kind_from(kind).name}: declare it with scheduler.reads({name})"
            )
        return cache

    def read(self, kind: Any, snapshot: Snapshot[Any] | None, key: Key) -> Any:
        """Return one version of an object, which all functions share."""
        place = (kind_from(kind), key)
        if snapshot is None:
            self._known.pop(place, None)
            return None
        known = self._known.get(place)
        if known is None or known[0] is not snapshot:
            known = self._known[place] = (snapshot, typed(kind, snapshot.object))
        return known[1]


def cache_of(cached: CachedKind, objects: Iterable[Object]) -> Cache[Any]:
    """Return a cache with these objects, for a trial."""
    cache: Cache[Any] = Cache()
    for name, function in cached.indexes.items():
        cache.add_index(name, function)
    for number, obj in enumerate(objects, start=1):
        metadata = {"resourceVersion": str(number), **(obj.get("metadata") or {})}
        cache.put(snapshot_of({**obj, "metadata": metadata}))
    return cache


class SchedulerContext:
    """The objects and state beside a pod and its nodes: `ctx.get(NodeLoad, node.name)`."""

    __slots__ = ("_runtime", "cycle")

    def __init__(self, runtime: SchedulerRuntime, cycle: dict[str, Any]) -> None:
        self._runtime = runtime
        self.cycle = cycle
        """State of this attempt to schedule this pod: `pre_filter` may prepare what `filter` and `score` read."""

    @property
    def shared(self) -> Shared:
        """The values of `@scheduler.startup` functions, by their type: state of the whole run."""
        return self._runtime.shared

    @property
    def client(self) -> Client:
        """The client, for functions that are `async def`. Raise LookupError in a trial, which has no server."""
        if self._runtime.client is None:
            raise LookupError(f"{self._runtime.name} has no client in a trial: read objects with ctx.get or ctx.list")
        return self._runtime.client

    def now(self) -> datetime:
        """Return the current time, in UTC; in a test that of the test's clock."""
        return self._runtime.clock.now()

    # Caches

    @overload
    def get(self, kind: type[Resource], name: str, *, namespace: str = "") -> Resource | None: ...
    @overload
    def get(self, kind: KindName, name: str, *, namespace: str = "") -> Object | None: ...
    def get(self, kind: Any, name: str, *, namespace: str = "") -> Any:
        """Return an object from the cache, or None. Do not change it: other functions get the same."""
        key = Key(namespace, name)
        return self._runtime.read(kind, self._runtime.cache(kind).snapshot(key), key)

    @overload
    def indexed(self, kind: type[Resource], index: str, value: str) -> list[Resource]: ...
    @overload
    def indexed(self, kind: KindName, index: str, value: str) -> list[Object]: ...
    def indexed(self, kind: Any, index: str, value: str) -> list[Any]:
        """Return the objects for which an `@scheduler.index` function gives this value. Do not change them."""
        cache = self._runtime.cache(kind)
        if index not in cache.index_names:
            name = kind_from(kind).name
            raise LookupError(f"{name} has no index {index}; declare it with @scheduler.index({name})")
        keys = sorted(cache.keys_by_index(index, value))
        return [self._runtime.read(kind, cache.snapshot(key), key) for key in keys]

    @overload
    def list(self, kind: type[Resource], *, namespace: str = "", labels: str = "") -> list[Resource]: ...
    @overload
    def list(self, kind: KindName, *, namespace: str = "", labels: str = "") -> list[Object]: ...
    def list(self, kind: Any, *, namespace: str = "", labels: str = "") -> list[Any]:
        """Return the objects of a namespace, or of all. Do not change them."""
        cache, chosen = self._runtime.cache(kind), label_selector(labels) if labels else None
        return [
            self._runtime.read(kind, snapshot, snapshot.key)
            for snapshot in cache.snapshots(namespace=namespace)
            if chosen is None or chosen.matches(snapshot.metadata.get("labels") or {})
        ]

    # Permits

    def waiting(self) -> Sequence[tuple[Pod, str]]:
        """Return the pods that permit functions hold back, each with its node."""
        return self._runtime.permits.waiting() if self._runtime.permits is not None else ()

    def allow(self, pod: Pod) -> None:
        """Let a pod be bound that a permit function holds back."""
        if self._runtime.permits is not None:
            self._runtime.permits.allow(pod.uid)

    def reject(self, pod: Pod, message: str) -> None:
        """Refuse a pod that a permit function holds back. It gives back what it has reserved."""
        if self._runtime.permits is not None:
            self._runtime.permits.reject(pod.uid, message)


def context_of(runtime: SchedulerRuntime, cycle: Cycle) -> SchedulerContext:
    """Return the context of one attempt."""
    context = cycle.data.get(_CONTEXT)
    if context is None:
        context = cycle.data[_CONTEXT] = SchedulerContext(runtime, {})
    known: SchedulerContext = context
    return known


def kinds_of(objects: Iterable[Object]) -> dict[Kind, list[Object]]:
    """Return objects by their kind."""
    by_kind: dict[Kind, list[Object]] = {}
    for obj in objects:
        by_kind.setdefault(Kind.parse(obj.get("apiVersion", ""), obj["kind"]), []).append(obj)
    return by_kind


Wakes = Mapping[Any, Wake | None]
"""Kinds whose changes may make a refused pod schedulable, each with a function that looks at one change, or None."""
_LISTENED = {"v1/Pod": POD, "v1/Node": NODE, **LOOKUPS}
"""The kinds that every scheduler follows, with the names of their events."""
_HINT_ARGUMENTS = 3


def event_kind(kind: KindLike) -> str:
    """Return the name of the events of a kind."""
    named = kind_from(kind)
    known = _LISTENED.get(f"{named.api_version}/{named.name}")
    return known or (f"{named.name}.{named.group}" if named.group else named.name)


def is_followed(kind: KindLike) -> bool:
    """Return whether every scheduler follows a kind, so that its events come without more."""
    named = kind_from(kind)
    return f"{named.api_version}/{named.name}" in _LISTENED


def registrations_of(wakes: Wakes, runtime: SchedulerRuntime) -> list[EventRegistration]:
    """Return the events that wake a pod: those of `wakes`, and changes of the pod itself."""
    own = EventRegistration(POD, ActionType.ALL & ~ActionType.DELETE, is_own_update)
    return [own, *(_registration(kind, wake, runtime) for kind, wake in wakes.items())]


def _registration(kind: Any, wake: Wake | None, runtime: SchedulerRuntime) -> EventRegistration:
    if wake is None:
        return EventRegistration(event_kind(kind), ActionType.ALL)
    function = wake
    takes_context = parameter_count(function) > _HINT_ARGUMENTS

    def hint(pod: Pod, event: ClusterEvent) -> bool:
        arguments = (pod, _seen(kind, event.old, runtime), _seen(kind, event.new, runtime))
        return bool(function(*arguments, SchedulerContext(runtime, {})) if takes_context else function(*arguments))

    return EventRegistration(event_kind(kind), ActionType.ALL, hint)


def _seen(kind: Any, value: Any, runtime: SchedulerRuntime) -> Any:
    """Return one side of an event as the author's function expects it."""
    if isinstance(value, Snapshot):
        known = runtime.caches.get(kind_from(kind))
        if known is not None and known.snapshot(value.key) is value:
            return runtime.read(kind, value, value.key)
        return typed(kind, value.object)
    if isinstance(value, tuple) and runtime.state is not None:  # The arrays of nodes, and the place of one.
        return NodeView(runtime.state, value[1])
    return typed(kind, value) if isinstance(value, dict) else value
