"""The order in which clients prefer the versions of an API."""

from __future__ import annotations

import re

from pinnace.schema.golang.numbers import parse_int

_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
_STABILITY = {None: 0, "beta": 1, "alpha": 2}


def version_rank(version: str) -> tuple[int, int, int, str]:
    """Return a sort key: v2, v1, v2beta2, v2beta1, v1alpha1 in this order, and other names last, by their letters."""
    parsed = _VERSION.fullmatch(version)
    if parsed is None:
        return len(_STABILITY), 0, 0, version
    stability, major, step = parsed[2], parse_int(parsed[1]), parse_int(parsed[3] or "0")
    if major is None or step is None:
        return len(_STABILITY), 0, 0, version
    return _STABILITY[stability], -major, -step, version
