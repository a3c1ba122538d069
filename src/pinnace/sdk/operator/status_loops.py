"""Report a handler that changes the status in every call: each change is the reason for the next call."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from pinnace.model.clock import AlarmClock
from pinnace.model.objects import Key, Object

CALLS = 25
SECONDS = 25.0
"""Report so many calls in a row within this time, once. Observations of the world change more slowly."""


@dataclass(slots=True)
class _Streak:
    version: str
    """The version of the object that the last call wrote."""
    since: float
    calls: int = 1
    is_reported: bool = False


@dataclass(frozen=True, slots=True)
class StatusLoops:
    """Counts the calls in a row that began with the version which the call before had written, and wrote another."""

    clock: AlarmClock
    _streaks: dict[Key, _Streak] = field(default_factory=dict)

    def note(self, key: Key, obj: Object, version: str, changes: Object, log: logging.LoggerAdapter[Any]) -> None:
        """Note a call for `obj` that wrote `version`, or nothing if that is empty."""
        streak = self._streaks.get(key)
        if not version:
            self._streaks.pop(key, None)
        elif streak is None or streak.version != obj["metadata"]["resourceVersion"]:
            self._streaks[key] = _Streak(version, self.clock.monotonic())
        else:
            streak.version = version
            streak.calls += 1
            if streak.calls >= CALLS and not streak.is_reported:
                self._report(streak, changes, log)

    def forget(self, key: Key) -> None:
        """Forget an object that is gone."""
        self._streaks.pop(key, None)

    def _report(self, streak: _Streak, changes: Object, log: logging.LoggerAdapter[Any]) -> None:
        now = self.clock.monotonic()
        if now - streak.since > SECONDS:
            streak.calls, streak.since = 1, now
            return
        streak.is_reported = True
        log.warning(
            "every call changes the status (%s), and each change is the reason for the next call: %d calls in %.1f s. "
            "Store values that stay the same while nothing happens: no counters, no current time",
            ", ".join(sorted(changes)),
            streak.calls,
            now - streak.since,
        )
