"""The contract of every store: keys with revisions, a log of changes, and the errors that a caller can act on."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeAlias


class Record(NamedTuple):
    """The value of a key. `revision` is that of its last write, `created` that of the write that created the key.

    A tuple, because a start makes one for each object: a dataclass takes twice as long.
    """

    key: str
    value: bytes
    revision: int
    created: int


@dataclass(frozen=True, slots=True)
class Change:
    """One committed write. A deletion has no `value` and `created` 0; `previous` is what the write replaced."""

    key: str
    revision: int
    value: bytes | None
    previous: Record | None
    created: int


@dataclass(frozen=True, slots=True)
class RecordPage:
    """Records in key order, all as of one `revision`; `remaining` matching records follow the last one."""

    records: list[Record]
    revision: int
    more: bool
    remaining: int


@dataclass(frozen=True, slots=True)
class Guard:
    """Names what a write was decided on besides its own key, such as free node ports, and `seen`, its revision."""

    names: tuple[str, ...]
    seen: int


Batch: TypeAlias = list[Change]
Follower: TypeAlias = Callable[[Batch], None]
GapCallback: TypeAlias = Callable[[int], None]
ReadabilityCallback: TypeAlias = Callable[[str, Record | None], None]
NONE_UNREADABLE: Mapping[str, str] = MappingProxyType({})


class WriteStore(Protocol):
    """The part of a store that writes."""

    @property
    def is_shared(self) -> bool:
        """Whether other servers may write to it: then a read is fresh only after `sync`."""

    async def put(self, key: str, value: bytes, *, expected: int | None, guard: Guard | None = None) -> int:
        """Write the key and answer the new revision, once the write is durable.

        `expected` None writes whatever is there, 0 only a key that does not exist, N only a key at revision N;
        otherwise `Conflict`. A shared store also raises `Conflict` if another server has passed the same `guard`
        after the revision at which the write was decided.
        """

    async def delete(self, key: str, *, expected: int | None) -> int:
        """Delete the key and answer the revision of the deletion. `Conflict` as for put, and for a missing key."""

    def is_stale(self, key: str) -> bool:
        """Whether a put of the same value would store other bytes: encrypted otherwise, or with another key."""

    async def sync(self) -> None:
        """Wait until the followers have every write that any server acknowledged before this call.

        Raise a StoreError if that cannot be known. A store that is not shared returns at once.
        """


class Store(WriteStore, Protocol):
    """Keys that remember their history until told to forget it.

    Every write gets a revision of its own, greater than all before it, also across restarts; gaps are allowed. Keys are
    any text that UTF-8 can carry and sort by code point. A write that was answered is as durable as the store gets.
    A store belongs to the event loop that opened it.
    """

    @property
    def revision(self) -> int:
        """The revision of the last committed write; 0 before the first."""

    @property
    def compacted(self) -> int:
        """History up to and including this revision is forgotten."""

    @property
    def unreadable(self) -> Mapping[str, str]:
        """The keys whose values cannot be decrypted at present, and why. `list` leaves them out; `get` raises."""

    async def get(self, key: str) -> Record | None:
        """Return the current record of a key."""

    async def list(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> RecordPage:
        """Return the records whose key begins with `prefix` and is not before `start`; at most `limit`, 0 for all.

        With a `revision`, return the state at that revision. Raise `Compacted` if it was compacted, `FutureRevision` if
        it does not exist yet.
        """

    def follow(
        self,
        follower: Follower,
        *,
        on_gap: GapCallback | None = None,
        on_readability: ReadabilityCallback | None = None,
    ) -> None:
        """Call `follower` on the event loop with the changes of every commit from now on, in order.

        It is called before the writers of that commit get their answers, so who has an answer finds the write in
        whatever the follower maintains. It must be quick, must not await, and must not fail. A shared store also calls
        it without changes, when its revision has grown by writes to keys that are not its own.

        A shared store may lose sight of a part of history. Then it calls `on_gap` with the revision where history
        begins again, and `follower` with the changes that lead from the state before to the state there.

        `on_readability` is called with a key whose value cannot be decrypted from now on and None, and with its record
        when it can be: such a change is not given to `follower`.
        """

    def watch(self, prefix: str, *, since: int) -> AsyncIterator[Batch]:
        """Yield every change after revision `since` to a key that begins with `prefix`: in order, each once.

        A `since` in the future waits. Raise `Compacted` when the next changes were compacted, at the start or because
        the reader was too slow, and `StoreClosed` when the store closes.
        """

    def size_bytes(self) -> int:
        """Return the room that the store takes on its medium; 0 if that is unknown."""

    async def compact(self, revision: int) -> None:
        """Forget history up to `revision`, or up to now if that is earlier; what keys hold now stays."""

    async def check_read(self) -> None:
        """Raise a StoreError if the store cannot be read now. This reads from the medium, not from memory."""

    async def check_write(self) -> None:
        """Raise a StoreError if a write would fail now. This writes to the medium, at most once in a second."""

    async def close(self) -> None:
        """Finish the writes under way, then refuse everything with `StoreClosed`. Closing twice is harmless."""


class StoreError(Exception):
    """Any error of a store.

    StoreError
    ├── Conflict         the key is not as expected: read it again and decide again
    ├── Compacted        that much history is forgotten: list, then watch from there
    ├── FutureRevision   that revision is not written yet
    ├── WriteFailed      the medium refused (full, broken): nothing of the write is visible
    │   └── ValueTooLarge   the medium takes no value of this size
    ├── Removed          the file was removed while it was open: put it back and restart
    ├── Damaged          what is stored is not ours or not intact: restore a backup
    │   └── LostWrites   acknowledged writes are missing: put them back, or accept the loss
    ├── MissingKey       what is stored is encrypted with a key that is not here: add the key again
    ├── EncryptionFailed a value cannot be encrypted or decrypted now: mend the provider of its key
    ├── KeyFileError     the file of the encryption keys is of no use: correct it
    ├── TooNew           a newer release wrote it: upgrade
    ├── Locked           another process has it open
    └── StoreClosed           this store was closed
    """


class Conflict(StoreError):
    """The key is not as the writer expected; `current` is what it holds."""

    def __init__(self, key: str, *, expected: int | None, current: Record | None) -> None:
        self.key = key
        self.expected = expected
        self.current = current
        wanted = "to exist" if expected is None else "not to exist" if expected == 0 else f"at revision {expected}"
        state = "does not exist" if current is None else f"is at revision {current.revision}"
        super().__init__(f"expected {key!r} {wanted}, but it {state}; read it again")


class Compacted(StoreError):
    """History after `revision` is asked for, but it is forgotten up to `compacted`."""

    def __init__(self, revision: int, *, compacted: int) -> None:
        self.revision = revision
        self.compacted = compacted
        super().__init__(
            f"revision {revision} is compacted, history begins at {compacted}; list again and go on from there"
        )


class FutureRevision(StoreError):
    """A state is asked for that is not written yet."""

    def __init__(self, revision: int, *, current: int) -> None:
        self.revision = revision
        self.current = current
        super().__init__(f"revision {revision} is not written yet, the store is at {current}; wait or ask for less")


class WriteFailed(StoreError):
    """The medium did not take a commit; none of its writes happened."""


class ValueTooLarge(WriteFailed):
    """The value is larger than the medium takes."""


class Removed(StoreError):
    """The file, or the lock beside it, was removed while the store had it open."""


class Damaged(StoreError):
    """The stored data cannot be trusted. It was left exactly as it was found."""


class LostWrites(Damaged):
    """The stored data ends before the last acknowledged write. It was left exactly as it was found."""

    def __init__(self, path: Path, *, reached: int, acknowledged: int, reason: str) -> None:
        self.reached = reached
        self.acknowledged = acknowledged
        super().__init__(
            f"{path} should reach revision {acknowledged}, the last acknowledged write, and ends at revision "
            f"{reached}: {reason}. The {acknowledged - reached} revisions after {reached} are lost. Put the missing "
            "file back, or start with --accept-data-loss to go on without them"
        )


class EncryptionFailed(StoreError):
    """A value cannot be encrypted or decrypted. The message has Kubernetes' words, and names the provider."""


