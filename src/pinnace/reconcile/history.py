"""The reasons and results of the last reconciles, for `pinnace why`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from pinnace.client.snapshots import Snapshot
from pinnace.model.objects import Key, Kind
from pinnace.model.patches.last_applied import LAST_APPLIED
from pinnace.model.typed_objects import ManagedFieldsEntry

_RUNS = 2000
_REASONS = 10
_CHANGES = 500
"""The number of changes whose objects are kept, to list the changed fields."""
_CHANGED_BYTES = 1 << 20
"""The total size of the objects in these changes."""
_FIELDS = 20
_SERVERS_OWN = frozenset(("managedFields", "resourceVersion", "generation"))


class ObjectChange:
    """An object before and after a change. Both are dropped after many further changes."""

    __slots__ = ("_new", "_old")

    def __init__(self, old: Snapshot, new: Snapshot) -> None:
        self._old: Snapshot | None = old
        self._new: Snapshot | None = new

    def forget(self) -> None:
        self._old = self._new = None

    @property
    def size(self) -> int:
        """The bytes of both objects."""
        return sum(len(snapshot.body) for snapshot in (self._old, self._new) if snapshot is not None)

    @property
    def fields(self) -> list[str]:
        """The fields that differ, such as .spec.replicas; at most the first twenty."""
        if self._old is None or self._new is None:
            return []
        return list(differences(self._old.object, self._new.object, ""))[:_FIELDS]

    @property
    def managers(self) -> list[str]:
        """The field managers of the fields that differ, as far as managedFields has them: "kubectl (Update)"."""
        if self._old is None or self._new is None:
            return []
        known = self._old.metadata.get("managedFields") or ()
        entries = self._new.metadata.get("managedFields") or ()
        written = [entry for entry in entries if entry not in known]
        if not written:  # Times are in seconds: a second write within one changes only the fields.
            fields = self.fields
            written = [entry for entry in entries if any(_owns(entry.get("fieldsV1") or {}, at) for at in fields)]
        return [_manager(entry) for entry in written]


class Reason(NamedTuple):
    """One cause of a reconcile."""

    what: str
    """added, modified, deleted, resync, retry, requeue; or the text given to `enqueue`."""
    kind: Kind | None = None
    key: Key | None = None
    version: str = ""
    change: ObjectChange | None = None
    is_initial: bool = False
    """Whether the object existed when the informer started."""

    def __str__(self) -> str:
        if self.kind is None:
            return self.what
        return f"{self.kind.name} {self.key} was {self.what}" + (f" (version {self.version})" if self.version else "")


@dataclass(frozen=True, slots=True)
class Run:
    """One reconcile of one object."""

    key: Key
    began: datetime
    seconds: float
    reasons: tuple[Reason, ...]
    outcome: str
    """success, requeue_after, error, or terminal."""
    error: str = ""
    waited: float = 0.0
    """Seconds in the queue after it was due."""
    again: float = 0.0
    """Seconds until the next call even if nothing changes; 0 for none."""


ReconcileObserver = Callable[[Key, tuple[Reason, ...]], Callable[[Run], None]]
"""Called when a reconcile begins. It returns a function that is called when the reconcile ends."""


class History:
    """The reasons that wait for each key, and the last runs."""

    def __init__(self, *, most_runs: int = _RUNS) -> None:
        self._waiting: dict[Key, list[Reason]] = {}
        self._runs: deque[Run] = deque(maxlen=most_runs)
        self._changes: deque[ObjectChange] = deque()
        self._changed_bytes = 0
        self.observer: ReconcileObserver | None = None
        self._ends: dict[Key, Callable[[Run], None]] = {}

    def expect(self, key: Key, reason: Reason) -> None:
        waiting = self._waiting.setdefault(key, [])
        if len(waiting) < _REASONS:
            waiting.append(reason)
            if reason.change is not None:
                self._keep(reason.change)

    def waiting(self, key: Key) -> tuple[Reason, ...]:
        """Return the reasons for the next run."""
        return tuple(self._waiting.get(key, ()))

    def take(self, key: Key) -> tuple[Reason, ...]:
        """Take the reasons for the run that begins."""
        reasons = tuple(self._waiting.pop(key, ()))
        if self.observer is not None:
            self._ends[key] = self.observer(key, reasons)
        return reasons

    def add(self, run: Run) -> None:
        self._runs.append(run)
        if self._ends and (end := self._ends.pop(run.key, None)) is not None:
            end(run)

    def of(self, key: Key) -> Iterator[Run]:
        """Return the remembered runs of one object, the newest first."""
        return (run for run in reversed(self._runs) if run.key == key)

    def latest(self) -> Iterator[Run]:
        """Return the remembered runs of all objects, the newest first."""
        return reversed(self._runs)

    def _keep(self, change: ObjectChange) -> None:
        self._changes.append(change)
        self._changed_bytes += change.size
        while len(self._changes) > _CHANGES or self._changed_bytes > _CHANGED_BYTES:
            oldest = self._changes.popleft()
            self._changed_bytes -= oldest.size
            oldest.forget()


def differences(old: Any, new: Any, at: str = "") -> Iterator[str]:
    """Yield the fields that differ between two objects, such as .spec.replicas."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            if not (at == ".metadata" and name in _SERVERS_OWN) and name != LAST_APPLIED:
                yield from differences(old.get(name), new.get(name), f"{at}.{name}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for place, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, after, f"{at}[{place}]")
    elif old != new:
        yield at


def _owns(fields: Any, path: str) -> bool:
    """Return whether a set of managed fields has this field, or one that contains it."""
    for name in path.partition("[")[0].removeprefix(".").split("."):
        inner = fields.get(f"f:{name}") if isinstance(fields, dict) else None
        if inner is None:
            return False
        fields = inner
        if not fields or set(fields) == {"."}:
            return True
    return True


def _manager(entry: ManagedFieldsEntry) -> str:
    below = f", {entry['subresource']}" if entry.get("subresource") else ""
    return f"{entry.get('manager', '')} ({entry.get('operation', '')}{below})"
