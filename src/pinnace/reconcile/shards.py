"""Shards: several equal processes share the objects of an operator, each object with one process at a time.

A Lease for each shard says which process has it; only that process handles the objects of the shard. A Lease for each
process says that it lives: all of them compute the same assignment from that. A process takes the shards that are
assigned to it as soon as they are free, and releases others when its last call for their objects has ended.

    shards = Shards(client, "website-controller", 4)
    manager = Manager(client, name="website-controller", shards=shards)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, partial

from pinnace.client.client import Client
from pinnace.client.credentials import NoCredentials
from pinnace.client.following import Event, Restarted, Synced
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.model.shards import UID, ShardSelector, hash_of, split_hashes
from pinnace.process.clock import Alarm, to_rfc3339_micro
from pinnace.process.tasks import contain
from pinnace.reconcile.deadlines import StopDeadline, deadline
from pinnace.reconcile.leader import LeaderElection, Terms, WorkGoesOn

MOST_SHARDS = 64

_log = logging.getLogger(__name__)
_LEASE = "coordination.k8s.io/v1/Lease"
_GROUP = "pinnace.dev/sharded"
"""The label of all Leases of one operator: its name."""
_COUNT = "pinnace.dev/shards"
"""The label with the number of shards."""
_MEMBER = "pinnace.dev/member"
"""The label of the Leases of processes."""
_SINCE = "pinnace.dev/since"
"""The label with the resource version at which the Lease of a process was created."""
_FORGOTTEN = 4
"""The Lease of a process that is silent for so many lease durations is deleted."""
_FAILURES = (errors.ApiError, ConnectionLost, NoCredentials, TimeoutError)

_current: ContextVar[tuple[Shards, int] | None] = ContextVar("the shard whose object is being handled", default=None)


@dataclass(slots=True)
class _SeenLease:
    """A Lease of the operator, and when its last change was seen: clocks of other machines may be wrong."""

    lease: Object
    seen: float

    @property
    def holder(self) -> str:
        return str((self.lease.get("spec") or {}).get("holderIdentity") or "")

    @property
    def until(self) -> float:
        return self.seen + float((self.lease.get("spec") or {}).get("leaseDurationSeconds") or 0)

    @property
    def labels(self) -> dict[str, str]:
        labels: dict[str, str] = self.lease["metadata"].get("labels") or {}
        return labels

    @property
    def created(self) -> int:
        """The resource version at which the Lease of a process was created: its first update adds the label."""
        return int(self.labels.get(_SINCE) or self.lease["metadata"]["resourceVersion"])


class Shards:
    """The shards of one process: those that it holds, and the Leases by which it takes and gives them."""

    def __init__(
        self, client: Client, name: str, count: int, *, namespace: str = "", terms: Terms | None = None
    ) -> None:
        check_count(name, count)
        self.count = count
        self.held: frozenset[int] = frozenset()
        """The numbers of the shards whose objects this process handles now."""
        self.ready = asyncio.Event()
        """Set when every shard that is assigned to this process is held by it, or by another that has to end first."""
        self._client = client
        self._clock = client.clock
        self._name = name
        self._namespace = namespace or client.namespace
        self._terms = terms or Terms()
        self._ranges = split_hashes(count)
        self._bounds = [range_.start for range_ in self._ranges]
        self._labels = {_GROUP: name, _COUNT: str(count)}
        self.member = f"{name}-member-{uuid.uuid4().hex[:10]}"
        """The name of this process and of its Lease."""
        self._names = [f"{name}-shard-{number}-of-{count}" for number in range(count)]
        self._elections = [
            LeaderElection(client, lease, namespace=namespace, identity=self.member, terms=terms, labels=self._labels)
            for lease in self._names
        ]
        self._leases: dict[str, _SeenLease] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._leaving: set[int] = set()
        self._working: dict[int, dict[asyncio.Task[object], int]] = {number: {} for number in range(count)}
        self._ended = asyncio.Event()
        self._news = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []
        self._alarm: Alarm | None = None

    # The objects of the shards

    def shard_of(self, uid: str) -> int:
        return bisect_right(self._bounds, hash_of(uid)) - 1

    def holds(self, uid: str) -> bool:
        """Whether this process handles the object with this uid."""
        return self.shard_of(uid) in self.held

    @property
    def selector(self) -> ShardSelector:
        """Selects the objects of the held shards."""
        return ShardSelector(UID, tuple(self._ranges[number] for number in sorted(self.held)))

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back when `held` has changed."""
        self._listeners.append(callback)

    @contextmanager
    def working(self, uid: str) -> Iterator[bool]:
        """Handle an object within the block, if it yields True. Its shard is not released before the block ends.

        Writes within the block stop when the Lease of the shard is lost.
        """
        number = self.shard_of(uid)
        task = asyncio.current_task()
        if number not in self.held or task is None:
            yield False
            return
        tasks = self._working[number]
        tasks[task] = tasks.get(task, 0) + 1
        token = _current.set((self, number))
        try:
            yield True
        finally:
            _current.reset(token)
            tasks[task] -= 1
            if not tasks[task]:
                del tasks[task]
            self._ended.set()

    def check(self) -> None:
        """Raise LeaseLost for a write on behalf of an object whose shard this process no longer has for sure."""
        current = _current.get()
        if current is not None and current[0] is self:
            self._elections[current[1]].check()

    # The Leases

    async def run(self) -> None:
        """Take and give shards until cancelled; then give all back, when the calls for their objects have ended."""
        try:
            async with asyncio.TaskGroup() as group:
                await self._announce()
                group.create_task(contain(self._stay_announced))
                group.create_task(contain(self._watch))
                while True:
                    await self._news.wait()
                    self._news.clear()
                    self._assign(group)
        finally:
            if self._alarm is not None:
                self._alarm.cancel()
            await StopDeadline(self._clock).run(f"the lease {self.member}", self._withdraw)

    def _assign(self, group: asyncio.TaskGroup) -> None:
        """Begin to take the shards that are assigned to this process, and to give others."""
        now = self._clock.monotonic()
        wanted = self._wanted(now)
        if wanted is None:
            return
        for number in wanted - self._tasks.keys():
            lead = partial(self._elections[number].lead, partial(self._hold, number))
            self._tasks[number] = task = group.create_task(contain(lead), name=f"{self._name} shard {number}")
            task.add_done_callback(partial(self._forget, number))
        for number in self._tasks.keys() - wanted - self._leaving:
            self._leaving.add(number)
            self._tasks[number].cancel()
        live = {name: lease for name, lease in self._leases.items() if lease.holder and lease.until > now}
        if all(number in self.held or self._is_anothers(live.get(self._names[number])) for number in wanted):
            self.ready.set()
        self._wake_at(min((lease.until for lease in live.values()), default=0.0))

    def _is_anothers(self, lease: _SeenLease | None) -> bool:
        return lease is not None and lease.holder != self.member

    def _forget(self, number: int, task: asyncio.Task[None]) -> None:
        if self._tasks.get(number) is task:
            del self._tasks[number]
            self._leaving.discard(number)
            self._news.set()

    def _wanted(self, now: float) -> set[int] | None:
        """Return the shards that are assigned to this process; None while its own Lease is not seen."""
        live = [lease for lease in self._leases.values() if lease.holder and lease.until > now]
        members = [lease for lease in live if _MEMBER in lease.labels]
        if not any(lease.holder == self.member for lease in members):
            return None
        # Ranges of different numbers of shards overlap: during an update all processes keep to the number that is used.
        number = str(self.count)
        used = {lease.labels.get(_COUNT) for lease in live if _MEMBER not in lease.labels}
        chosen = used or {min(members, key=lambda lease: lease.created).labels.get(_COUNT)}
        if chosen != {number}:
            return set()
        equal = tuple(sorted(lease.holder for lease in members if lease.labels.get(_COUNT) == number))
        return {shard for shard, member in assign(self.count, equal).items() if member == self.member}

    async def _hold(self, number: int) -> None:
        """Handle the objects of a shard until cancelled."""
        if number in self._leaving:
            return
        self._change(self.held | {number})
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._change(self.held - {number})
            await self._finish(number)

    def _change(self, held: frozenset[int]) -> None:
        self.held = held
        _log.info("%s has %d of %d shards of %s", self.member, len(held), self.count, self._name)
        for listener in self._listeners:
            listener()
        self._news.set()

    async def _finish(self, number: int) -> None:
        """Return when no call for an object of the shard is running. Cancel them if the Lease is lost.

        This is not cancelled itself: the Lease must not be released earlier.
        """
        tasks, end, alarm = self._working[number], 0.0, None
        try:
            while tasks:
                if not self._elections[number].is_leader and alarm is None:
                    for task in list(tasks):
                        task.cancel()
                    end = self._clock.monotonic() + self._terms.grace
                    alarm = self._clock.call_later(self._terms.grace, self._ended.set)
                elif alarm is not None and self._clock.monotonic() >= end:
                    raise WorkGoesOn(
                        f"{self._name} has lost the lease of shard {number}, and {len(tasks)} calls for its objects "
                        "have not ended. The process must end before another one handles them"
                    )
                self._ended.clear()
                with contextlib.suppress(asyncio.CancelledError):
                    await self._ended.wait()
        finally:
            if alarm is not None:
                alarm.cancel()

    async def _watch(self) -> None:
        """Know all Leases of the operator."""
        unseen: set[str] | None = None
        news = self._client.follow(_LEASE, namespace=self._namespace, labels=f"{_GROUP}={self._name}")
        async with aclosing(news):
            async for event in news:
                if isinstance(event, Restarted):
                    unseen = set(self._leases)
                elif isinstance(event, Synced):
                    for name in unseen or ():
                        del self._leases[name]
                    unseen = None
                    self._news.set()
                elif isinstance(event, Event) and event.type != "BOOKMARK":
                    name = event.snapshot.key.name
                    if unseen is not None:
                        unseen.discard(name)
                    self._observe(name, event.snapshot.object if event.type != "DELETED" else None)
                    if unseen is None:
                        self._news.set()

    def _observe(self, name: str, lease: Object | None) -> None:
        if lease is None:
            self._leases.pop(name, None)
            return
        self._leases[name] = _SeenLease(lease, self._clock.monotonic())
        if name in self._names:
            self._elections[self._names.index(name)].observe(lease)

    def _wake_at(self, moment: float) -> None:
        """Assign the shards again when the next Lease expires."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if moment:
            self._alarm = self._clock.call_later(max(0.0, moment - self._clock.monotonic()), self._news.set)

    # The Lease of this process

    async def _announce(self) -> None:
        while True:
            try:
                await self._client.create(self._own_lease(None))
            except errors.AlreadyExists:
                return
            except _FAILURES as error:
                _log.warning("cannot create the lease %s/%s: %s", self._namespace, self.member, error)
                await self._clock.sleep(self._terms.retry_seconds)
            else:
                return

    async def _stay_announced(self) -> None:
        while True:
            await self._clock.sleep(self._terms.retry_seconds)
            try:
                async with deadline(self._clock, self._terms.renew_seconds):
                    lease = await self._client.get_or_none(_LEASE, self.member, namespace=self._namespace)
                    if lease is None:
                        await self._announce()
                    else:
                        await self._client.update(self._own_lease(lease))
                    await self._delete_forgotten()
            except _FAILURES as error:
                _log.warning("cannot renew the lease %s/%s: %s", self._namespace, self.member, error)

    async def _delete_forgotten(self) -> None:
        """Delete the Leases of processes that were killed."""
        now = self._clock.monotonic()
        for name, lease in list(self._leases.items()):
            if _MEMBER in lease.labels and now - lease.seen > _FORGOTTEN * self._terms.lease_seconds:
                with contextlib.suppress(errors.NotFound):
                    await self._client.delete(_LEASE, name, namespace=self._namespace)

    async def _withdraw(self) -> None:
        try:
            await self._client.delete(_LEASE, self.member, namespace=self._namespace)
        except _FAILURES as error:
            _log.warning("the lease %s/%s was not deleted: %s", self._namespace, self.member, error)

    def _own_lease(self, lease: Object | None) -> Object:
        spec = {
            "holderIdentity": self.member,
            "leaseDurationSeconds": int(self._terms.lease_seconds),
            "renewTime": to_rfc3339_micro(self._clock.now()),
        }
        labels = {**self._labels, _MEMBER: "true"}
        if lease is not None:
            labels[_SINCE] = str(_SeenLease(lease, 0.0).created)
            return {**lease, "metadata": {**lease["metadata"], "labels": labels}, "spec": spec}
        metadata = {"name": self.member, "namespace": self._namespace, "labels": labels}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def check_count(name: str, count: int) -> None:
    """Raise ValueError for a number of shards that no operator can have."""
    if not 2 <= count <= MOST_SHARDS:
        raise ValueError(f"{name} cannot have {count} shards: choose 2 to {MOST_SHARDS}, two or three for each process")


@lru_cache(maxsize=4)
def assign(count: int, members: tuple[str, ...]) -> dict[int, str]:
    """Assign each shard to a member, as evenly as possible. A change of the members moves few shards.

    Every process gets the same result for the same members.
    """
    least, more = divmod(count, len(members))
    loads = dict.fromkeys(sorted(members), 0)
    assigned: dict[int, str] = {}
    for shard in range(count):
        most = least + 1 if more else least
        for member in sorted(loads, key=lambda member: hash_of(f"{shard}/{member}")):
            if loads[member] < most:
                break
        loads[member] += 1
        if loads[member] > least:
            more -= 1
        assigned[shard] = member
    return assigned
