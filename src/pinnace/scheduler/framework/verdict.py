"""The answers of extenders about the nodes that fit, for the second half of a decision."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from pinnace.scheduler.framework.diagnosis import Diagnosis
from pinnace.scheduler.framework.status import unresolvable, unschedulable
from pinnace.scheduler.state.arrays import Integers, Slots

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
