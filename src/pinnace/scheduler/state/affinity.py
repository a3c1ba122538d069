"""The affinity terms of the pods on nodes, each distinct term once, with the number of its pods per node."""

from __future__ import annotations

from typing import Literal

import numpy as np

from pinnace.scheduler.state.arrays import Codes, Integers, grow
from pinnace.scheduler.state.counters import count_per_domain
from pinnace.scheduler.state.pods import Template
from pinnace.scheduler.state.terms import AffinityTerm, Labels

TermKind = Literal["required affinity", "required anti-affinity", "preferred affinity", "preferred anti-affinity"]
_MOST_SPARSE = 32


class TermUse:
    """One term, and the nodes of the pods that have it: a dict while they are few, an array when they are many."""

    def __init__(self, kind: TermKind, term: AffinityTerm) -> None:
        self.kind = kind
        self.term = term
        self.total = 0
        self._few: dict[int, int] = {}
        self._many: Integers | None = None

    def add(self, slot: int, by: int) -> None:
        self.total += by
        if self._many is None:
            self._few[slot] = self._few.get(slot, 0) + by
            if not self._few[slot]:
                del self._few[slot]
            elif len(self._few) > _MOST_SPARSE:
                self._many = np.zeros(2 * max(self._few) + 1, dtype=np.int64)
                for known, count in self._few.items():
                    self._many[known] = count
            return
        if slot >= len(self._many):
            self._many = grow(self._many, 2 * slot + 1)
        self._many[slot] += by

    def per_domain(self, codes: Codes, domains: int) -> Integers:
        """Return the number of pods per value of the topology label. The last element counts nodes without it."""
        if self._many is None:
            counted = np.zeros(domains + 1, dtype=np.int64)
            for slot, count in self._few.items():
                if slot < len(codes):
                    counted[codes[slot]] += count
            return counted
        size = min(len(codes), len(self._many))
        return count_per_domain(codes[:size], self._many[:size], domains)


class TermIndex:
    """The terms of all pods on nodes."""

    def __init__(self) -> None:
        self._uses: dict[str, dict[tuple[TermKind, AffinityTerm], TermUse]] = {}
        """By the only namespace of their pods, so that the terms of one namespace cost the pods of others nothing; by
        "" where a term has several."""
        self.version = 0
        """Grows when a distinct term comes or goes."""

    def add(self, template: Template, slot: int, by: int) -> None:
        if template.terms.is_empty:
            return
        terms = template.terms
        kinds: tuple[tuple[TermKind, tuple[AffinityTerm, ...]], ...] = (
            ("required affinity", terms.required_affinity),
            ("required anti-affinity", terms.required_anti_affinity),
            ("preferred affinity", terms.preferred_affinity),
            ("preferred anti-affinity", terms.preferred_anti_affinity),
        )
        for kind, some in kinds:
            for term in some:
                self._add(kind, term, slot, by)

    def _add(self, kind: TermKind, term: AffinityTerm, slot: int, by: int) -> None:
        namespace = _only_namespace(term)
        uses = self._uses.setdefault(namespace, {})
        use = uses.get((kind, term))
        if use is None:
            use = uses[kind, term] = TermUse(kind, term)
            self.version += 1
        use.add(slot, by)
        if not use.total:
            del uses[kind, term]
            self.version += 1
            if not uses:
                del self._uses[namespace]

    def matching(self, template: Template, namespace_labels: Labels) -> list[TermUse]:
        """Return the terms that match the pods of a template."""
        return [
            use
            for namespace in (template.namespace, "")
            for use in self._uses.get(namespace, _NO_USES).values()
            if use.term.matches(template.namespace, template.labels, namespace_labels)
        ]


_NO_USES: dict[tuple[TermKind, AffinityTerm], TermUse] = {}


def _only_namespace(term: AffinityTerm) -> str:
    """Return the only namespace whose pods a term can match; empty if there may be several."""
    if len(term.namespaces) != 1 or not term.namespace_selector.matches_nothing:
        return ""
    return next(iter(term.namespaces))
