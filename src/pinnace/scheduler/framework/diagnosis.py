"""Why nodes are refused: by filters, and by extenders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pinnace.scheduler.framework.status import Code, Refusal, unresolvable, unschedulable
from pinnace.scheduler.state.arrays import Codes, Integers, Mask, Slots

NO_NODES = "no nodes available to schedule pods"


@dataclass(slots=True)
class Diagnosis:
    """The refusals of one attempt. `refusal_of[slot]` is a position in `refusals`; -1 for nodes that fit."""

    names: Sequence[str]
    present: Mask
    refusal_of: Codes
    refusals: list[Refusal] = field(default_factory=list)
    for_all: Refusal | None = None
    """The refusal of PreFilter, which concerns all nodes."""
    post_filter: str = ""
    """The message of PostFilter."""

    def set(self, mask: Mask, refusal: Refusal) -> None:
        """Give all nodes of the mask one refusal."""
        self.refusal_of[mask] = len(self.refusals)
        self.refusals.append(refusal)

    def of(self, slot: int) -> Refusal | None:
        if self.for_all is not None:
            return self.for_all
        position = int(self.refusal_of[slot])
        return self.refusals[position] if position >= 0 else None

    def by_node(self) -> Iterator[tuple[str, Refusal]]:
        for slot in np.flatnonzero(self.present).tolist():
            refusal = self.of(slot)
            if refusal is not None:
                yield self.names[slot], refusal

    def resolvable(self) -> Mask:
        """Return the nodes on which preemption may help."""
        if self.for_all is not None:
            may_help = self.for_all.code is Code.UNSCHEDULABLE
            return self.present.copy() if may_help else np.zeros_like(self.present)
        helps = np.array([refusal.code is Code.UNSCHEDULABLE for refusal in self.refusals] + [False], dtype=np.bool_)
        return helps[self.refusal_of] & self.present

    @property
    def plugins(self) -> frozenset[str]:
        """The plug-ins that have refused at least one node."""
        if self.for_all is not None:
            return frozenset((self.for_all.plugin,))
        used = {int(position) for position in np.unique(self.refusal_of[self.present]) if position >= 0}
        return frozenset(self.refusals[position].plugin for position in used)

    @property
    def message(self) -> str:
        """Return "0/5 nodes are available: …" as kube-scheduler words it."""
        total = int(self.present.sum())
        text = f"0/{total} nodes are available:"
        if self.for_all is not None:
            text += f" {self.for_all.message}."
        else:
            counted: Counter[str] = Counter()
            positions, counts = np.unique(self.refusal_of[self.present], return_counts=True)
            for position, count in zip(positions.tolist(), counts.tolist(), strict=True):
                for reason in self.refusals[position].reasons if position >= 0 else ():
                    counted[reason] += count
            reasons = sorted(f"{count} {reason}" for reason, count in counted.items())
            if reasons:
                text += f" {', '.join(reasons)}."
        return f"{text} {self.post_filter}" if self.post_filter else text


EXTENDER = "Extender"
"""The name under which kube-scheduler counts the refusals of all extenders."""


@dataclass(frozen=True, slots=True)
class ExtenderVerdict:
    """The nodes that extenders accept, why they refuse others, and the points that they add."""

    accepted: Collection[str]
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)
    points: Mapping[str, int] = field(default_factory=dict)

    def keep(self, names: list[str], slots: Slots) -> Slots:
        """Return the slots of accepted nodes."""
        accepted = set(self.accepted)
        return slots[[names[slot] in accepted for slot in slots.tolist()]]

    def refuse(self, diagnosis: Diagnosis, slots: Slots) -> None:
        """Give the nodes at these slots, which pass all filters, the extenders' reasons."""
        for slot in slots.tolist():
            name = diagnosis.names[slot]
            mask = np.zeros_like(diagnosis.present)
            mask[slot] = True
            if name in self.failed and name not in self.unresolvable:
                diagnosis.set(mask, unschedulable(self.failed[name], plugin=EXTENDER))
            else:
                reasons = (self.unresolvable[name],) if name in self.unresolvable else ()
                diagnosis.set(mask, unresolvable(*reasons, plugin=EXTENDER))

    def add_points(self, names: list[str], slots: Slots, totals: Integers) -> Integers:
        return totals + np.array([self.points.get(names[slot], 0) for slot in slots.tolist()], dtype=np.int64)
