"""Lengths of time as Go writes them: 30s, 1h30m, 250ms."""

from __future__ import annotations

import re

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")


def seconds_of(text: str) -> float:
    """How many seconds a duration is. Raises ValueError."""
    if text == "0":
        return 0.0
    sign = -1.0 if text.startswith("-") else 1.0
    rest = text.lstrip("+-")
    parts = _PART.findall(rest)
    if not parts or "".join(number + unit for number, unit in parts) != rest:
        raise ValueError(f'time: invalid duration "{text}"; write 30s, 5m or 1h30m')
    return sign * sum(float(number) * _UNITS[unit] for number, unit in parts)
