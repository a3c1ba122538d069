"""Remembers what texts mean. Anybody may send long ones by the thousand: those are worked out each time."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

_Meaning = TypeVar("_Meaning")

LONGEST = 1024


def remembered(
    most: int, *, longest: int = LONGEST
) -> Callable[[Callable[[str], _Meaning]], Callable[[str], _Meaning]]:
    """Of a function of one text, keep the `most` last results, but for texts that are longer than `longest`."""

    def remembering(function: Callable[[str], _Meaning]) -> Callable[[str], _Meaning]:
        known = lru_cache(maxsize=most)(function)

        @wraps(function)
        def look(text: str) -> _Meaning:
            return known(text) if len(text) <= longest else function(text)

        return look

    return remembering
