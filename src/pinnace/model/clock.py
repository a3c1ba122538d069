"""All time comes from a Clock, so that a test can own it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime: ...


class SystemClock:
    """The machine's own time."""

    def now(self) -> datetime:
        return datetime.now(UTC)


def to_rfc3339(moment: datetime) -> str:
    """Kubernetes' `Time`: whole seconds, UTC, with a Z."""
    return moment.isoformat(timespec="seconds")[:19] + "Z"


def to_rfc3339_micro(moment: datetime) -> str:
    """Kubernetes' `MicroTime`: six digits, UTC, with a Z."""
    return moment.isoformat(timespec="microseconds")[:26] + "Z"
