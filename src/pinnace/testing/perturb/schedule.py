"""Disturbances: what goes wrong in one run of a scenario, and at which point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

DisturbanceKind = Literal[
    "crash", "stale-restart", "time-travel", "lost-answer", "failed-write", "overlap", "missed-state"
]
KINDS: tuple[DisturbanceKind, ...] = get_args(DisturbanceKind)
_MEANINGS: dict[DisturbanceKind, str] = {
    "crash": "the operator crashes right after its write {point} and is started again",
    "stale-restart": "the operator crashes right after its write {point}, and first sees the state before the step",
    "time-travel": "the operator crashes right after its write {point}, and first sees the state after the first step",
    "lost-answer": "write {point} of the operator is committed, and its answer is a time-out",
    "failed-write": "write {point} of the operator fails with an error of the server",
    "overlap": "a second replica works before write {point} of the first one is committed",
    "missed-state": "the operator misses event {point} of its watches, and lists again later",
}


@dataclass(frozen=True, slots=True, order=True)
class Disturbance:
    """One thing that goes wrong at one point: the n-th write of the operator, or the n-th event that it receives."""

    point: int
    kind: DisturbanceKind

    @classmethod
    def parse(cls, text: str) -> Disturbance:
        """Return the disturbance of a text such as crash:2. Raise ValueError."""
        kind, _, point = text.partition(":")
        for known in KINDS:
            if known == kind and point.isdigit() and int(point) > 0:
                return cls(int(point), known)
        raise ValueError(f"{text!r} is no disturbance; expected one of {', '.join(KINDS)}, and a point: crash:2")

    def __str__(self) -> str:
        return f"{self.kind}:{self.point}"

    @property
    def meaning(self) -> str:
        """The disturbance as a sentence."""
        return _MEANINGS[self.kind].format(point=self.point)
