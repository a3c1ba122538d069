"""Why no node can run a pod: the first refusal of each node, and the message of kube-scheduler about all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from pinnace.scheduler.framework.status import Code, Refusal
from pinnace.scheduler.state.arrays import Codes, Mask

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
        helps = np.array([one.code is Code.UNSCHEDULABLE for one in self.refusals] + [False], dtype=np.bool_)
        mask: Mask = helps[self.refusal_of] & self.present
        return mask

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
