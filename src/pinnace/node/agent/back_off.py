"""The back-off of containers that end again and again: 10 s, doubled up to 5 minutes, as kubelet has it."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_SECONDS = 10.0
MOST_SECONDS = 300.0
_GOOD_SECONDS = 600.0
"""A container that ran this long starts over without a delay."""


@dataclass(slots=True)
class BackOff:
    """The delay before the next restart of one container."""

    seconds: float = 0.0
    until: float = 0.0

    def note_end(self, now: float, ran_seconds: float) -> None:
        """Call once for each end of the container. The first restart comes at once."""
        if ran_seconds >= _GOOD_SECONDS:
            self.seconds = 0.0
        self.until = now + self.seconds
        self.seconds = min(self.seconds * 2, MOST_SECONDS) if self.seconds else FIRST_SECONDS

    def remaining(self, now: float) -> float:
        return max(0.0, self.until - now)

    @property
    def text(self) -> str:
        """The delay in Go's notation, for the message of CrashLoopBackOff."""
        seconds = int(self.seconds / 2) if self.seconds > FIRST_SECONDS else int(FIRST_SECONDS)
        if self.seconds >= MOST_SECONDS:
            return "5m0s"
        minutes, rest = divmod(seconds, 60)
        return f"{minutes}m{rest}s" if minutes else f"{rest}s"
