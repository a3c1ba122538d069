"""The order of API versions by preference."""

from __future__ import annotations

import re

_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
_STABILITY = {None: 0, "beta": 1, "alpha": 2}


def version_rank(version: str) -> tuple[int, int, int, str]:
    """Return a sort key: v2, v1, v2beta2, v2beta1, v1alpha1, then other names alphabetically."""
    parsed = _VERSION.fullmatch(version)
    if parsed is None:
        return len(_STABILITY), 0, 0, version
    major, stability, step = parsed.groups()
    return _STABILITY[stability], -int(major), -int(step or 0), version
