"""The watch cache: every object of one resource as the bytes that clients get, and its last changes.

A stored value has no resourceVersion, because its revision is known only once it is committed. The revision is
stamped in when the change comes back, right after `"metadata":{`, which the pipeline always writes third.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import orjson

from pinnace.model.objects import Object
from pinnace.store import store as stores
from pinnace.store.store import SortedKeys

_METADATA = b'"metadata":{'
_LABELS = b'"labels":{'
_STAMP = b'"resourceVersion":"'
_STAMPED = _METADATA + _STAMP + b'%d",'
_EMPTY_STAMPED = _METADATA + _STAMP + b'%d"'
_BRACE = ord("}")
_STAMP_SIZE = len(_STAMP) + len(b'",')
"""The bytes that a stamp adds, without the digits. Stored metadata is never empty."""
_NO_LABELS: dict[str, str] = {}
_NO_KEYS: set[str] = set()
_MOST_SORTED = 5_000
"""More keys are taken from those of all objects, which are in order already."""

RECENT_EVENTS = 2048
"""How many changes of one resource stay in memory for watchers that resume; older ones come from the store."""
RECENT_BYTES = 16 << 20
"""The total size of the objects in these changes: CustomResourceDefinitions are large."""
LARGE_EVENT = 256 << 10


def stamp(value: bytes, revision: int) -> bytes:
    """Return the bytes that clients get: the stored value with its revision as resourceVersion."""
    is_empty = value[value.index(_METADATA) + len(_METADATA)] == _BRACE
    stamped = _EMPTY_STAMPED if is_empty else _STAMPED
    return value.replace(_METADATA, stamped % revision, 1)


def restamp(body: bytes, revision: int) -> bytes:
    """Return the same object at another revision, such as that of its deletion."""
    start = body.index(_METADATA) + len(_METADATA) + len(_STAMP)
    return b"%b%d%b" % (body[:start], revision, body[body.index(b'"', start) :])


class CachedObject:
    """One object at one revision. Labels and selectable fields are decoded at the first use and kept."""

    __slots__ = ("_fields", "_labels", "body", "protobuf", "revision", "served", "stored")

    def __init__(self, body: bytes, revision: int) -> None:
        self.body = body
        self.stored: bytes | None = None
        """The stored value of an object whose body is made at its first use. Its size is known without the body."""
        self.revision = revision
        self._labels: dict[str, str] | None = None
        self._fields: tuple[object, dict[str, str]] | None = None
        self.served: dict[str, tuple[object, bytes]] | None = None
        """By version: the resource and the bytes of a custom object (see served_versions)."""
        self.protobuf: tuple[object, bytes] | None = None
        """The message of an object that a client has read as protobuf, and the representation that made it."""

    @classmethod
    def from_store(cls, value: bytes, revision: int) -> CachedObject:
        """Return an object whose `body` is made at the first use: a start reads many that no client asks for soon."""
        entry = cls.__new__(cls)
        entry.stored = value
        entry.revision = revision
        entry._labels = entry._fields = entry.served = entry.protobuf = None
        return entry

    def __getattr__(self, name: str) -> bytes:
        # Called only where an attribute is missing: the body of an object that was read at the start.
        if name != "body" or self.stored is None:
            raise AttributeError(name)
        body = self.body = stamp(self.stored, self.revision)
        return body

    def at(self, revision: int) -> CachedObject:
        """Return the same object at a later revision."""
        moved = CachedObject(restamp(self.body, revision), revision)
        if self.served is not None:
            moved.served = {version: (of, restamp(body, revision)) for version, (of, body) in self.served.items()}
        return moved

    def decode(self) -> Object:
        """Return a new object: the caller may change it."""
        obj: Object = orjson.loads(self.body)
        return obj

    @property
    def labels(self) -> dict[str, str]:
        if self._labels is None:
            # Most have no labels: a search of the bytes is enough to know.
            is_labelled = _LABELS in self.body
            self._labels = (self.decode()["metadata"].get("labels") or _NO_LABELS) if is_labelled else _NO_LABELS
        return self._labels

    def fields(self, selectable: Mapping[str, Callable[[Object], str]]) -> dict[str, str]:
        """Return the values of the selectable fields."""
        known = self._fields
        if known is None or known[0] is not selectable:
            obj = self.decode()
            known = self._fields = (selectable, {name: value(obj) for name, value in selectable.items()})
        return known[1]


@dataclass(slots=True, eq=False)
class CacheEvent:
    """One change: the object before and after it. `frames` holds the framed event, shared by all watchers."""

    key: str
    revision: int
    new: CachedObject | None
    old: CachedObject | None
    frames: dict[object, bytes] | None = None

    def drop_frames(self) -> None:
        """Free the framed event. It is framed again when it is needed."""
        self.frames = None


def _size(event: CacheEvent) -> int:
    """Return about the bytes that an event keeps in memory: its objects, or one of them and its frame.

    A large one counts four times, for its frames: few are kept, and a watcher that resumes reads them from the store.
    """
    new, old = event.new, event.old
    size = (len(new.body) if new is not None else 0) + (len(old.body) if old is not None else 0)
    return size if size < LARGE_EVENT else 4 * size


class WatchCache:
    """The objects of one resource, by namespace/name (or name), and its last changes."""

    def __init__(self, prefix: str, *, revision: int) -> None:
        self.prefix = prefix
        self.entries: dict[str, CachedObject] = {}
        self.bytes = 0
        """The size of all objects."""
        self.changed = revision
        """The revision of the last change, or that of the start: earlier changes are unknown."""
        self.changes = 0
        """How many changes the store has reported."""
        self.recent: deque[CacheEvent] = deque()
        self._recent_bytes = 0
        self.recent_since = revision
        """Every change after this revision is in `recent`."""
        self._keys = SortedKeys([])
        self._by_label: dict[tuple[str, str], set[str]] | None = None  # Built at the first search by label.
        self._is_indexed = False
        """Whether `_by_label` has all objects."""

    def fork(self, revision: int) -> WatchCache:
        """Return a cache of the same objects, which are shared, without the changes before this revision."""
        twin = WatchCache(self.prefix, revision=revision)
        twin.entries, twin._keys = self.entries.copy(), self._keys.fork()
        twin.bytes, twin.changed = self.bytes, self.changed
        return twin

    def load(self, keys: list[str], records: list[stores.Record]) -> None:
        """Add objects that were stored before this process started, without events.

        An object that has changed meanwhile stays as it is. Whole lists are handled at once: there may be many.
        """
        entries = self.entries
        if entries:
            old = [
                at for at, key in enumerate(keys) if key not in entries or entries[key].revision < records[at].revision
            ]
            keys, records = [keys[at] for at in old], [records[at] for at in old]
            self.bytes -= sum(len(entries[key].body) for key in keys if key in entries)
        values, revisions = [record.value for record in records], [record.revision for record in records]
        entries.update(zip(keys, map(CachedObject.from_store, values, revisions), strict=True))
        self._keys = SortedKeys(list(entries))
        self.bytes += sum(map(len, values)) + sum(map(len, map(str, revisions))) + _STAMP_SIZE * len(records)
        self.changed = max(self.changed, max(revisions, default=0))
        self._by_label, self._is_indexed = None, False

    def apply(self, change: stores.Change, key: str) -> CacheEvent:
        old = self.entries.get(key)
        if old is not None:
            self.bytes -= len(old.body)
        if change.value is None:
            new, old = None, self._remove(key, old, change.revision)
        else:
            new = self.entries[key] = CachedObject(stamp(change.value, change.revision), change.revision)
            self.bytes += len(new.body)
            if old is None:
                self._keys.add(key)
        self.changed = change.revision
        self.changes += 1
        if self._by_label is not None:
            self._index(key, old, new)
        event = CacheEvent(key, change.revision, new, old)
        self.recent.append(event)
        self._recent_bytes += _size(event)
        while len(self.recent) > RECENT_EVENTS or self._recent_bytes > RECENT_BYTES:
            oldest = self.recent.popleft()
            self._recent_bytes -= _size(oldest)
            self.recent_since = oldest.revision
        return event

    def _remove(self, key: str, old: CachedObject | None, revision: int) -> CachedObject | None:
        if old is None:
            return None
        del self.entries[key]
        self._keys.remove(key)
        return old.at(revision)

    def drop(self, key: str) -> None:
        """Forget an object without an event: it is stored, but cannot be decrypted."""
        entry = self.entries.pop(key, None)
        if entry is not None:
            self.bytes -= len(entry.body)
            self._keys.remove(key)
            self._by_label, self._is_indexed = None, False

    def forget_recent(self, revision: int) -> None:
        """Drop the recent changes: those up to a revision are not known one by one."""
        self.recent.clear()
        self._recent_bytes = 0
        self.recent_since = self.changed = max(self.changed, revision)

    def keys_of(self, namespace: str = "", *, after: str = "") -> list[str]:
        """Return the keys in order, of one namespace or of all, that follow `after`."""
        first = f"{namespace}/" if namespace else ""
        if after:
            first = max(first, after + "\0")
        return self._keys.between(first, f"{namespace}0" if namespace else None)  # "0" follows "/".

    def keys_with_labels(self, labels: Mapping[str, str], namespace: str = "", *, after: str = "") -> list[str]:
        """Return the keys, in order, of the objects with the rarest of these labels, or of more objects.

        At least one label is required. While `index_labels` runs for another request, all keys are returned.
        """
        if self._by_label is None:
            for _ in self.index_labels():
                pass
        assert self._by_label is not None
        keys = min((self._by_label.get(label, _NO_KEYS) for label in labels.items()), key=len)
        if not self._is_indexed or len(keys) > _MOST_SORTED:
            return self.keys_of(namespace, after=after)
        beginning = f"{namespace}/" if namespace else ""
        return sorted(key for key in keys if key.startswith(beginning) and key > after)

    @property
    def lacks_index(self) -> bool:
        """Whether `index_labels` has not begun."""
        return self._by_label is None

    def index_labels(self) -> Iterator[None]:
        """Build the index of labels, unless it is built or being built. Between two steps the cache may change."""
        if self._by_label is not None:
            return
        index: dict[tuple[str, str], set[str]] = {}
        self._by_label = index
        try:
            for key in list(self.entries):
                entry = self.entries.get(key)
                if entry is not None:  # Else it was deleted meanwhile.
                    for label in entry.labels.items():
                        index.setdefault(label, set()).add(key)
                yield
            self._is_indexed = self._by_label is index
        finally:
            if self._by_label is index and not self._is_indexed:  # The request was cancelled.
                self._by_label = None

    def _index(self, key: str, old: CachedObject | None, new: CachedObject | None) -> None:
        assert self._by_label is not None
        before, after = old.labels if old is not None else _NO_LABELS, new.labels if new is not None else _NO_LABELS
        if before == after:
            return
        for label in before.items():
            keys = self._by_label.get(label)
            if keys is not None:
                keys.discard(key)
                if not keys:
                    del self._by_label[label]
        for label in after.items():
            self._by_label.setdefault(label, set()).add(key)

    def since(self, revision: int) -> Iterator[CacheEvent]:
        """Return the recent changes after a revision, oldest first."""
        fresh = []
        for event in reversed(self.recent):
            if event.revision <= revision:
                break
            fresh.append(event)
        return reversed(fresh)
