"""A store whose secrets are sealed before they reach the medium: who has the disk alone has nothing."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from pinnace.store.encryption_keys import SEALED, EncryptionKeys, MissingKey, sealing_key
from pinnace.store.store import (
    Batch,
    Change,
    Conflict,
    Follower,
    GapCallback,
    Guard,
    Record,
    RecordPage,
    Store,
    StoreError,
)

log = logging.getLogger(__name__)

SECRETS = "/registry/core/secrets/"


class EncryptedStore:
    """A `Store` over another. Values of keys that begin with one of `prefixes` are sealed there and open here.

    Values stored before, in the clear or with an older key, can be read; `reseal` writes them anew.
    """

    def __init__(self, inner: Store, keys: EncryptionKeys, *, prefixes: tuple[str, ...] = (SECRETS,)) -> None:
        self._inner = inner
        self._keys = keys
        self._prefixes = prefixes
        self._being_put: dict[bytes, bytes] = {}  # By sealed bytes, during a put: saves opening them.
        self._open: dict[str, Record] = {}  # Opened records of sealed keys, shared by all readers.
        self._published: Batch = []
        inner.follow(self._publish)  # Before all others, who are given what this makes of a commit.

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
        """Return the size of the store's file; 0 for a store without one."""
        size: Callable[[], int] | None = getattr(self._inner, "size_bytes", None)
        return size() if size is not None else 0

    async def get(self, key: str) -> Record | None:
        """As `Store.get`. `MissingKey` or `Damaged` for what cannot be opened; the same holds for every read."""
        record = await self._inner.get(key)
        return None if record is None else self._unseal_current(record)

    async def list(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> RecordPage:
        """As `Store.list`."""
        page = await self._inner.list(prefix, start=start, limit=limit, revision=revision)
        if not any(record.value.startswith(SEALED) for record in page.records):
            return page
        opened = self._unseal if revision else self._unseal_current
        return replace(page, records=[opened(record) for record in page.records])

    async def put(self, key: str, value: bytes, *, expected: int | None, guard: Guard | None = None) -> int:
        """As `Store.put`."""
        # A value that only looks sealed is sealed, too, or it could not be read back.
        if not key.startswith(self._prefixes) and not value.startswith(SEALED):
            try:
                return await self._inner.put(key, value, expected=expected, guard=guard)
            except Conflict as refused:
                raise self._unseal_conflict(refused) from None
        sealed = self._keys.seal(key, value)
        self._being_put[sealed] = value
        try:
            return await self._inner.put(key, sealed, expected=expected, guard=guard)
        except Conflict as refused:
            raise self._unseal_conflict(refused) from None
        finally:
            del self._being_put[sealed]

    async def delete(self, key: str, *, expected: int | None) -> int:
        """As `Store.delete`."""
        try:
            return await self._inner.delete(key, expected=expected)
        except Conflict as refused:
            raise self._unseal_conflict(refused) from None

    def follow(self, follower: Follower, *, on_gap: GapCallback | None = None) -> None:
        """As `Store.follow`."""

        def pass_on(batch: Batch) -> None:
            if self._published or not batch:
                follower(self._published)

        self._inner.follow(pass_on, on_gap=on_gap)

    async def sync(self) -> None:
        """As `Store.sync`."""
        await self._inner.sync()

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
            wanted = record.key.startswith(self._prefixes)
            if self._keys.is_newest(record.value) if wanted else not record.value.startswith(SEALED):
                continue
            try:
                await self.put(record.key, self._unseal(record).value, expected=record.revision)
            except Conflict:
                continue  # Another write came first, and it used the newest key.
            count += 1
        if count:
            await self._inner.compact(self._inner.revision)
        return count

    # Opening.

    def _unseal(self, record: Record) -> Record:
        if not record.value.startswith(SEALED):
            return record
        known = self._open.get(record.key)
        if known is not None and known.revision == record.revision:
            return known
        return record._replace(value=self._text(record.key, record.value))

    def _unseal_current(self, record: Record) -> Record:
        """As `_unseal`, for what the key holds at present: opened once, however often it is read."""
        opened = self._unseal(record)
        if opened is not record:
            self._open[opened.key] = opened
        return opened

    def _text(self, key: str, sealed: bytes) -> bytes:
        known = self._being_put.get(sealed)
        return self._keys.open(key, sealed) if known is None else known

    def _unseal_conflict(self, refused: Conflict) -> Conflict:
        current = None if refused.current is None else self._unseal(refused.current)
        return Conflict(refused.key, expected=refused.expected, current=current)

    def _unseal_change(self, change: Change) -> Change:
        value, previous = change.value, change.previous
        if value is not None and value.startswith(SEALED):
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
            yield [self._unseal_change(change) for change in batch]

    def _publish(self, batch: Batch) -> None:
        self._published = changes = []
        for change in batch:
            try:
                opened = self._unseal_change(change)
            except StoreError as error:
                # Written by another server with a key that is not here. Followers must not fail; reads will say so.
                log.error("a change is not shown: %s", error)
                continue
            if opened.value is None or opened.value is change.value:
                self._open.pop(opened.key, None)
            else:
                self._open[opened.key] = Record(opened.key, opened.value, opened.revision, opened.created)
            changes.append(opened)


async def refuse_sealed(store: Store) -> None:
    """Raise `MissingKey` if the store, opened without keys, holds anything that needs one."""
    for record in (await store.list("")).records:
        if record.value.startswith(SEALED):
            raise MissingKey(record.key, sealing_key(record.value))
