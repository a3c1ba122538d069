"""Durations in Go's notation, such as 1m30s or 250ms."""

from __future__ import annotations

import re

_LONGEST = 128
"""A longer text is no duration: the annotation of a pod may state one."""
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_part = re.compile(r"([0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(ns|us|µs|ms|s|m|h)")


def parse_duration(text: str) -> float | None:
    """Return the seconds, or None if the text is not a duration."""
    if len(text) > _LONGEST:
        return None
    seconds, position = 0.0, 0
    for part in _part.finditer(text):
        if part.start() != position:
            return None
        seconds += float(part[1]) * _UNITS[part[2]]
        position = part.end()
    return seconds if position == len(text) and text else None
