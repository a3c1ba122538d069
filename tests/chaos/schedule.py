"""Which faults happen, to which part, in which order: decided by a seed alone, before anything runs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

NODES = ("node-a", "node-b", "node-c")
SERVER, CONTROLLERS = "server", "controllers"
HOUR = 3600


class Kind(StrEnum):
    KILL = "kill"
    """SIGKILL of the process; of a server, the controllers or an agent, which then starts again after `seconds`."""
    KILL_FORK_SERVER = "kill fork server"
    KILL_BELOW = "kill below fork server"
    """SIGKILL of a process that the fork server has started: a supervisor, a sandbox, a container."""
    PAUSE = "pause"
    PAUSE_FORK_SERVER = "pause fork server"
    FILL = "fill disk"
    JUMP = "clock jump"
    CUT = "cut connections"
    HALF_CLOSE = "half-close connections"
    HOLD = "hold connections"
    DELAY = "delay connections"


@dataclass(frozen=True, slots=True)
class Fault:
    kind: Kind
    target: str
    seconds: float
    """How long it lasts."""
    amount: int = 0
    """Of a clock jump, its seconds; of a killed process below a fork server, which of them."""

    def __str__(self) -> str:
        extra = f" by {self.amount:+d} s" if self.kind is Kind.JUMP else ""
        return f"{self.kind} of {self.target}{extra} for {self.seconds:g} s"


@dataclass(frozen=True, slots=True)
class Abilities:
    """The faults that this machine and user can make."""

    fills_disks: bool
    moves_clocks: bool


@dataclass(frozen=True, slots=True)
class Step:
    """Faults that overlap, and the action of a user meanwhile."""

    number: int
    faults: tuple[Fault, ...]
    action: str


PARTS = (SERVER, CONTROLLERS, *NODES)
TARGETS = {
    Kind.KILL: PARTS,
    Kind.KILL_FORK_SERVER: NODES,
    Kind.KILL_BELOW: NODES,
    Kind.PAUSE: PARTS,
    Kind.PAUSE_FORK_SERVER: NODES,
    Kind.FILL: (SERVER, NODES[-1]),
    Kind.JUMP: PARTS,
    Kind.CUT: (CONTROLLERS, *NODES),
    Kind.HALF_CLOSE: (CONTROLLERS, *NODES),
    Kind.HOLD: (CONTROLLERS, *NODES),
    Kind.DELAY: (CONTROLLERS, *NODES),
}
ACTIONS = ("none", "job", "roll", "delete pod", "scale")
_BOTH = 0.25
"""The part of the steps with two faults at once."""


def possible_kinds(abilities: Abilities) -> list[Kind]:
    left_out = {Kind.FILL} if not abilities.fills_disks else set()
    left_out |= {Kind.JUMP} if not abilities.moves_clocks else set()
    return [kind for kind in Kind if kind not in left_out]


class Schedule:
    """An endless row of steps. The first ones have every kind once, in a random order, then all is random."""

    def __init__(self, seed: int, abilities: Abilities, *, longest: float) -> None:
        self._chance = random.Random(seed)
        self._kinds = possible_kinds(abilities)
        self._longest = longest
        self._first = self._chance.sample(self._kinds, len(self._kinds))
        self._number = 0

    def next_step(self) -> Step:
        kind = self._first[self._number] if self._number < len(self._first) else self._chance.choice(self._kinds)
        faults = [self._fault(kind)]
        if self._chance.random() < _BOTH:
            faults += [
                other
                for other in [self._fault(self._chance.choice(self._kinds))]
                if (other.kind, other.target) != (faults[0].kind, faults[0].target)
            ]
        self._number += 1
        return Step(self._number, tuple(faults), self._chance.choice(ACTIONS))

    def _fault(self, kind: Kind) -> Fault:
        seconds = round(self._chance.choice([0.0, 1.0, self._longest / 2, self._longest]), 1)
        amount = {Kind.JUMP: self._chance.choice([-HOUR, HOUR]), Kind.KILL_BELOW: self._chance.randrange(1000)}
        return Fault(kind, self._chance.choice(TARGETS[kind]), seconds, amount.get(kind, 0))


def targets_of(steps: Sequence[Step]) -> set[tuple[Kind, str]]:
    return {(fault.kind, fault.target) for step in steps for fault in step.faults}
