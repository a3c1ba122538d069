"""Durations in Go's format: 30s, 1h30m, 250ms."""

from __future__ import annotations

from pinnace.schema.cel.times import parse_duration
from pinnace.schema.cel.values import NANOS


def seconds_of(text: str) -> float:
    """Return the seconds of a duration. Raise ValueError."""
    try:
        return parse_duration(text).nanos / NANOS
    except ValueError:
        raise ValueError(f'time: invalid duration "{text}"; write 30s, 5m or 1h30m') from None
