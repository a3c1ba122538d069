"""A store whose values are sealed before they reach the medium: who has the disk alone has nothing."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from pinnace.process.clock import AlarmClock, SystemClock
from pinnace.store.encryption_keys import ANY_SEALED, SECRETS, MissingKey, sealing_key
from pinnace.store.store import (
    Batch,
    Change,
    Conflict,
    Follower,
    GapCallback,
    Guard,
    ReadabilityCallback,
    Record,
    RecordPage,
    Store,
    StoreError,
)

__all__ = ["SECRETS", "EncryptedStore", "Encryption", "refuse_sealed"]
log = logging.getLogger(__name__)

RETRY_SECONDS = 10.0
"""How often values that cannot be opened are tried again."""


class Encryption(Protocol):
    """Seals and opens values. Only `fetch` waits: for keys that others have, such as a KMS plug-in."""

    @property
    def is_tolerant(self) -> bool:
        """Whether a store with values that cannot be opened is of use: they are left out and reported."""

    def name_for(self, key: str, /) -> str:
        """Return what a value of the key is sealed with now; empty for nothing."""

    def name_of(self, key: str, stored: bytes, /) -> str:
        """Return what a value was sealed with."""

    def concerns(self, key: str, stored: bytes, /) -> bool:
        """Whether a stored value must be opened."""

    def seal(self, key: str, value: bytes, /) -> bytes:
        """Return what to store. Raise a StoreError."""

    def open(self, key: str, stored: bytes, /) -> bytes:
        """Return the value. Raise a StoreError."""

    def lacks_key(self, key: str, stored: bytes, /) -> bool:
        """Whether `fetch` may help to open a value."""

    async def fetch(self, values: Iterable[tuple[str, bytes]], /) -> None:
        """Get what is needed to open these values, by key. `open` raises the errors."""


class EncryptedStore:
    """A `Store` over another, whose values are sealed there and open here.

    Values stored before, in the clear or with an older key, can be read; `reseal` writes them anew.
    """

    def __init__(self, inner: Store, encryption: Encryption, *, clock: AlarmClock | None = None) -> None:
        self._inner = inner
        self._encryption = encryption
        self._clock = clock or SystemClock()
        self._being_put: dict[bytes, bytes] = {}  # By sealed bytes, during a put: saves opening them.
        self._open: dict[str, Record] = {}  # Opened records of sealed keys, shared by all readers.
        self._names: dict[str, str] = {}  # The provider and key of sealed values, by key.
        self._unreadable: dict[str, tuple[Record, str]] = {}
        self._reasons: dict[str, str] = {}
        self.unreadable: Mapping[str, str] = MappingProxyType(self._reasons)
        """As `Store.unreadable`."""
        self._followers: list[Follower] = []
        self._on_gap: list[GapCallback] = []
        self._on_readability: list[ReadabilityCallback] = []
        self._backlog: deque[Batch | int] = deque()  # Commits, and gaps, that wait for a key which is being fetched.
        self._has_backlog = asyncio.Event()
        self._caught_up = asyncio.Event()
        inner.follow(self._publish, on_gap=self._publish_gap)

    @property
    def encryption(self) -> Encryption:
        return self._encryption

    @property
    def revision(self) -> int:
        """As `Store.revision`."""
        return self._inner.revision

    @property
    def compacted(self) -> int:
        """As `Store.compacted`."""
        return self._inner.compacted

    @property
    def is_shared(self) -> bool:
        """As `Store.is_shared`."""
        return self._inner.is_shared

    def size_bytes(self) -> int:
        """As `Store.size_bytes`."""
        return self._inner.size_bytes()

    def is_stale(self, key: str) -> bool:
        """As `Store.is_stale`."""
        return self._names.get(key, "") != self._encryption.name_for(key)

    async def get(self, key: str) -> Record | None:
        """As `Store.get`. A StoreError for what cannot be opened."""
        record = await self._inner.get(key)
        if record is None:
            return None
        await self._fetch((record,))
        return self._unseal_current(record)

    async def list(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> RecordPage:
        """As `Store.list`. Leave values out that cannot be opened if that is tolerated, but not in the past."""
        page = await self._inner.list(prefix, start=start, limit=limit, revision=revision)
        concerns = self._encryption.concerns
        sealed = [record for record in page.records if concerns(record.key, record.value)]
        if not sealed:
            return page
        await self._fetch(sealed)
        if revision:
            return replace(page, records=[self._unseal(record) for record in page.records])
        records = []
        for record in page.records:
            try:
                records.append(self._unseal_current(record))
            except StoreError as error:
                if not self._encryption.is_tolerant:
                    raise
                self._set_unreadable(record, error)
        return replace(page, records=records)

    async def put(self, key: str, value: bytes, *, expected: int | None, guard: Guard | None = None) -> int:
        """As `Store.put`. A StoreError if it cannot be sealed."""
        sealed = self._encryption.seal(key, value)
        if sealed is not value:
            self._being_put[sealed] = value
        try:
            revision = await self._inner.put(key, sealed, expected=expected, guard=guard)
        except Conflict as refused:
            raise await self._unseal_conflict(refused) from None
        finally:
            self._being_put.pop(sealed, None)
        await self._catch_up()
        return revision

    async def delete(self, key: str, *, expected: int | None) -> int:
        """As `Store.delete`."""
        try:
            revision = await self._inner.delete(key, expected=expected)
        except Conflict as refused:
            raise await self._unseal_conflict(refused) from None
        await self._catch_up()
        return revision

    def follow(
        self,
        follower: Follower,
        *,
        on_gap: GapCallback | None = None,
        on_readability: ReadabilityCallback | None = None,
    ) -> None:
        """As `Store.follow`."""
        self._followers.append(follower)
        if on_gap is not None:
            self._on_gap.append(on_gap)
        if on_readability is not None:
            self._on_readability.append(on_readability)

    async def sync(self) -> None:
        """As `Store.sync`."""
        await self._inner.sync()
        await self._catch_up()

    def watch(self, prefix: str, *, since: int) -> AsyncIterator[Batch]:
        """As `Store.watch`."""
        return self._unseal_batches(self._inner.watch(prefix, since=since))

    async def compact(self, revision: int) -> None:
        """As `Store.compact`."""
        await self._inner.compact(revision)

    async def check_read(self) -> None:
        """As `Store.check_read`."""
        await self._inner.check_read()

    async def check_write(self) -> None:
        """As `Store.check_write`."""
        await self._inner.check_write()

    async def close(self) -> None:
        """As `Store.close`."""
        await self._inner.close()

    async def reseal(self) -> int:
        """Write anew all that is not as it would be written now, and forget how it was. How many that were."""
        count = 0
        for record in (await self._inner.list("")).records:
            if self._encryption.name_of(record.key, record.value) == self._encryption.name_for(record.key):
                continue
            try:
                await self.put(record.key, self._unseal(record).value, expected=record.revision)
            except Conflict:
                continue  # Another write came first, and it used the newest key.
            count += 1
        if count:
            await self._inner.compact(self._inner.revision)
        return count

    async def run(self) -> None:
        """Fetch the keys that commits of other servers need, and retry what cannot be opened, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._work_off())
            while True:
                await self._clock.sleep(RETRY_SECONDS)
                await self.retry()

    async def retry(self) -> None:
        """Try to open what could not be opened."""
        if not self._unreadable:
            return
        await self._fetch([record for record, _ in self._unreadable.values()])
        for key, (record, _) in list(self._unreadable.items()):
            try:
                opened = self._unseal(record)
            except StoreError as error:
                self._set_unreadable(record, error)
                continue
            self._set_readable(key)
            self._keep(opened, record.value)
            log.info("%s can be decrypted again", key)
            for callback in self._on_readability:
                callback(key, opened)

    # Opening.

    async def _fetch(self, records: Iterable[Record]) -> None:
        lacks_key = self._encryption.lacks_key
        if missing := [(record.key, record.value) for record in records if lacks_key(record.key, record.value)]:
            await self._encryption.fetch(missing)

    def _unseal(self, record: Record) -> Record:
        if not self._encryption.concerns(record.key, record.value):
            return record
        known = self._open.get(record.key)
        if known is not None and known.revision == record.revision:
            return known
        return record._replace(value=self._text(record.key, record.value))

    def _unseal_current(self, record: Record) -> Record:
        """As `_unseal`, for what the key holds at present: opened once, however often it is read."""
        opened = self._unseal(record)
        if opened is not record:
            self._keep(opened, record.value)
        return opened

    def _keep(self, opened: Record, stored: bytes) -> None:
        if name := self._encryption.name_of(opened.key, stored):
            self._open[opened.key] = opened
            self._names[opened.key] = name

    def _text(self, key: str, stored: bytes) -> bytes:
        known = self._being_put.get(stored)
        return self._encryption.open(key, stored) if known is None else known

    async def _unseal_conflict(self, refused: Conflict) -> Conflict:
        current = refused.current
        if current is not None:
            await self._fetch((current,))
            current = self._unseal(current)
        return Conflict(refused.key, expected=refused.expected, current=current)

    def _unseal_change(self, change: Change) -> Change:
        value, previous = change.value, change.previous
        if value is not None and self._encryption.concerns(change.key, value):
            known = self._open.get(change.key)
            is_known = known is not None and known.revision == change.revision
            value = known.value if known is not None and is_known else self._text(change.key, value)
        if previous is not None:
            previous = self._unseal(previous)
        if value is change.value and previous is change.previous:
            return change
        return replace(change, value=value, previous=previous)

    async def _unseal_batches(self, batches: AsyncIterator[Batch]) -> AsyncIterator[Batch]:
        async for batch in batches:
            await self._fetch(_records_of(batch))
            yield [self._unseal_change(change) for change in batch]

    # Publishing.

    def _publish(self, batch: Batch) -> None:
        lacks_key = self._encryption.lacks_key
        if self._backlog or any(
            change.value is not None and change.value not in self._being_put and lacks_key(change.key, change.value)
            for change in batch
        ):
            self._delay(batch)
        else:
            self._hand_out(batch)

    def _publish_gap(self, revision: int) -> None:
        if self._backlog:
            self._delay(revision)
        else:
            self._hand_out(revision)

    def _delay(self, commit: Batch | int) -> None:
        self._backlog.append(commit)
        self._caught_up.clear()
        self._has_backlog.set()

    async def _catch_up(self) -> None:
        """Wait until the followers have every commit."""
        if self._backlog:
            await self._caught_up.wait()

    async def _work_off(self) -> None:
        while True:
            await self._has_backlog.wait()
            while self._backlog:
                commit = self._backlog[0]
                if not isinstance(commit, int):
                    await self._fetch(_records_of(commit))
                self._hand_out(commit)  # While it is in the backlog, a commit that comes in waits behind it.
                self._backlog.popleft()
            self._has_backlog.clear()
            self._caught_up.set()

    def _hand_out(self, commit: Batch | int) -> None:
        if isinstance(commit, int):
            for on_gap in self._on_gap:
                on_gap(commit)
            return
        changes = [opened for change in commit if (opened := self._opened(change)) is not None]
        for follower in self._followers:
            try:
                follower(changes)
            except Exception as error:  # The writers must get their answers all the same: the commit is durable.
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "a follower of the store failed", "exception": error}
                )

    def _opened(self, change: Change) -> Change | None:
        """Return the change as followers see it; None for a value that cannot be opened."""
        key, stored = change.key, change.value
        try:
            opened = self._unseal_change(change)
        except StoreError as error:
            if stored is not None:
                # Written by another server with a key that is not here. Followers must not fail; reads will say so.
                self._set_unreadable(Record(key, stored, change.revision, change.created), error)
                return None
            opened = replace(change, previous=None)
        self._set_readable(key)
        if opened.value is None or stored is None or opened.value is stored:
            self._forget(key)
        else:
            self._keep(Record(key, opened.value, opened.revision, opened.created), stored)
        return opened

    def _forget(self, key: str) -> None:
        self._open.pop(key, None)
        self._names.pop(key, None)

    def _set_readable(self, key: str) -> None:
        if key in self._reasons:
            del self._unreadable[key], self._reasons[key]

    def _set_unreadable(self, record: Record, error: StoreError) -> None:
        key, reason = record.key, str(error)
        if self._reasons.get(key) != reason:
            log.error("unable to transform key %r: %s", key, reason)
        self._forget(key)
        is_new = key not in self._reasons
        self._unreadable[key], self._reasons[key] = (record, reason), reason
        if is_new:
            for callback in self._on_readability:
                callback(key, None)


def _records_of(batch: Batch) -> Iterable[Record]:
    for change in batch:
        if change.value is not None:
            yield Record(change.key, change.value, change.revision, change.created)


async def refuse_sealed(store: Store) -> None:
    """Raise `MissingKey` if the store, opened without keys, holds anything that needs one."""
    for record in (await store.list("")).records:
        if record.value.startswith(ANY_SEALED):
            raise MissingKey(record.key, sealing_key(record.value))
