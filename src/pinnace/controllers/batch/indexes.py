"""Sets of completion indexes, kept as intervals and written as in a Job's status: 1,3-5,7."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Interval(NamedTuple):
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Indexes:
    """A set of indexes: intervals in order, none of which touches the next."""

    intervals: tuple[Interval, ...] = ()

    @classmethod
    def parse(cls, text: str, completions: int) -> Indexes:
        """Read the indexes below `completions`. Parts that are not numbers are left out."""
        parts = (_interval(part) for part in text.split(",")) if text else ()
        kept = (part for part in parts if part is not None and part.first < completions)
        return cls(_merge(Interval(part.first, min(part.last, completions - 1)) for part in kept))

    @classmethod
    def of(cls, indexes: Iterable[int]) -> Indexes:
        return cls(_merge(Interval(index, index) for index in indexes))

    def __or__(self, other: Indexes) -> Indexes:
        return Indexes(_merge((*self.intervals, *other.intervals)))

    def __contains__(self, index: int) -> bool:
        at = bisect_left(self.intervals, index, key=lambda interval: interval.last)
        return at < len(self.intervals) and self.intervals[at].first <= index

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.intervals)

    def __str__(self) -> str:
        return ",".join(_format(interval) for interval in self.intervals)

    def overlap(self, other: Indexes) -> int:
        """Return how many indexes are in both."""
        common, mine, theirs = 0, 0, 0
        while mine < len(self.intervals) and theirs < len(other.intervals):
            first, two = self.intervals[mine], other.intervals[theirs]
            common += max(0, min(first.last, two.last) - max(first.first, two.first) + 1)
            if first.last <= two.last:
                mine += 1
            if two.last <= first.last:
                theirs += 1
        return common

    def missing(self, completions: int) -> Iterator[int]:
        """Yield the indexes below `completions` that are not in the set, in order."""
        candidate = 0
        for first, last in self.intervals:
            yield from range(candidate, min(first, completions))
            candidate = max(candidate, last + 1)
        yield from range(candidate, completions)


def _interval(text: str) -> Interval | None:
    first, dash, last = text.partition("-")
    if not _is_number(first) or (dash and not _is_number(last)):
        return None
    return Interval(int(first), int(last) if dash else int(first))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10


def _merge(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    merged: list[Interval] = []
    for interval in sorted(intervals):
        if merged and interval.first <= merged[-1].last + 1:
            merged[-1] = Interval(merged[-1].first, max(merged[-1].last, interval.last))
        else:
            merged.append(interval)
    return tuple(merged)


def _format(interval: Interval) -> str:
    first, last = interval
    if first == last:
        return str(first)
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"
