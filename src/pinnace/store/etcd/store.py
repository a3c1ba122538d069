"""A store in etcd that several servers share.

The current records are in memory, as in the other stores, and follow one watch: changes of all servers arrive there in
one order. A write is a transaction with a comparison; it is answered when its own change has come back, so that a
writer finds it in whatever follows the store. `sync` makes reads fresh (docs/decisions/0023-etcd.md).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pinnace.process.grpc.errors import CallError, GrpcError
from pinnace.store.etcd import wire
from pinnace.store.etcd.base import RevisionBase, base_key, move_base, read_state
from pinnace.store.etcd.client import CALL_SECONDS, EtcdClient
from pinnace.store.etcd.errors import HistoryCompacted, is_compacted
from pinnace.store.etcd.feed import PROGRESS_SECONDS, WatchFeed
from pinnace.store.etcd.history import LARGE_PAGE, read_events, read_range
from pinnace.store.etcd.identity import Followed, StoreIdentity
from pinnace.store.etcd.settings import EtcdSettings
from pinnace.store.etcd.transactions import ALARM_HELP, Attempt, commit, unreachable, write_failed
from pinnace.store.etcd.wire import GuardTerm
from pinnace.store.store import (
    Batch,
    Change,
    Compacted,
    Conflict,
    Damaged,
    Guard,
    Record,
    RecordPage,
    StoreClosed,
    StoreError,
    WriteFailed,
    check_key,
)
from pinnace.store.view import StoreView, ViewedStore

log = logging.getLogger(__name__)

_OPEN_SECONDS = 60.0
_CHECK_SECONDS = 3.0
_WRITE_CHECK_SECONDS = 1.0


class EtcdStore(ViewedStore):
    """A `Store` in etcd. Open it with `await EtcdStore.open(settings)`."""

    is_shared = True

    def __init__(
        self,
        client: EtcdClient,
        settings: EtcdSettings,
        *,
        prefix: str,
        expiry: Mapping[str, int],
        memory: Path | None = None,
        accept_data_loss: bool = False,
    ) -> None:
        super().__init__(StoreView({}, revision=0, compacted=0), self._history)
        self._client = client
        self._root = settings.root
        self._keys = wire.prefix_range((settings.root + prefix).encode())
        self._base_key = base_key(settings.root)
        self._base = RevisionBase(0, 0)
        self._identity = StoreIdentity(client, self._base_key, memory, accept_data_loss=accept_data_loss)
        self._term = 0
        self._leases = Leases(client, expiry)
        self._guards = Guards(settings.root)
        self._feed = WatchFeed(client, self._keys, self._base_key, self)
        self._barrier = ReadBarrier(self._ask_revision)
        self._loop = asyncio.get_running_loop()
        self._attempts: dict[str, list[Attempt]] = {}  # The writes under way, by key.
        self._answers: dict[int, asyncio.Future[None]] = {}  # Writes that wait for their change, by revision.
        self._reaching: list[tuple[int, asyncio.Future[None]]] = []  # Readers that wait for a revision.
        self._turns: dict[str, asyncio.Lock] = {}  # For writes without a comparison, which etcd would not order.
        self._under_way: set[asyncio.Future[None]] = set()
        self._checked_at = -_WRITE_CHECK_SECONDS
        self._running: asyncio.Task[None] | None = None
        self._closing = False

    @classmethod
    async def open(
        cls,
        settings: EtcdSettings,
        *,
        prefix: str = "",
        expiry: Mapping[str, int] | None = None,
        memory: Path | None = None,
        accept_data_loss: bool = False,
    ) -> EtcdStore:
        """Connect, and read all keys that begin with `prefix`. Raise a StoreError that says why not.

        `expiry` has the seconds after which etcd deletes a key that begins with a prefix, counted from its last write.
        `memory` is the file that says which store this is: another store, and an older state of it, are refused, unless
        `accept_data_loss`.
        """
        client = EtcdClient(settings)
        store = cls(
            client, settings, prefix=prefix, expiry=expiry or {}, memory=memory, accept_data_loss=accept_data_loss
        )
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                await store._begin()
                store._running = asyncio.create_task(store._run())
                await store._feed.begun
        except (CallError, TimeoutError) as error:
            await store.close()
            raise unreachable(client, error) from error
        except BaseException:
            await store.close()
            raise
        return store

    async def put(self, key: str, value: bytes, *, expected: int | None, guard: Guard | None = None) -> int:
        """As `Store.put`."""
        self._check_open()
        check_key(key)
        if guard is not None:
            return await self._put_guarded(key, value, expected, guard)
        if expected is None:
            async with self._turns.setdefault(key, asyncio.Lock()):
                return await self._put(key, value, None)
        return await self._put(key, value, expected)

    async def delete(self, key: str, *, expected: int | None) -> int:
        """As `Store.delete`."""
        self._check_open()
        if expected == 0:
            raise Conflict(key, expected=expected, current=self._view.records.get(key))
        request = wire.delete_if(self._name(key), mod_revision=self._theirs(key, expected))
        return await self._write(key, request, expected, value=None)

    async def sync(self) -> None:
        """As `Store.sync`: ask the leader for its revision, and wait until the watch has reached it."""
        self._check_open()
        await self._barrier.wait()

    async def compact(self, revision: int) -> None:
        """As `Store.compact`."""
        self._check_open()
        revision = min(revision, self._view.revision)
        if revision <= self._view.compacted:
            return
        try:
            await self._client.call(wire.COMPACT, wire.compaction_request(revision - self._base.offset))
        except GrpcError as error:
            if not is_compacted(error):
                raise write_failed(self._client, error) from error
        except CallError as error:
            raise write_failed(self._client, error) from error
        self._view.compacted = max(self._view.compacted, revision)

    async def check_read(self) -> None:
        """As `Store.check_read`: read through the leader, and see that the watch runs."""
        self._check_open()
        try:
            await self._client.call(wire.RANGE, wire.range_request(self._base_key), seconds=_CHECK_SECONDS)
        except CallError as error:
            raise unreachable(self._client, error) from error
        if self._feed.error:
            raise StoreError(f"the watch of etcd does not run ({self._feed.error}); it is begun again")

    async def check_write(self) -> None:
        """As `Store.check_write`. The question for alarms goes through consensus like a write, and stores nothing."""
        self._check_open()
        if self._loop.time() - self._checked_at < _WRITE_CHECK_SECONDS:
            return
        try:
            alarms = wire.alarm_answer(await self._client.call(wire.ALARM, b"", seconds=_CHECK_SECONDS))
        except CallError as error:
            raise write_failed(self._client, error) from error
        for alarm in wire.AlarmKind:
            if alarm in alarms:
                raise WriteFailed(f"etcd at {self._client.address} has the alarm {alarm.name}; {ALARM_HELP[alarm]}")
        self._checked_at = self._loop.time()

    async def close(self) -> None:
        """As `Store.close`."""
        if self._closing:
            return
        self._closing = True
        if self._under_way:
            await asyncio.wait(self._under_way)
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait((self._running,))  # Not `await`: a cancellation of the caller must not be lost.
        self._watchers.close()
        self._client.close()
        self._identity.close()

    # Opening and following.

    async def _begin(self) -> None:
        state = await self._identity.find()
        base = state.base
        if base is None:
            there = await read_range(self._client, *self._keys, limit=1)
            base = await move_base(self._client, self._base_key, there.revision if there.pairs else 0, None)
        last = self._identity.last_revision
        if last and state.revision + base.offset < last:
            base = await self._move_above(last, state.revision, base)
        self._base = base
        await self._load()
        self._identity.guard(self._followed)

    def _followed(self) -> Followed:
        return Followed(self._view.revision, self._base, self._term)

    async def _move_above(self, last: int, revision: int, base: RevisionBase) -> RevisionBase:
        """Count on above all that clients have seen: etcd, at `revision`, was restored from an older backup."""
        log.warning("etcd was restored from an older backup: revisions go on above %d", last)
        # So far above that every record that is there gets a revision that no client has seen.
        return await move_base(self._client, self._base_key, last + revision + 1, base)

    async def _load(self) -> None:
        """Read all records at one revision. After a gap, the differences are followed as one batch."""
        answer = await read_range(self._client, *self._keys, largest_page=LARGE_PAGE)
        offset, cut = self._base.offset, len(self._root)
        records: dict[str, Record] = {}
        for name, created, modified, value in answer.pairs:  # As `_record`, without its calls for each of many.
            key = name.decode("utf-8", "surrogateescape")[cut:]
            records[key] = Record(key, value, modified + offset, created + offset)
        revision = answer.revision + offset
        changes = self._differences(records, revision) if self._running is not None else []
        self._term = answer.term
        view = self._view
        view.replace(records, revision=revision)
        view.compacted = max(view.compacted, self._base.ours)  # Nothing is known of revisions before the base.
        if self._running is not None:
            view.compacted = revision
            self._watchers.publish_gap(changes, revision)
        self._settle(revision)

    def _differences(self, records: dict[str, Record], revision: int) -> Batch:
        """Return the changes that lead from the state of the view to these records, as of a revision."""
        before = self._view.records
        changes = [
            Change(record.key, record.revision, record.value, before.get(record.key), record.created)
            for record in records.values()
            if (old := before.get(record.key)) is None or old.revision != record.revision
        ]
        changes.sort(key=lambda change: change.revision)
        return changes + [Change(key, revision, None, old, 0) for key, old in before.items() if key not in records]

    async def _run(self) -> None:
        """Follow etcd until the store closes."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._feed.run())
                group.create_task(self._barrier.run())
        finally:
            self._barrier.close(StoreClosed())
            for _, waiter in self._reaching:
                waiter.cancel()
            for answer in self._answers.values():
                answer.cancel()

    @property
    def next_revision(self) -> int:
        """As `FeedTarget.next_revision`."""
        return self._view.revision - self._base.offset + 1

    async def check_continuity(self) -> bool:
        """As `FeedTarget.check_continuity`: revisions, terms and the base never go back unless etcd was restored."""
        state = await read_state(self._client, self._base_key)
        if state.base is None:
            raise Damaged(
                f"etcd at {self._client.address} has lost the data of this cluster; restore a backup of etcd, or stop "
                "this server to begin anew"
            )
        return state.base == self._base and state.term >= self._term and state.revision + 1 >= self.next_revision

    async def reload(self) -> None:
        """As `FeedTarget.reload`. If etcd was restored from an older backup, count on above all that clients saw."""
        state = await read_state(self._client, self._base_key)
        if state.base is None:
            raise Damaged(f"etcd at {self._client.address} has lost the data of this cluster; restore a backup")
        base, last = state.base, self._view.revision
        if state.revision + base.offset < last or (base == self._base and state.term < self._term):
            base = await self._move_above(last, state.revision, base)
            self._leases.forget()
            self._guards.forget()
        self._base = base
        await self._load()

    def note_progress(self, revision: int) -> None:
        """As `FeedTarget.note_progress`."""
        reached = revision + self._base.offset
        if reached > self._view.revision:
            self._view.revision = reached
            self._watchers.publish([])
            self._settle(reached)

    def apply(self, events: Sequence[wire.EtcdEvent]) -> None:
        """As `FeedTarget.apply`."""
        view, offset = self._view, self._base.offset
        first, end = self._keys
        changes: Batch = []
        known = view.revision
        for event in events:
            name = event.now.key
            if event.now.mod_revision + offset > known and name >= first and (name < end or end == b"\0"):
                change = self._take(event, offset)
                if change is not None:
                    changes.append(change)
        reached = events[-1].now.mod_revision + offset
        if reached > known:
            view.revision = reached
            self._watchers.publish(changes)
            self._settle(reached)

    def _take(self, event: wire.EtcdEvent, offset: int) -> Change | None:
        """Let the view show a change. Return None for the deletion of what was not there."""
        view, now = self._view, event.now
        revision, key = now.mod_revision + offset, self._key(now.key)
        previous = view.records.get(key)
        if previous is not None:
            key = previous.key  # One text per key, however often it is written.
        value, created = now.value, now.create_revision + offset
        attempts = self._attempts.get(key, ())
        for attempt in attempts:
            if attempt.value == value:
                value = attempt.value  # Readers share the writer's bytes.
        if event.is_deletion:
            if previous is None:
                return None
            view.remove(key)
            change = Change(key, revision, None, previous, 0)
        else:
            view.set(Record(key, value, revision, created))
            change = Change(key, revision, value, previous, created)
        for attempt in attempts:
            attempt.compare(change)
        return change

    def _settle(self, revision: int) -> None:
        """Answer the writers and readers that waited for this revision."""
        self._identity.note(revision)
        if self._answers:
            if (answer := self._answers.pop(revision, None)) is not None and not answer.done():
                answer.set_result(None)
            if self._answers and min(self._answers) < revision:
                for late in [late for late in self._answers if late < revision]:
                    if not (answer := self._answers.pop(late)).done():
                        answer.set_result(None)
        if self._reaching:
            for at, waiter in self._reaching:
                if at <= revision and not waiter.done():
                    waiter.set_result(None)
            self._reaching = [waiting for waiting in self._reaching if waiting[0] > revision]

    # Writing.

    async def _put_guarded(self, key: str, value: bytes, expected: int | None, guard: Guard) -> int:
        """Put one after the other, so that the writes of this server do not fail one another."""
        async with AsyncExitStack() as stack:
            await self._guards.enter(stack, guard.names)
            seen = guard.seen - self._base.offset
            revision = await self._put(key, value, expected, self._guards.terms(guard.names, seen))
            self._guards.note(guard.names, seen, revision - self._base.offset)
            return revision

    async def _put(self, key: str, value: bytes, expected: int | None, guards: Sequence[wire.GuardTerm] = ()) -> int:
        lease = 0
        if self._leases.applies_to(key):
            try:
                lease = await self._leases.lease_for(key)
            except CallError as error:
                raise write_failed(self._client, error) from error
        theirs = self._theirs(key, expected)
        request = wire.put_if(self._name(key), value, mod_revision=theirs, lease=lease, guards=guards)
        return await self._write(key, request, expected, value=value)

    async def _write(self, key: str, request: bytes, expected: int | None, *, value: bytes | None) -> int:
        """Send a transaction, and wait until its change has come back. `value` is None for a deletion."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._under_way.add(done)
        attempt = Attempt(value, expected)
        attempts = self._attempts.setdefault(key, [])
        attempts.append(attempt)
        try:
            answer, is_repeated = await commit(self._client, request)
            revision = answer.revision + self._base.offset
            if answer.succeeded:
                await self._own_change(revision)
                return revision
            await self._reach(revision)
            if is_repeated and attempt.revision:
                return attempt.revision
            current = self._view.records.get(key)
            if answer.current is None:
                current = None
            elif current is None or current.revision != answer.current.mod_revision + self._base.offset:
                current = self._record(answer.current)
            raise Conflict(key, expected=expected, current=current)
        finally:
            self._under_way.discard(done)
            done.set_result(None)
            attempts.remove(attempt)
            if not attempts and self._attempts.get(key) is attempts:
                del self._attempts[key]

    def _own_change(self, revision: int) -> asyncio.Future[None] | asyncio.Task[None]:
        done: asyncio.Future[None] = self._loop.create_future()
        if revision <= self._view.revision:
            done.set_result(None)
        else:
            self._answers[revision] = done
        return done

    async def _reach(self, revision: int) -> None:
        """Wait until the watch has reached a revision, which may be one of keys that are not ours."""
        deadline = self._loop.time() + CALL_SECONDS
        while revision > self._view.revision:
            if self._loop.time() >= deadline:
                raise StoreError(f"the watch of etcd did not reach revision {revision} in time ({self._feed.error})")
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._reaching.append((revision, waiter))
            self._feed.ask_progress()
            with suppress(TimeoutError):
                async with asyncio.timeout(PROGRESS_SECONDS):
                    await waiter

    async def _ask_revision(self) -> None:
        request = wire.range_request(self._base_key, count_only=True)
        try:
            answer = wire.range_answer(await self._client.call(wire.RANGE, request))
        except CallError as error:
            raise unreachable(self._client, error) from error
        await self._reach(answer.revision + self._base.offset)

    # Names, numbers, errors.

    def _check_open(self) -> None:
        if self._closing:
            raise StoreClosed

    def _name(self, key: str) -> bytes:
        return (self._root + key).encode()

    def _key(self, name: bytes) -> str:
        return name.decode("utf-8", "surrogateescape")[len(self._root) :]

    def _theirs(self, key: str, expected: int | None) -> int | None:
        """Return etcd's number of an expected revision. Raise Conflict if this server knows a newer one already."""
        if not expected:
            return expected
        current = self._view.records.get(key)
        theirs = expected - self._base.offset
        if theirs <= 0 or (current is not None and current.revision > expected):
            raise Conflict(key, expected=expected, current=current)
        return theirs

    def _record(self, pair: wire.KeyValue) -> Record:
        offset = self._base.offset
        return Record(self._key(pair.key), pair.value, pair.mod_revision + offset, pair.create_revision + offset)

    async def _past_page(self, prefix: str, start: str, limit: int, revision: int) -> RecordPage:
        first, end = wire.prefix_range((self._root + prefix).encode())
        first = max(first, (self._root + start).encode())
        theirs = revision - self._base.offset
        try:
            answer = await read_range(self._client, first, end, limit=limit, revision=theirs)
        except CallError as error:
            raise self._refused(error, revision) from error
        records = [self._record(pair) for pair in answer.pairs]
        remaining = answer.total - len(records)
        return RecordPage(records, revision, remaining > 0, remaining)

    async def _history(self, prefix: str, after: int, until: int) -> tuple[Batch, int]:
        """As `Watchers` asks for it."""
        offset = self._base.offset
        first, end = wire.prefix_range((self._root + prefix).encode())
        try:
            events, reached = await read_events(self._client, first, end, after=after - offset, until=until - offset)
        except CallError as error:
            raise self._refused(error, after) from error
        return [self._change(event) for event in events], reached + offset

    def _change(self, event: wire.EtcdEvent) -> Change:
        previous = None if event.previous is None else self._record(event.previous)
        now = self._record(event.now)
        if event.is_deletion:
            return Change(now.key, now.revision, None, previous, 0)
        return Change(now.key, now.revision, now.value, previous, now.created)

    def _refused(self, error: CallError, revision: int) -> StoreError:
        if isinstance(error, GrpcError) and is_compacted(error):
            known = error.compacted + self._base.offset if isinstance(error, HistoryCompacted) else revision + 1
            self._view.compacted = max(self._view.compacted, known)
            return Compacted(revision, compacted=self._view.compacted)
        return unreachable(self._client, error)


