"""Keeps a cache of one kind like the server's own state, and tells of every change: one watch, however many users."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import NamedTuple, TypedDict, Unpack, assert_never

from pinnace.client.client import Client
from pinnace.client.credentials import NoCredentials
from pinnace.client.following import Event, Followed, Progress, Restarted, Synced, Trouble
from pinnace.client.mapping import KindName, ServedKind, kind_from
from pinnace.client.snapshots import Snapshot, snapshot_of
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors, selectors
from pinnace.model.objects import Key, Kind, Object
from pinnace.reconcile.cache import Cache
from pinnace.reconcile.supervision import Supervise, run_unsupervised

Handler = Callable[[Snapshot | None, Snapshot | None], None]
"""Told of each change: old and new. Old is None for what is new; new is None for what is gone. Must not wait."""

_log = logging.getLogger(__name__)
_PATIENCE = 0.05


class Selection(TypedDict, total=False):
    """Which objects of a kind are meant: all of them, where nothing is said."""

    namespace: str
    labels: str
    fields: str
    metadata_only: bool


class Scope(NamedTuple):
    """Which objects: informers of equal scope are one."""

    kind: Kind
    namespace: str = ""
    labels: str = ""
    fields: str = ""
    metadata_only: bool = False


@dataclass(slots=True)
class _OwnWrite:
    """An object that this process has written, of which the watch has not told yet."""

    told: Snapshot | None
    """What the watch has told last."""
    version: str
    """The version that was written; empty if it was deleted."""


class Informer:
    """A cache that follows one scope. It never shows an object older than this process' own last write of it."""

    def __init__(self, client: Client, scope: Scope) -> None:
        self.scope = scope
        self.cache = Cache()
        self.version = ""
        """Everything up to this version is in the cache."""
        self.namespaced: bool | None = None
        """Whether the kind lives in namespaces; None as long as the server has not said."""
        self.trouble: Exception | None = None
        """Why the server cannot be followed at this moment."""
        self.heard = 0
        """Grows with everything that comes."""
        self._client = client
        self._handlers: list[Handler] = []
        self._synced = asyncio.Event()
        self._news = asyncio.Event()
        self._nudge = asyncio.Event()
        self._own: dict[Key, _OwnWrite] = {}
        self._unseen: set[Key] | None = None
        self._selects = selectors.label_selector(scope.labels) if scope.labels else None

    @property
    def is_synced(self) -> bool:
        return self._synced.is_set()

    async def synced(self) -> None:
        """Return when the cache has all that exists."""
        await self._synced.wait()

    def on_change(self, handler: Handler) -> Callable[[], None]:
        """Tell `handler` of all that is known, then of every change; returns what ends that."""
        self._handlers.append(handler)
        for snapshot in self.cache.snapshots():
            self._tell_one(handler, None, snapshot)

        def leave() -> None:
            with contextlib.suppress(ValueError):
                self._handlers.remove(handler)

        return leave

    async def run(self) -> None:
        """Follow the scope until cancelled."""
        scope = self.scope
        events = self._client.follow(
            scope.kind,
            namespace=scope.namespace,
            labels=scope.labels,
            fields=scope.fields,
            metadata_only=scope.metadata_only,
            nudge=self._nudge,
        )
        async with aclosing(events):
            async for event in events:
                await self._hear(event)

    async def catch_up(self) -> None:
        """Return when the cache has everything that the server had when this was called. For tests: it lists."""
        while True:
            heard = self.heard
            if self.is_synced and await self._is_level():
                return
            if self.heard == heard:
                if self.trouble is not None:
                    self._nudge.set()
                self._news.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), _PATIENCE)

    # What the watch tells

    async def _hear(self, event: Followed) -> None:
        match event:
            case Event(type, snapshot):
                if self._unseen is not None:
                    self._unseen.discard(snapshot.key)
                if type == "DELETED":
                    self._is_gone(snapshot)
                else:
                    self._is_there(snapshot)
                if self._unseen is None:
                    self.version = snapshot.version
                self.trouble = None
            case Restarted():
                self._unseen = {key for key, _ in self._told()}
            case Synced(version):
                with contextlib.suppress(errors.ApiError, ConnectionLost, NoCredentials):
                    self.namespaced = (await self._client.kinds.find(self.scope.kind)).namespaced
                self._finish_list(version)
                self._synced.set()
                if version:  # Without one the kind is not served.
                    self.trouble = None
            case Progress(version):
                self.version = version
                self.trouble = None
            case Trouble(error):
                self._complain(error)
            case _:
                assert_never(event)
        self.heard += 1
        self._news.set()

    def _is_there(self, new: Snapshot) -> None:
        own = self._own.get(new.key)
        if own is None:
            old = self.cache.snapshot(new.key)
            self.cache.put(new)
        else:
            old = own.told
            if own.version and not is_older(new.version, own.version):
                del self._own[new.key]
                self.cache.put(new)
            else:
                own.told = new
        if old is None or old.version != new.version or not new.version:
            self._tell(old, new)

    def _is_gone(self, last: Snapshot) -> None:
        own = self._own.get(last.key)
        if own is None:
            was_there = last.key in self.cache
            self.cache.remove(last.key)
        else:
            was_there = own.told is not None
            if own.version and is_older(last.version, own.version):
                own.told = None  # We have made it anew since.
            else:
                del self._own[last.key]
                self.cache.remove(last.key)
        if was_there:
            self._tell(last, None)

    def _finish_list(self, version: str) -> None:
        unseen, self._unseen = self._unseen or set(), None
        told = dict(self._told())
        for key in unseen:
            last = told[key]
            self._is_gone(Snapshot(last.body, key, version))
        for key, own in list(self._own.items()):
            if own.version and is_older(version, own.version):
                continue  # Written after the list was made: the watch will tell.
            del self._own[key]
            if own.told is None:
                self.cache.remove(key)
            else:
                self.cache.put(own.told)
        self.version = version

    def _told(self) -> Iterator[tuple[Key, Snapshot]]:
        """What the watch has told, without our own writes that are ahead of it."""
        for snapshot in self.cache.snapshots():
            if snapshot.key not in self._own:
                yield snapshot.key, snapshot
        for key, own in self._own.items():
            if own.told is not None:
                yield key, own.told

    def _complain(self, error: Exception) -> None:
        scope = self.scope
        is_new = str(error) != str(self.trouble)
        self.trouble = error
        hint = ""
        if isinstance(error, errors.MethodNotAllowed | errors.BadMethod):
            hint = "; nobody tells when it changes: read it through the client, in a timer for instance"
        elif isinstance(error, errors.Forbidden):
            plural = error.details.get("kind") or scope.kind.name.lower() + "s"
            hint = (
                f'; allow it with the rule {{apiGroups: ["{scope.kind.group}"], resources: ["{plural}"], '
                'verbs: ["list", "watch"]}'
            )
        _log.log(
            logging.WARNING if is_new else logging.DEBUG,
            "%s of %s cannot be followed at this moment: %s%s",
            scope.kind.name,
            scope.kind.api_version,
            error,
            hint,
        )

    # Our own writes

    def note_write(self, key: Key, answer: Object) -> None:
        """Show what this process has just written, although the watch has not told of it yet."""
        if not self.is_synced or (self.scope.namespace and key.namespace != self.scope.namespace):
            return
        if answer.get("kind") == "Status":
            self._note_deletion(key, (answer.get("details") or {}).get("uid"))
            return
        metadata = answer["metadata"]
        if _is_let_go(metadata):
            # The write that takes off the last finalizer is answered with the version from before: it is never stored.
            self._note_deletion(key, metadata.get("uid"))
            return
        version = metadata.get("resourceVersion", "")
        if not version.isdigit() or not is_older(self.version, version):
            return  # The watch has told of it already, and maybe of its end.
        cached = self.cache.snapshot(key)
        if not self._is_selected(metadata, cached) or (cached is not None and not is_older(cached.version, version)):
            return
        own = self._own.get(key)
        self._own[key] = _OwnWrite(own.told if own is not None else cached, version)
        if self.scope.metadata_only:
            answer = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        self.cache.put(snapshot_of(answer))

    def _note_deletion(self, key: Key, uid: str | None) -> None:
        cached = self.cache.snapshot(key)
        if cached is None or (uid and cached.metadata.get("uid") != uid):
            return
        own = self._own.get(key)
        self._own[key] = _OwnWrite(own.told if own is not None else cached, "")
        self.cache.remove(key)

    def _is_selected(self, metadata: Object, cached: Snapshot | None) -> bool:
        if self._selects is not None and not self._selects.matches(metadata.get("labels") or {}):
            return False
        return not self.scope.fields or cached is not None  # Fields only the server can judge.

    # Telling

    def _tell(self, old: Snapshot | None, new: Snapshot | None) -> None:
        for handler in list(self._handlers):
            self._tell_one(handler, old, new)

    def _tell_one(self, handler: Handler, old: Snapshot | None, new: Snapshot | None) -> None:
        try:
            handler(old, new)
        except Exception:
            # One bad handler must not stop the others, nor the watch.
            _log.exception("a handler of %s failed", self.scope.kind.name)

    async def _is_level(self) -> bool:
        scope = self.scope
        listed: dict[Key, str] = {}
        version = ""
        pages = self._client.snapshots(
            scope.kind, namespace=scope.namespace, labels=scope.labels, fields=scope.fields, metadata_only=True
        )
        try:
            async for page, page_version in pages:
                version = page_version
                listed.update((snapshot.key, snapshot.version) for snapshot in page)
        except errors.NoSuchPath:
            return not len(self.cache)
        finally:
            await pages.aclose()
        told = {key: snapshot.version for key, snapshot in self._told()}
        return all(key in told and not is_older(told[key], listed[key]) for key in listed) and all(
            key in listed or is_older(version, told[key]) for key in told
        )


