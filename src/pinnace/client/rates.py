"""Limit how often something happens, by a token bucket."""

from __future__ import annotations

from dataclasses import dataclass

from pinnace.process.clock import AlarmClock


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `per_second` on average; up to `burst` at once."""

    per_second: float
    burst: int = 0
    """0 for as many as in one second, at least one."""

    def __post_init__(self) -> None:
        if self.per_second <= 0:
            raise ValueError(f"a rate of {self.per_second} per second never lets anything happen: write more than 0")


class RateLimiter:
    """The tokens that are left of a rate."""

    def __init__(self, rate: Rate, clock: AlarmClock) -> None:
        self._per_second = rate.per_second
        self._burst = float(rate.burst or max(1, round(rate.per_second)))
        self._clock = clock
        self._left = self._burst
        self._at = clock.monotonic()

    def reserve(self) -> float:
        """Take a token; return the seconds until it may be used, 0 for now."""
        now = self._clock.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second) - 1
        self._at = now
        return max(0.0, -self._left / self._per_second)
