"""Keep a cache of one kind equal to the server's state, and report every change: one watch for all users."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Unpack, assert_never, cast, overload

from pinnace.client.client import Client
from pinnace.client.credentials import NoCredentials
from pinnace.client.following import Event, Followed, FollowError, Progress, Restarted, Synced
from pinnace.client.mapping import KindLike, KindName, NoSuchKind, ServedKind, kind_from
from pinnace.client.reading import Selection
from pinnace.client.snapshots import Snapshot, snapshot_of
from pinnace.client.transport import ConnectionLost
from pinnace.client.typed import Stored
from pinnace.model import errors, selectors
from pinnace.model.objects import AnyObject, Key, Kind, TypedObject
from pinnace.model.typed_objects import ObjectMeta
from pinnace.process.supervisor import Supervise, run_unsupervised
from pinnace.process.tasks import StopRequested
from pinnace.process.work_slices import Turns
from pinnace.reconcile.cache import Cache

if TYPE_CHECKING:
    from pinnace.reconcile.shards import Shards

Handler = Callable[[Snapshot[TypedObject] | None, Snapshot[TypedObject] | None], None]
"""Called with the old and the new state: old is None for a new object, new for a deleted one. It must not wait."""

LastChange = Callable[[Kind], int | None]
"""Returns the revision of the last change of a kind; None if it is not known. Only a server in this process has it."""


class EmptyKind(NamedTuple):
    """A kind without objects, as a server in this process knows it."""

    revision: int
    namespaced: bool
    changed: asyncio.Event
    """Set at the first change."""


FindEmpty = Callable[[Kind], EmptyKind | None]

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.05
_ATTEMPTS = 10


class InformerScope(NamedTuple):
    """The objects that an informer follows. Users of the same scope share one informer."""

    kind: Kind
    namespace: str = ""
    labels: str = ""
    fields: str = ""
    metadata_only: bool = False
    is_sharded: bool = False
    """Whether it has the objects of the shards of this process alone."""


@dataclass(slots=True)
class _OwnWrite(Generic[TypedObject]):
    """An object that this process has written and the watch has not reported yet."""

    reported: Snapshot[TypedObject] | None
    """The last state that the watch has reported."""
    version: str
    """The version that was written; empty if it was deleted."""


class Informer(Generic[TypedObject]):
    """A cache that follows one scope. It never returns an object older than this process' own last write of it."""

    def __init__(self, client: Client, scope: InformerScope, shards: Shards | None = None) -> None:
        """`shards` are those of the process, for a scope that is sharded."""
        self.scope = scope
        self.cache: Cache[TypedObject] = Cache()
        self.version = ""
        """Everything up to this version is in the cache."""
        self.namespaced: bool | None = None
        """Whether the kind is namespaced; None until discovery has answered."""
        self.error: Exception | None = None
        """The reason that the server cannot be followed now."""
        self.received = 0
        """The number of events so far."""
        self.is_required = True
        """Whether the process begins its work only once this cache is full."""
        self._failures = 0
        """The errors that the server has answered so far."""
        self.is_behind = False
        """Whether the last `catch_up` has found changes that the watch has not reported, and waits for them."""
        self._client = client
        self._handlers: list[Handler[TypedObject]] = []
        self._synced = asyncio.Event()
        self._news = asyncio.Event()
        self._nudge = asyncio.Event()
        self._own: dict[Key, _OwnWrite[TypedObject]] = {}
        self._unseen: set[Key] | None = None
        self._selects = selectors.label_selector(scope.labels) if scope.labels else None
        self._shards = shards if scope.is_sharded else None
        self._followed: frozenset[int] = frozenset()
        """The shards that are followed now."""
        self._listed: frozenset[int] = frozenset()
        """Those of them whose objects have been listed."""
        self._is_moved = asyncio.Event()
        if self._shards is not None:
            self._shards.on_change(self._change_shards)

    @property
    def is_synced(self) -> bool:
        return self._synced.is_set()

    async def synced(self) -> None:
        """Return when the cache has all existing objects."""
        await self._synced.wait()

    def on_change(self, handler: Handler[TypedObject]) -> Callable[[], None]:
        """Call `handler` for all known objects, then for every change; return a function that ends that."""
        self._handlers.append(handler)
        for snapshot in self.cache.snapshots():
            self._notify_one(handler, None, snapshot)

        def leave() -> None:
            with contextlib.suppress(ValueError):
                self._handlers.remove(handler)

        return leave

    async def run(self, find_empty: FindEmpty | None = None) -> None:
        """Follow the scope until cancelled; a kind without objects from its first change on, if that is known."""
        scope = self.scope
        empty = find_empty(scope.kind) if find_empty is not None and not len(self.cache) else None
        if empty is not None:
            self.namespaced = empty.namespaced
            self._finish_list(str(empty.revision))
            self._synced.set()
            self.received += 1
            self._news.set()
            await empty.changed.wait()
        if self._shards is None:
            await self._follow()
            return
        await self._shards.ready.wait()
        while True:
            self._is_moved.clear()
            await self._follow_shards()

    async def _follow(self, shards: str = "") -> None:
        scope = self.scope
        events = self._client.follow(
            scope.kind,
            namespace=scope.namespace,
            labels=scope.labels,
            fields=scope.fields,
            metadata_only=scope.metadata_only,
            shards=shards,
            nudge=self._nudge,
        )
        turns = Turns()
        async with aclosing(events):
            async for event in events:
                await turns.pause()  # Handlers read each object, and several large ones may have come at once.
                await self._receive(event)
                del event  # It may be large, and the next one may be long in coming.

    # Shards

    async def _follow_shards(self) -> None:
        """Follow the shards that this process has now, until its shards change."""
        assert self._shards is not None
        self._followed = self._shards.held
        if not self._shards.held:
            self._finish_list("")
            self._synced.set()
            self.received += 1
            self._news.set()
            await self._is_moved.wait()
            return
        async with asyncio.TaskGroup() as group:
            following = group.create_task(self._follow(str(self._shards.selector)))
            await self._is_moved.wait()
            following.cancel()

    def _change_shards(self) -> None:
        """Drop the objects of shards that another process takes over, and follow those that are left or new."""
        assert self._shards is not None
        for key, snapshot in list(self._reported_objects()):
            if self.has_left(snapshot):
                self._own.pop(key, None)
                self._remove(snapshot)
        for key in list(self._own):  # The objects that this process has written and the watch has not reported.
            written = self.cache.snapshot(key)
            if written is not None and self.has_left(written):
                del self._own[key]
                self.cache.remove(key)
        self._listed &= self._shards.held
        self._is_moved.set()

    def has_left(self, snapshot: Snapshot[Any]) -> bool:
        """Whether an object belongs to a shard of another process."""
        return self._shards is not None and not self._shards.holds(snapshot.metadata["uid"])

    def is_initial(self, snapshot: Snapshot[TypedObject]) -> bool:
        """Whether an object that is reported now has existed before it was followed."""
        if self._shards is None or self._unseen is None or not self.is_synced:
            return not self.is_synced
        return self._shards.shard_of(snapshot.metadata["uid"]) not in self._listed

    async def catch_up(self, last_change: LastChange | None = None) -> None:
        """Return when the cache has everything that the server had when this was called.

        For tests: it lists, unless `last_change` says that the watch has reported everything. It gives up where the
        server answers attempt after attempt with an error, as after the end of a conversion webhook: like other
        delayed work, the next attempt waits for the clock.
        """
        failures = self._failures
        try:
            while True:
                received = self.received
                if self.is_synced and (
                    self._has_seen(last_change) or self._failures - failures >= _ATTEMPTS or await self._has_caught_up()
                ):
                    self.is_behind = False
                    return
                self.is_behind = True
                if self.received == received:
                    self._nudge.set()  # The watch may have ended, also without an error: the clock may stand still.
                    self._news.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_POLL_SECONDS):  # In Python 3.11 wait_for may lose a cancellation.
                            await self._news.wait()
        finally:
            self._nudge.clear()

    # Events of the watch

    async def _receive(self, event: Followed) -> None:
        match event:
            case Event(type, received):
                snapshot = cast("Snapshot[TypedObject]", received)
                if self._shards is not None and type != "BOOKMARK" and self.has_left(snapshot):
                    return  # The server cannot filter by shards, or the object has just left.
                if self._unseen is not None:
                    self._unseen.discard(snapshot.key)
                if type == "DELETED":
                    self._remove(snapshot)
                else:
                    self._put(snapshot)
                if self._unseen is None:
                    self.version = snapshot.version
                self.error = None
            case Restarted():
                self._unseen = {key for key, _ in self._reported_objects()}
            case Synced(version):
                with contextlib.suppress(errors.ApiError, ConnectionLost, NoCredentials):
                    self.namespaced = (await self._client.kinds.find(self.scope.kind)).namespaced
                self._finish_list(version)
                self._listed = self._followed
                self._synced.set()
                if version:  # Without one the kind is not served.
                    self.error = None
            case Progress(version):
                self.version = version
                self.error = None
            case FollowError(error):
                self._log_error(error)
            case _:
                assert_never(event)
        self.received += not isinstance(event, Restarted | FollowError)  # These change nothing in the cache.
        self._news.set()

    def _put(self, new: Snapshot[TypedObject]) -> None:
        own = self._own.get(new.key)
        if own is None:
            old = self.cache.snapshot(new.key)
            self.cache.put(new)
        else:
            old = own.reported
            if own.version and not is_older(new.version, own.version):
                del self._own[new.key]
                cached = self.cache.snapshot(new.key)
                if cached is not None and cached.version == new.version:
                    # The own write itself: its facts and index entries are known already. In the server's process the
                    # watch shares its bytes with the server.
                    cached.body = new.body
                    new = cached
                else:
                    self.cache.put(new)
            else:
                own.reported = new
        if old is None or old.version != new.version or not new.version:
            self._notify(old, new)

    def _remove(self, last: Snapshot[TypedObject]) -> None:
        own = self._own.get(last.key)
        if own is None:
            was_there = last.key in self.cache
            self.cache.remove(last.key)
        else:
            was_there = own.reported is not None
            if own.version and is_older(last.version, own.version):
                own.reported = None  # This process has created it again since.
            else:
                del self._own[last.key]
                self.cache.remove(last.key)
        if was_there:
            self._notify(last, None)

    def _finish_list(self, version: str) -> None:
        unseen, self._unseen = self._unseen or set(), None
        reported = dict(self._reported_objects())
        for key in unseen:
            last = reported[key]
            self._remove(Snapshot(last.body, key, version))
        for key, own in list(self._own.items()):
            if own.version and is_older(version, own.version):
                continue  # Written after the list: the watch will report it.
            del self._own[key]
            if own.reported is None:
                self.cache.remove(key)
            else:
                self.cache.put(own.reported)
        self.version = version

    def _reported_objects(self) -> Iterator[tuple[Key, Snapshot[TypedObject]]]:
        """Yield the objects as the watch has reported them, without own writes that are ahead of it."""
        for snapshot in self.cache.snapshots():
            if snapshot.key not in self._own:
                yield snapshot.key, snapshot
        for key, own in self._own.items():
            if own.reported is not None:
                yield key, own.reported

    def _log_error(self, error: Exception) -> None:
        """Log an error with its remedy; a repeated one only at level debug."""
        scope = self.scope
        is_new = str(error) != str(self.error)
        self._failures += isinstance(error, errors.InternalError)
        self.error = error
        is_gone = isinstance(error, errors.NotFound | errors.NoSuchPath)
        if is_gone and scope.metadata_only:
            is_new = False  # It follows whatever kinds there are: discovery tells its owner that this one is gone.
        hint = ""
        if isinstance(error, errors.MethodNotAllowed | errors.BadMethod):
            hint = "; the kind cannot be watched: read it through the client, for example in a timer"
        elif isinstance(error, errors.Forbidden):
            plural = error.details.get("kind") or scope.kind.name.lower() + "s"
            hint = (
                f'; allow it with the rule {{apiGroups: ["{scope.kind.group}"], resources: ["{plural}"], '
                'verbs: ["list", "watch"]}'
            )
        elif is_gone and not isinstance(error, NoSuchKind):
            hint = "; the kind is not served any more: was its definition deleted?"
        _log.log(
            logging.WARNING if is_new else logging.DEBUG,
            "cannot watch %s of %s now: %s%s",
            scope.kind.name,
            scope.kind.api_version,
            error,
            hint,
        )

    # Own writes

    def note_write(self, key: Key, answer: AnyObject, encoded: bytes = b"") -> None:
        """Put an object that this process has just written into the cache before the watch reports it.

        `encoded` is the answer as the server sent it, if it is at hand.
        """
        if not self.is_synced or (self.scope.namespace and key.namespace != self.scope.namespace):
            return
        if answer.get("kind") == "Status":
            self._note_deletion(key, (answer.get("details") or {}).get("uid"))
            return
        metadata = answer["metadata"]
        if _is_finalized(metadata):
            # The write that removes the last finalizer returns the former version: the object is never stored again.
            self._note_deletion(key, metadata.get("uid"))
            return
        version = metadata.get("resourceVersion", "")
        if not version.isdigit() or not is_older(self.version, version):
            return  # The watch has reported it already, and maybe its deletion.
        cached = self.cache.snapshot(key)
        if self._shards is not None and not self._shards.holds(metadata.get("uid", "")):
            return
        if not self._is_selected(metadata, cached) or (cached is not None and not is_older(cached.version, version)):
            return
        own = self._own.get(key)
        self._own[key] = _OwnWrite(own.reported if own is not None else cached, version)
        if self.scope.metadata_only:
            answer = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
            encoded = b""
        written = Snapshot(encoded, key, version) if encoded else snapshot_of(answer)
        self.cache.put(cast("Snapshot[TypedObject]", written))

    def _note_deletion(self, key: Key, uid: str | None) -> None:
        cached = self.cache.snapshot(key)
        if cached is None or (uid and cached.metadata.get("uid") != uid):
            return
        own = self._own.get(key)
        self._own[key] = _OwnWrite(own.reported if own is not None else cached, "")
        self.cache.remove(key)

    def _is_selected(self, metadata: ObjectMeta, cached: Snapshot[TypedObject] | None) -> bool:
        if self._selects is not None and not self._selects.matches(metadata.get("labels") or {}):
            return False
        return not self.scope.fields or cached is not None  # Only the server can evaluate field selectors.

    # Handlers

    def _notify(self, old: Snapshot[TypedObject] | None, new: Snapshot[TypedObject] | None) -> None:
        for handler in list(self._handlers):
            self._notify_one(handler, old, new)

    def _notify_one(
        self, handler: Handler[TypedObject], old: Snapshot[TypedObject] | None, new: Snapshot[TypedObject] | None
    ) -> None:
        try:
            handler(old, new)
        except StopRequested:
            raise
        except BaseException:  # SystemExit, or CancelledError out of a function that does not wait.
            # One failing handler must not stop the others, nor the watch.
            _log.exception("a handler of %s failed", self.scope.kind.name)

    def _has_seen(self, last_change: LastChange | None) -> bool:
        """Whether the watch has reported the last change. False for a part of a kind after a change elsewhere."""
        last = last_change(self.scope.kind) if last_change is not None else None
        return last is not None and self._unseen is None and self.version.isdigit() and int(self.version) >= last

    async def _has_caught_up(self) -> bool:
        listed: dict[Key, str] = {}
        version = ""
        if self._shards is not None and not self._shards.held:
            return not len(self.cache)
        scope = self.scope
        pages = self._client.snapshots(
            scope.kind,
            namespace=scope.namespace,
            labels=scope.labels,
            fields=scope.fields,
            metadata_only=True,
            shards=str(self._shards.selector) if self._shards is not None else "",
        )
        try:
            async for page, page_version in pages:
                version = page_version
                listed.update((snapshot.key, snapshot.version) for snapshot in page if not self.has_left(snapshot))
        except errors.NoSuchPath:
            return not len(self.cache)
        except errors.InternalError as failure:
            _log.debug("cannot compare the cache of %s with the server: %s", scope.kind.name, failure)
            return False
        finally:
            await pages.aclose()
        reported = {key: snapshot.version for key, snapshot in self._reported_objects()}
        return all(key in reported and not is_older(reported[key], listed[key]) for key in listed) and all(
            key in listed or is_older(version, reported[key]) for key in reported
        )


