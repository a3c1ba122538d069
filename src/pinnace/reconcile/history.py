"""Why each object was reconciled, and what came of it: kept for those who ask `why`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from pinnace.client.snapshots import Snapshot
from pinnace.model.objects import Key, Kind, Object
from pinnace.model.patches.last_applied import LAST_APPLIED

_RUNS = 2000
_REASONS = 10
_CHANGES = 500
"""So many changes are kept whole, to tell which fields they changed: objects may be large."""
_FIELDS = 20
_SERVERS_OWN = frozenset(("managedFields", "resourceVersion", "generation"))


class Change:
    """An object before and after. Both are let go when many others have changed since."""

    __slots__ = ("_new", "_old")

    def __init__(self, old: Snapshot, new: Snapshot) -> None:
        self._old: Snapshot | None = old
        self._new: Snapshot | None = new

    def forget(self) -> None:
        self._old = self._new = None

    @property
    def fields(self) -> list[str]:
        """The fields that differ, such as .spec.replicas; the first of them, if they are many."""
        if self._old is None or self._new is None:
            return []
        return list(_differing(self._old.object, self._new.object, ""))[:_FIELDS]

    @property
    def managers(self) -> list[str]:
        """Who wrote what differs, as far as the server has noted it: "kubectl (Update)"."""
        if self._old is None or self._new is None:
            return []
        known = self._old.metadata.get("managedFields") or ()
        entries = self._new.metadata.get("managedFields") or ()
        written = [entry for entry in entries if entry not in known]
        if not written:  # Times are kept by the second: a second write within one leaves no trace but the fields.
            fields = self.fields
            written = [entry for entry in entries if any(_owns(entry.get("fieldsV1") or {}, at) for at in fields)]
        return [_manager(entry) for entry in written]


class Reason(NamedTuple):
    """One thing that made somebody look at an object."""

    what: str
    """added, modified, deleted, resync, retry, requeue; or what the caller of `enqueue` says."""
    kind: Kind | None = None
    key: Key | None = None
    version: str = ""
    change: Change | None = None

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
    """Seconds between when it was due and when somebody began."""
    again: float = 0.0
    """Seconds until it is looked at again although nothing changes; 0 if it is not."""


class History:
    """The reasons that wait for each key, and the last runs."""

    def __init__(self) -> None:
        self._waiting: dict[Key, list[Reason]] = {}
        self._runs: deque[Run] = deque(maxlen=_RUNS)
        self._changes: deque[Change] = deque()

    def expect(self, key: Key, reason: Reason) -> None:
        waiting = self._waiting.setdefault(key, [])
        if len(waiting) < _REASONS:
            waiting.append(reason)
            if reason.change is not None:
                self._keep(reason.change)

    def take(self, key: Key) -> tuple[Reason, ...]:
        """The reasons for the run that begins."""
        return tuple(self._waiting.pop(key, ()))

    def add(self, run: Run) -> None:
        self._runs.append(run)

    def of(self, key: Key) -> Iterator[Run]:
        """The runs of one object that are still known, the newest first."""
        return (run for run in reversed(self._runs) if run.key == key)

    def latest(self) -> Iterator[Run]:
        """The runs of all objects that are still known, the newest first."""
        return reversed(self._runs)

    def _keep(self, change: Change) -> None:
        self._changes.append(change)
        if len(self._changes) > _CHANGES:
            self._changes.popleft().forget()


def _differing(old: Any, new: Any, at: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            if not (at == ".metadata" and name in _SERVERS_OWN) and name != LAST_APPLIED:
                yield from _differing(old.get(name), new.get(name), f"{at}.{name}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for place, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _differing(one, other, f"{at}[{place}]")
    elif old != new:
        yield at


def _owns(fields: Any, path: str) -> bool:
    """Whether a set of managed fields has this one, or a field that it is in."""
    for name in path.partition("[")[0].removeprefix(".").split("."):
        inner = fields.get(f"f:{name}") if isinstance(fields, dict) else None
        if inner is None:
            return False
        fields = inner
        if not fields or set(fields) == {"."}:
            return True
    return True


def _manager(entry: Object) -> str:
    below = f", {entry['subresource']}" if entry.get("subresource") else ""
    return f"{entry.get('manager', '')} ({entry.get('operation', '')}{below})"
