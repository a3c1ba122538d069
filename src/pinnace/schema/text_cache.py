"""Caches functions of one text. Neither long texts nor long lists of texts are cached: a client may send many."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

_Result = TypeVar("_Result")

LONGEST = 1024
MOST_CACHED = 256
"""The entries of a longer list or map are not looked up in a cache: they would evict all others, and stay."""


def cache_short_texts(
    most: int, *, longest: int = LONGEST
) -> Callable[[Callable[[str], _Result]], Callable[[str], _Result]]:
    """Cache the last `most` results of a function of one text, except for texts longer than `longest`."""

    def cache(function: Callable[[str], _Result]) -> Callable[[str], _Result]:
        known = lru_cache(maxsize=most)(function)

        @wraps(function)
        def lookup(text: str) -> _Result:
            return known(text) if len(text) <= longest else function(text)

        return lookup

    return cache