class TooNew(StoreError):
    """The stored data has the format of a newer release. It was left exactly as it was found."""


class Locked(StoreError):
    """Another process, or another store of this one, has it open."""


class StoreClosed(StoreError):
    """The store was closed."""

    def __init__(self) -> None:
        super().__init__("the store is closed; open it again")


def is_expected(expected: int | None, current: Record | None) -> bool:
    """Whether a put that expects this may replace `current`."""
    return expected is None or expected == (0 if current is None else current.revision)


_FEW = 64
_LAST = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def check_key(key: str) -> None:
    """Refuse text that UTF-8 cannot carry with ValueError, before it meets other people's writes."""
    if not key.isascii():
        key.encode()


def end_of(prefix: str) -> str | None:
    """Return the smallest text after all that begins with `prefix`; None if there is nothing after."""
    stem = prefix.rstrip(chr(_LAST))
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    return stem[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


class SortedKeys:
    """A set of keys that can be read in order.

    Adding and removing are O(1): changes wait until the next read. Then a few keys are put in their places
    one by one, and many by a single merge of two runs, which is what Python's sort does.
    """

    def __init__(self, keys: list[str]) -> None:
        self._keys = sorted(keys)
        self._added: list[str] = []
        self._removed: set[str] = set()

    def fork(self) -> SortedKeys:
        """Return a set with the same keys, which changes on its own."""
        twin = SortedKeys([])
        self._settle()
        twin._keys = self._keys.copy()
        return twin

    def add(self, key: str) -> None:
        """Add a key that is not there."""
        if key in self._removed:
            self._removed.discard(key)
        else:
            self._added.append(key)

    def remove(self, key: str) -> None:
        """Remove a key that is there."""
        self._removed.add(key)
        if len(self._removed) > 1000 and 2 * len(self._removed) > len(self._keys) + len(self._added):
            self._settle()  # There may never be a read: removed keys must not pile up.

    def between(self, first: str, end: str | None) -> list[str]:
        """Return the keys from `first` to before `end`, in order."""
        self._settle()
        return self._keys[bisect_left(self._keys, first) : None if end is None else bisect_left(self._keys, end)]

    def _settle(self) -> None:
        if self._removed:
            if len(self._removed) <= _FEW:
                self._remove_singly()
            else:
                self._keys = [key for key in self._keys if key not in self._removed]
                self._added = [key for key in self._added if key not in self._removed]
            self._removed.clear()
        if self._added:
            if len(self._added) <= _FEW:
                for key in self._added:
                    insort(self._keys, key)
            else:
                self._added.sort()
                self._keys += self._added
                self._keys.sort()
            self._added = []

    def _remove_singly(self) -> None:
        for key in self._removed:
            at = bisect_left(self._keys, key)
            if at < len(self._keys) and self._keys[at] == key:
                del self._keys[at]
            else:
                self._added.remove(key)
