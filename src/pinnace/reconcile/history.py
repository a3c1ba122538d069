"""Why each object was reconciled, and what came of it: kept for those who ask `why`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from pinnace.model.objects import Key, Kind

_RUNS = 2000
_REASONS = 10


class Reason(NamedTuple):
    """One thing that made somebody look at an object."""

    what: str
    """added, modified, deleted, resync, retry, requeue; or what the caller of `enqueue` says."""
    kind: Kind | None = None
    key: Key | None = None
    version: str = ""

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


class History:
    """The reasons that wait for each key, and the last runs."""

    def __init__(self) -> None:
        self._waiting: dict[Key, list[Reason]] = {}
        self._runs: deque[Run] = deque(maxlen=_RUNS)

    def expect(self, key: Key, reason: Reason) -> None:
        waiting = self._waiting.setdefault(key, [])
        if len(waiting) < _REASONS:
            waiting.append(reason)

    def take(self, key: Key) -> tuple[Reason, ...]:
        """The reasons for the run that begins."""
        return tuple(self._waiting.pop(key, ()))

    def add(self, run: Run) -> None:
        self._runs.append(run)

    def of(self, key: Key) -> Iterator[Run]:
        """The runs of one object that are still known, the newest first."""
        return (run for run in reversed(self._runs) if run.key == key)
