"""Delays between the attempts at something that fails."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Delays that double from `first` to `longest`. Jitter separates clients that failed together."""

    first: float = 0.1
    longest: float = 10.0
    jitter: float = 0.5
    """The random part of each delay: 0.5 gives between half of it and all of it."""
    random: Callable[[], float] = random.random

    def delay(self, failures: int) -> float:
        """Return the delay after that many failures in a row, one or more."""
        # The exponent is bounded: an object may fail for weeks.
        whole = min(self.longest, self.first * 2.0 ** min(failures - 1, 60))
        return whole * (1 - self.jitter * self.random())