class ReadBarrier:
    """Calls `ask` in rounds. A reader waits for the first round that begins after it came."""

    def __init__(self, ask: Callable[[], Awaitable[None]]) -> None:
        self._ask = ask
        self._waiting: list[asyncio.Future[None]] = []
        self._wanted = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def wait(self) -> None:
        """Wait for a round. Raise the StoreError of its question."""
        reader: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(reader)
        self._wanted.set()
        await reader

    async def run(self) -> None:
        """Ask for the readers that come, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            readers, self._waiting = self._waiting, []
            error: StoreError | None = None
            try:
                await self._ask()
            except StoreError as refused:
                error = refused
            except BaseException:
                self._waiting += readers
                raise
            for reader in readers:
                if reader.done():
                    continue
                if error is None:
                    reader.set_result(None)
                else:
                    reader.set_exception(type(error)(*error.args))

    def close(self, error: StoreError) -> None:
        """Fail the readers that wait, after `run` has ended."""
        for reader in self._waiting:
            if not reader.done():
                reader.set_exception(error)
        self._waiting = []


@dataclass(slots=True)
class _Chain:
    """Changes of a guard by this server alone: none of another came after `since` and up to `last`. As etcd counts."""

    since: int = 0
    last: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Guards:
    """The guards below one root."""

    def __init__(self, root: str) -> None:
        self._root = f"/pinnace/guards{root or '/'}"
        self._chains: dict[str, _Chain] = {}

    async def enter(self, stack: AsyncExitStack, names: tuple[str, ...]) -> None:
        """Wait until no other write of this server passes these guards, until the end of the stack."""
        for name in sorted(names):
            chain = self._chains.setdefault(name, _Chain())
            await stack.enter_async_context(chain.lock)

    def terms(self, names: tuple[str, ...], seen: int) -> list[GuardTerm]:
        """Return the comparisons for a write that was decided at revision `seen`."""
        terms = []
        for name in names:
            chain, key = self._chains[name], (self._root + name).encode()
            is_own = chain.last > seen >= chain.since
            terms.append(GuardTerm(key, chain.last if is_own else seen + 1, is_own))
        return terms

    def note(self, names: tuple[str, ...], seen: int, revision: int) -> None:
        """Take notice of a write that has passed them at `revision`."""
        for name in names:
            chain = self._chains[name]
            if not chain.last > seen >= chain.since:
                chain.since = seen
            chain.last = revision

    def forget(self) -> None:
        """Forget what this server has passed: revisions are counted anew."""
        for chain in self._chains.values():
            chain.since = chain.last = 0


_SHARED_PART = 0.05
_SHORTEST_SHARED = 10.0
_SHORT_LIFE = 60
"""Keys that live for less seconds have leases of their own, which end on time."""
_MOST_KEYS = 1000


class Leases:
    """Gives out leases by the prefix of a key. A key lives for at least its seconds, and at most 5 % longer."""

    def __init__(self, client: EtcdClient, seconds: Mapping[str, int]) -> None:
        self._client = client
        self._seconds = seconds
        self._prefixes = tuple(seconds)
        self._current: dict[str, tuple[int, float, int]] = {}  # By prefix: lease, its last use, keys so far.
        self._lock = asyncio.Lock()

    def applies_to(self, key: str) -> bool:
        """Whether keys with this prefix expire."""
        return bool(self._prefixes) and key.startswith(self._prefixes)

    async def lease_for(self, key: str) -> int:
        """Return the lease for a key that is written now. Raise CallError."""
        prefix = next(prefix for prefix in self._prefixes if key.startswith(prefix))
        async with self._lock:
            now = asyncio.get_running_loop().time()
            lease, until, keys = self._current.get(prefix, (0, 0.0, 0))
            if not lease or now >= until or keys >= _MOST_KEYS:
                seconds = self._seconds[prefix]
                shared = max(_SHORTEST_SHARED, seconds * _SHARED_PART) if seconds >= _SHORT_LIFE else 0.0
                request = wire.lease_request(seconds + int(shared))
                lease, until, keys = (
                    wire.lease_answer(await self._client.call(wire.LEASE_GRANT, request)),
                    now + shared,
                    0,
                )
            self._current[prefix] = (lease, until, keys + 1)
            return lease

    def forget(self) -> None:
        """Ask for new leases: those of before may be gone."""
        self._current.clear()
