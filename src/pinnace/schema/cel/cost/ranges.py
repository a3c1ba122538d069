"""Ranges of costs and sizes, and their arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass

UNLIMITED = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Range:
    """The least and the most of a cost or size; sums and products stay below UNLIMITED."""

    least: int
    most: int

    def __add__(self, other: Range) -> Range:
        return Range(min(self.least + other.least, UNLIMITED), min(self.most + other.most, UNLIMITED))

    def __mul__(self, other: Range) -> Range:
        return Range(min(self.least * other.least, UNLIMITED), min(self.most * other.most, UNLIMITED))

    def scale(self, factor: float) -> Range:
        return Range(_scale(self.least, factor), _scale(self.most, factor))

    def union(self, other: Range) -> Range:
        return Range(min(self.least, other.least), max(self.most, other.most))


def _scale(value: int, factor: float) -> int:
    if value > 0 and factor > 0 and float(value) > UNLIMITED / factor:
        return UNLIMITED
    return min(math.ceil(float(value) * factor), UNLIMITED)


def exactly(value: int) -> Range:
    return Range(value, value)


ANY_SIZE = Range(0, UNLIMITED)
NOTHING = exactly(0)
ONE = exactly(1)
