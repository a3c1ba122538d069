"""What the server holds in memory: every object as the bytes that a client gets, and the changes just made.

A value in the store carries no resourceVersion, since its revision is known only once it is committed. The revision is
stamped in when the change comes back, right behind `"metadata":{`, which the pipeline always writes third.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping

import orjson

from pinnace.model.objects import Object
from pinnace.store import store as stores
from pinnace.store.keys import SortedKeys

_METADATA = b'"metadata":{'
_LABELS = b'"labels":{'
_STAMP = b'"resourceVersion":"'
_NO_LABELS: dict[str, str] = {}
_NO_KEYS: set[str] = set()

RECENT_EVENTS = 2048
"""How many changes of one resource are held in memory for watchers that come back; older ones come from the store."""
RECENT_BYTES = 16 << 20
"""How large the objects in these changes may be together: definitions of custom kinds are large."""


def stamp(value: bytes, revision: int) -> bytes:
    """The bytes that clients get: the stored value with its revision written in."""
    at = value.index(_METADATA) + len(_METADATA)
    comma = b"" if value[at : at + 1] == b"}" else b","
    return b'%b"resourceVersion":"%d"%b%b' % (value[:at], revision, comma, value[at:])


def restamp(body: bytes, revision: int) -> bytes:
    """The same object at another revision: what a deletion shows of what was deleted."""
    start = body.index(_METADATA) + len(_METADATA) + len(_STAMP)
    return b"%b%d%b" % (body[:start], revision, body[body.index(b'"', start) :])


class CachedObject:
    """One object at one revision. Labels and fields are decoded when first asked for, then kept."""

    __slots__ = ("_fields", "_labels", "body", "revision", "shown")

    def __init__(self, body: bytes, revision: int) -> None:
        self.body = body
        self.revision = revision
        self._labels: dict[str, str] | None = None
        self._fields: tuple[object, dict[str, str]] | None = None
        self.shown: dict[str, tuple[object, bytes]] | None = None
        """By version: what an object of a custom kind looks like there, and to which resource (see presentation)."""

    def at(self, revision: int) -> CachedObject:
        """The same object as a later change shows it."""
        moved = CachedObject(restamp(self.body, revision), revision)
        if self.shown is not None:
            moved.shown = {version: (of, restamp(body, revision)) for version, (of, body) in self.shown.items()}
        return moved

    def decode(self) -> Object:
        """A fresh object: the caller may change it."""
        obj: Object = orjson.loads(self.body)
        return obj

    @property
    def labels(self) -> dict[str, str]:
        if self._labels is None:
            # Most have none, and need not be decoded to know it.
            is_labelled = _LABELS in self.body
            self._labels = (self.decode()["metadata"].get("labels") or _NO_LABELS) if is_labelled else _NO_LABELS
        return self._labels

    def fields(self, selectable: Mapping[str, Callable[[Object], str]]) -> dict[str, str]:
        """The values of the fields that this resource can be selected by."""
        known = self._fields
        if known is None or known[0] is not selectable:
            obj = self.decode()
            known = self._fields = (selectable, {name: value(obj) for name, value in selectable.items()})
        return known[1]


class CacheEvent:
    """One change as watchers see it: what the entry was and what it is; `frames` are shared by all who want them."""

    __slots__ = ("frames", "key", "new", "old", "revision")

    def __init__(self, key: str, revision: int, new: CachedObject | None, old: CachedObject | None) -> None:
        self.key = key
        self.revision = revision
        self.new = new
        self.old = old
        self.frames: dict[object, bytes] | None = None


def _size(event: CacheEvent) -> int:
    """What an event holds that would be gone without it: mostly what the object was before."""
    return len(event.old.body) if event.old is not None else 0


class WatchCache:
    """The objects of one resource, by namespace/name (or name), and its last changes."""

    def __init__(self, prefix: str, *, revision: int) -> None:
        self.prefix = prefix
        self.entries: dict[str, CachedObject] = {}
        self.changed = revision
        """The revision of the last change here, or of the start, before which more may have changed than is known."""
        self.recent: deque[CacheEvent] = deque()
        self._recent_bytes = 0
        self.recent_since = revision
        """Every change after this revision is in `recent`."""
        self._keys = SortedKeys([])
        self._by_label: dict[tuple[str, str], set[str]] | None = None  # Made when labels are first asked for.

    def load(self, key: str, entry: CachedObject) -> None:
        """Put what was there before this process, without telling anyone."""
        if key not in self.entries:
            self._keys.add(key)
        self.entries[key] = entry
        self.changed = max(self.changed, entry.revision)
        self._by_label = None

    def apply(self, change: stores.Change, key: str) -> CacheEvent:
        old = self.entries.get(key)
        if change.value is None:
            new = None
            if old is not None:
                del self.entries[key]
                self._keys.remove(key)
                old = old.at(change.revision)
        else:
            new = CachedObject(stamp(change.value, change.revision), change.revision)
            self.entries[key] = new
            if old is None:
                self._keys.add(key)
        self.changed = change.revision
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

    def keys_of(self, namespace: str = "", *, after: str = "") -> list[str]:
        """The keys in order, of one namespace or of all, behind `after`."""
        first = f"{namespace}/" if namespace else ""
        if after:
            first = max(first, after + "\0")
        return self._keys.between(first, f"{namespace}0" if namespace else None)  # "0" follows "/".

    def keys_labelled(self, labels: Mapping[str, str], namespace: str = "", *, after: str = "") -> list[str]:
        """The keys in order of those objects that have the rarest of these labels. There must be one at least."""
        if self._by_label is None:
            self._by_label = {}
            for key, entry in self.entries.items():
                self._index(key, None, entry)
        found = min((self._by_label.get(label, _NO_KEYS) for label in labels.items()), key=len)
        beginning = f"{namespace}/" if namespace else ""
        return sorted(key for key in found if key.startswith(beginning) and key > after)

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
        """The remembered changes after a revision, oldest first."""
        fresh = []
        for event in reversed(self.recent):
            if event.revision <= revision:
                break
            fresh.append(event)
        return reversed(fresh)