class Informers:
    """The informers of one process, one for each scope."""

    def __init__(
        self, client: Client, *, supervise: Supervise = run_unsupervised, shards: Shards | None = None
    ) -> None:
        self._client = client
        self.shards = shards
        """The shards of this process, to which `own` limits informers."""
        self._supervise = supervise
        self._informers: dict[InformerScope, Informer[Any]] = {}
        self._by_kind: dict[Kind, list[Informer[Any]]] = {}
        self._tasks: dict[InformerScope, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self.find_empty: FindEmpty | None = None
        """The last change of a kind in a server of this process: kinds without objects need no watch."""

    @overload
    def get(self, kind: type[Stored], **selection: Unpack[Selection]) -> Informer[Stored]: ...
    @overload
    def get(self, kind: KindName, **selection: Unpack[Selection]) -> Informer: ...
    def get(self, kind: KindLike, **selection: Unpack[Selection]) -> Informer[Any]:
        """Return the informer of a kind, or of some of its objects."""
        return self.of(InformerScope(kind_from(kind), **selection))

    def of(self, scope: InformerScope) -> Informer:
        """Return the informer of a scope; create and start it if there is none yet."""
        informer = self._informers.get(scope)
        if informer is None:
            informer = self._informers[scope] = Informer(self._client, scope, self.shards)
            self._by_kind.setdefault(scope.kind, []).append(informer)
            if self._group is not None:
                self._tasks[scope] = self._group.create_task(self._follow(informer))
        return informer

    def own(self, scope: InformerScope) -> Informer:
        """Return the informer of objects that this process handles: those of its shards, if it has any."""
        return self.of(scope._replace(is_sharded=True) if self.shards is not None else scope)

    def of_metadata(self, kind: KindName) -> Informer:
        """Return an informer whose objects have at least their metadata: one of whole objects if there is one."""
        known = self._informers.get(InformerScope(kind_from(kind)))
        return known if known is not None else self.get(kind, metadata_only=True)

    def drop(self, informer: Informer[Any]) -> None:
        """Stop following a scope that is no longer needed."""
        dropped = self._informers.pop(informer.scope, None)
        if dropped is not None:
            self._by_kind[informer.scope.kind].remove(dropped)
        task = self._tasks.pop(informer.scope, None)
        if task is not None:
            task.cancel()

    def note_write(self, served: ServedKind, key: Key, answer: AnyObject, encoded: bytes) -> None:
        for informer in self._by_kind.get(served.kind, ()):
            informer.note_write(key, answer, encoded)

    async def synced(self) -> None:
        for informer in list(self):
            if informer.is_required:
                await informer.synced()

    async def run(self) -> None:
        """Follow every scope, also those that are added later, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for scope, informer in self._informers.items():
                    self._tasks[scope] = group.create_task(self._follow(informer))
                await asyncio.get_running_loop().create_future()  # A group ends when it has no tasks; this one waits.
        finally:
            self._group = None
            self._tasks.clear()

    async def _follow(self, informer: Informer[Any]) -> None:
        kind = informer.scope.kind
        run = informer.run if self.find_empty is None else partial(informer.run, self.find_empty)
        await self._supervise(f"informer/{kind.api_version}/{kind.name}", run)

    def __iter__(self) -> Iterator[Informer]:
        return iter(list(self._informers.values()))


def _is_finalized(metadata: ObjectMeta) -> bool:
    """Return whether nothing holds an object that is being deleted: no finalizer and no grace period."""
    return bool(
        metadata.get("deletionTimestamp")
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
    )


def is_older(version: str, other: str) -> bool:
    """Return whether a resource version comes before another. They are growing numbers: 9 comes before 10."""
    return (len(version), version) < (len(other), other)