class Informers:
    """The informers of one process, each shared by all who ask for its scope."""

    def __init__(self, client: Client, *, supervise: Supervise = run_unsupervised) -> None:
        self._client = client
        self._supervise = supervise
        self._informers: dict[Scope, Informer] = {}
        self._tasks: dict[Scope, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    def get(self, kind: KindName, **selection: Unpack[Selection]) -> Informer:
        """The informer of a kind, or of some of its objects."""
        return self.of(Scope(kind_from(kind), **selection))

    def of(self, scope: Scope) -> Informer:
        """The informer of a scope, made and started where it is not there yet."""
        found = self._informers.get(scope)
        if found is None:
            found = self._informers[scope] = Informer(self._client, scope)
            if self._group is not None:
                self._tasks[scope] = self._group.create_task(self._follow(found))
        return found

    def drop(self, informer: Informer) -> None:
        """Stop following a scope that nobody needs any more."""
        self._informers.pop(informer.scope, None)
        task = self._tasks.pop(informer.scope, None)
        if task is not None:
            task.cancel()

    def note_write(self, served: ServedKind, key: Key, answer: Object) -> None:
        for scope, informer in self._informers.items():
            if scope.kind == served.kind:
                informer.note_write(key, answer)

    async def synced(self) -> None:
        for informer in list(self):
            await informer.synced()

    async def run(self) -> None:
        """Follow every scope, those that are asked for later too, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for scope, informer in self._informers.items():
                    self._tasks[scope] = group.create_task(self._follow(informer))
                await asyncio.get_running_loop().create_future()  # A group ends when it has no tasks; this one waits.
        finally:
            self._group = None
            self._tasks.clear()

    async def _follow(self, informer: Informer) -> None:
        kind = informer.scope.kind
        await self._supervise(f"informer/{kind.api_version}/{kind.name}", informer.run)

    def __iter__(self) -> Iterator[Informer]:
        return iter(list(self._informers.values()))


def _is_let_go(metadata: Object) -> bool:
    """Whether an object is being deleted and nothing holds it any more: no finalizer, and no time to end gracefully."""
    return bool(
        metadata.get("deletionTimestamp")
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
    )


def is_older(version: str, other: str) -> bool:
    """Whether a resource version comes before another. They are numbers that grow: 9 comes before 10."""
    return (len(version), version) < (len(other), other)
