"""NodeAffinity: nodeSelector and required node affinity filter, preferred node affinity scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from pinnace.model.objects import Object
from pinnace.model.typed_objects import NodeSelectorTerm, PreferredSchedulingTerm
from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.events import NODE, ActionType, ClusterEvent, EventRegistration
from pinnace.scheduler.framework.normalization import normalize
from pinnace.scheduler.framework.plugin import Depends, Plugin
from pinnace.scheduler.framework.status import SKIP, OnlyNodes, Refusal, Skip, unresolvable
from pinnace.scheduler.state.arrays import At, Codes, Integers, Mask, Slots
from pinnace.scheduler.state.node_selectors import length, match_required, match_term, match_terms, required_terms
from pinnace.scheduler.state.nodes import NAME, NodeTable
from pinnace.scheduler.state.pods import Pod
from pinnace.scheduler.state.terms import PREFERRED, REQUIRED

_REFUSALS = {
    1: unresolvable("node(s) didn't match scheduler-enforced node affinity"),
    2: unresolvable("node(s) didn't match Pod's node affinity/selector"),
}
_CONFLICT = unresolvable("pod affinity terms conflict")


class NodeAffinity(Plugin):
    name = "NodeAffinity"
    depends = Depends.NODE
    ignores_labels = True

    def __init__(self, *, added: Object | None = None) -> None:
        """`added` is a node affinity that is added to that of every pod."""
        added = added or {}
        enforced = added.get(REQUIRED)
        self._enforced: Sequence[NodeSelectorTerm] | None = (
            None if enforced is None else enforced.get("nodeSelectorTerms") or ()
        )
        self._preferred: Sequence[PreferredSchedulingTerm] = added.get(PREFERRED) or ()

    def pre_filter(self, cycle: Cycle) -> Refusal | OnlyNodes | Skip | None:
        terms = required_terms(cycle.template)
        if terms is None and self._enforced is None and cycle.template.spec.get("nodeSelector") is None:
            return SKIP
        names = _named_nodes(terms or ())
        if names is None:
            return None
        return OnlyNodes(names) if names else _CONFLICT

    def filter(self, cycle: Cycle, at: At) -> Codes:
        nodes = cycle.state.nodes
        codes = np.where(match_required(nodes, cycle.template, at), 0, 2).astype(np.int32)
        if self._enforced is not None:
            codes[~match_terms(nodes, self._enforced, at)] = 1
        return codes

    def refusal(self, cycle: Cycle, code: int) -> Refusal:
        return _REFUSALS[code]

    def pre_score(self, cycle: Cycle, feasible: Mask) -> Skip | None:
        return None if self._preferred or _preferences(cycle) else SKIP

    def score(self, cycle: Cycle, at: At) -> Integers:
        nodes = cycle.state.nodes
        scores = np.zeros(length(nodes, at), dtype=np.int64)
        _add_weights(nodes, (*self._preferred, *_preferences(cycle)), at, scores)
        return scores

    def normalize(self, cycle: Cycle, scores: Integers, slots: Slots) -> Integers:
        return normalize(scores)

    def events(self) -> Sequence[EventRegistration]:
        return (EventRegistration(NODE, ActionType.ADD | ActionType.NODE_LABELS, _matches_node),)


def _preferences(cycle: Cycle) -> Sequence[PreferredSchedulingTerm]:
    return ((cycle.template.spec.get("affinity") or {}).get("nodeAffinity") or {}).get(PREFERRED) or ()


def _add_weights(nodes: NodeTable, preferences: Iterable[PreferredSchedulingTerm], at: At, scores: Integers) -> None:
    for term in preferences:
        weight, preference = term.get("weight", 0), term.get("preference") or {}
        if weight:
            scores += weight * match_term(nodes, preference, at)


def _named_nodes(terms: Sequence[NodeSelectorTerm]) -> frozenset[str] | None:
    """Return the nodes that all terms name by metadata.name; None if a term names none."""
    names: frozenset[str] = frozenset()
    for term in terms:
        of_term: frozenset[str] | None = None
        for field in term.get("matchFields") or ():
            if field.get("key") == NAME and field.get("operator") == "In":
                values = frozenset(field.get("values") or ())
                of_term = values if of_term is None else of_term & values
        if of_term is None:
            return None
        names |= of_term
    return names if terms else None


def _matches_node(pod: Pod, event: ClusterEvent) -> bool:
    nodes, slot = event.new
    return bool(match_required(nodes, pod.template, np.array([slot], dtype=np.intp))[0])
