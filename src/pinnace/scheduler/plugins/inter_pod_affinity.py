"""InterPodAffinity: pods that want to be together with other pods or apart from them, and pods that are wanted so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from pinnace.model.typed_objects import Namespace
from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.events import NODE, POD, ActionType, ClusterEvent, EventRegistration
from pinnace.scheduler.framework.plugin import HIGHEST_SCORE, Depends, Plugin
from pinnace.scheduler.framework.status import SKIP, Refusal, Skip, unresolvable, unschedulable
from pinnace.scheduler.state.affinity import TermUse
from pinnace.scheduler.state.arrays import At, Codes, Integers, Mask, Slots
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.state.counters import PodSelection
from pinnace.scheduler.state.node_selectors import length
from pinnace.scheduler.state.pods import Pod, Template
from pinnace.scheduler.state.terms import AffinityTerm, extend

_AFFINITY, _ANTI_AFFINITY, _EXISTING = 1, 2, 3
_REFUSALS = {
    _AFFINITY: unresolvable("node(s) didn't match pod affinity rules"),
    _ANTI_AFFINITY: unschedulable("node(s) didn't match pod anti-affinity rules"),
    _EXISTING: unschedulable("node(s) didn't satisfy existing pods anti-affinity rules"),
}


@dataclass(slots=True)
class _Domains:
    """A value per domain of one topology label; the last element is for nodes without the label."""

    codes: Codes
    values: Integers

    def at(self, at: At) -> Integers:
        return self.values[self.codes[at]]


@dataclass(slots=True)
class _Required:
    """The required terms of the pod and of the pods on nodes, with their matches per domain."""

    affinity: list[_Domains] = field(default_factory=list)
    anti_affinity: list[_Domains] = field(default_factory=list)
    existing: list[_Domains] = field(default_factory=list)
    is_first: bool = False
    """Whether no pod matches the affinity terms yet but the pod itself does: it may go first."""


class InterPodAffinity(Plugin):
    name = "InterPodAffinity"
    depends = Depends.CLUSTER

    def __init__(self, *, hard_weight: int = 1, ignores_existing_preferences: bool = False) -> None:
        """`hard_weight` is the weight of required affinity terms of existing pods in the score."""
        self._hard_weight = hard_weight
        self._ignores_existing = ignores_existing_preferences

    # Filter

    def pre_filter(self, cycle: Cycle) -> Skip | None:
        state, template = cycle.state, cycle.template
        terms = template.terms
        existing = [use for use in matching_terms(state, template) if use.kind == "required anti-affinity"]
        if not existing and not terms.required_affinity and not terms.required_anti_affinity:
            return SKIP
        required = _Required()
        required.existing = _sum_by_key(state, existing)
        required.anti_affinity = [_matches_of(state, term) for term in terms.required_anti_affinity]
        if terms.required_affinity:
            self._count_affinity(state, template, required)
        cycle.data[self.name] = required
        return None

    def _count_affinity(self, state: ClusterState, template: Template, required: _Required) -> None:
        """Count pods that match all affinity terms: only those satisfy any of them."""
        terms = template.terms.required_affinity
        selection = _selection_of_all(state, terms)
        required.affinity = [_by_domain(state, term.topology_key, selection) for term in terms]
        has_match = any(bool(match.values[:-1].any()) for match in required.affinity)
        required.is_first = not has_match and all(_matches(state, term, template) for term in terms)

    def filter(self, cycle: Cycle, at: At) -> Codes:
        codes = np.zeros(length(cycle.state.nodes, at), dtype=np.int32)
        required: _Required | None = cycle.data.get(self.name)
        if required is None:
            return codes
        for match in required.existing:
            codes[match.at(at) > 0] = _EXISTING
        for match in required.anti_affinity:
            codes[(match.at(at) > 0) & (match.codes[at] >= 0)] = _ANTI_AFFINITY
        for match in required.affinity:
            has_label = match.codes[at] >= 0
            fits = has_label & (required.is_first | (match.at(at) > 0))
            codes[~fits] = _AFFINITY
        return codes

    def refusal(self, cycle: Cycle, code: int) -> Refusal:
        return _REFUSALS[code]

    # Score

    def pre_score(self, cycle: Cycle, feasible: Mask) -> Skip | None:
        state, template = cycle.state, cycle.template
        terms = template.terms
        has_own = bool(terms.preferred_affinity or terms.preferred_anti_affinity)
        if self._ignores_existing and not has_own:
            return SKIP
        sums: dict[str, Integers] = {}
        for use in matching_terms(state, template):
            weight = self._weight_of(use)
            if weight:
                _add(state, sums, use.term.topology_key, weight * _per_domain(state, use))
        for sign, some in ((1, terms.preferred_affinity), (-1, terms.preferred_anti_affinity)):
            for term in some:
                matches = _matches_of(state, term).values
                if matches[:-1].any():
                    _add(state, sums, term.topology_key, sign * term.weight * matches)
        if not sums:
            return SKIP
        labels = state.nodes.labels
        cycle.data[self.name + "/score"] = [_Domains(labels.codes(key), values) for key, values in sums.items()]
        return None

    def _weight_of(self, use: TermUse) -> int:
        match use.kind:
            case "required affinity":
                return self._hard_weight
            case "preferred affinity":
                return use.term.weight
            case "preferred anti-affinity":
                return -use.term.weight
        return 0

    def score(self, cycle: Cycle, at: At) -> Integers:
        scores = np.zeros(length(cycle.state.nodes, at), dtype=np.int64)
        domains: list[_Domains] = cycle.data[self.name + "/score"]
        for domain in domains:
            scores += np.where(domain.codes[at] >= 0, domain.at(at), 0)
        return scores

    def normalize(self, cycle: Cycle, scores: Integers, slots: Slots) -> Integers:
        least = int(scores.min())
        spread = int(scores.max()) - least
        if spread <= 0:
            return np.zeros_like(scores)
        return (HIGHEST_SCORE * ((scores - least) / float(spread))).astype(np.int64)

    def events(self) -> Sequence[EventRegistration]:
        pods = ActionType.ADD | ActionType.DELETE | ActionType.POD_LABELS
        nodes = ActionType.ADD | ActionType.NODE_LABELS
        return (EventRegistration(POD, pods, _concerns), EventRegistration(NODE, nodes))


def matching_terms(state: ClusterState, template: Template) -> list[TermUse]:
    """Return the terms of pods on nodes that match a template; kept until a term comes or goes."""
    version = (state.terms.version, state.lookups.version("Namespace"))
    known: tuple[tuple[int, int], list[TermUse]] | None = template.cached.get("matching terms")
    if known is None or known[0] != version:
        uses = state.terms.matching(template, state.lookups.namespace_labels(template.namespace))
        known = template.cached["matching terms"] = (version, uses)
    return known[1]


def _sum_by_key(state: ClusterState, uses: Sequence[TermUse]) -> list[_Domains]:
    sums: dict[str, Integers] = {}
    for use in uses:
        _add(state, sums, use.term.topology_key, _per_domain(state, use))
    for values in sums.values():
        values[-1] = 0  # Nodes without the label are in no domain.
    return [_Domains(state.nodes.labels.codes(key), values) for key, values in sums.items()]


def _add(state: ClusterState, sums: dict[str, Integers], key: str, values: Integers) -> None:
    known = sums.get(key)
    sums[key] = values if known is None else known + values


def _per_domain(state: ClusterState, use: TermUse) -> Integers:
    column = state.nodes.labels.column(use.term.topology_key)
    return use.per_domain(column.codes(state.size), len(column.values))


def _matches_of(state: ClusterState, term: AffinityTerm) -> _Domains:
    return _by_domain(state, term.topology_key, _selection_of_all(state, (term,)))


def _by_domain(state: ClusterState, key: str, selection: PodSelection) -> _Domains:
    return _Domains(state.nodes.labels.codes(key), state.count_by_domain(selection, key))


def _selection_of_all(state: ClusterState, terms: Sequence[AffinityTerm]) -> PodSelection:
    """Return the pods that match all terms of a waiting pod."""
    namespaces: frozenset[str] | None = None
    selector = terms[0].selector
    matches_nothing = False
    for number, term in enumerate(terms):
        some = _namespaces_of(state, term)
        namespaces = some if namespaces is None else namespaces if some is None else namespaces & some
        matches_nothing = matches_nothing or term.selector.matches_nothing
        if number and not matches_nothing:
            selector = extend(selector, term.selector.requirements)
    if matches_nothing:
        namespaces = frozenset()
    return PodSelection(selector, namespaces, has_terminating=True)


def _namespaces_of(state: ClusterState, term: AffinityTerm) -> frozenset[str] | None:
    """Return the namespaces of a waiting pod's term; None for all.

    A selector that matches a namespace without labels matches all, as in kube-scheduler.
    """
    if term.namespace_selector.matches({}):
        return None
    if term.namespace_selector.matches_nothing:
        return term.namespaces
    key = (term.namespaces, term.namespace_selector)
    version = state.lookups.version("Namespace")
    known = state.namespace_sets.get(key)
    if known is None or known[0] != version:
        selected = [
            namespace["metadata"]["name"]
            for namespace in state.lookups.all(Namespace)
            if term.namespace_selector.matches(namespace["metadata"].get("labels") or {})
        ]
        known = state.namespace_sets[key] = (version, term.namespaces.union(selected))
    return known[1]


def _matches(state: ClusterState, term: AffinityTerm, template: Template) -> bool:
    namespaces = _namespaces_of(state, term)
    return (namespaces is None or template.namespace in namespaces) and term.selector.matches(template.labels)


def _concerns(pod: Pod, event: ClusterEvent) -> bool:
    """Return whether a pod that came, went or changed its labels may satisfy a term or stop blocking one."""
    terms = pod.template.terms
    for other in (event.new, event.old):
        if other is None:
            continue
        if other.uid == pod.uid:
            return True
        anti = other.template.terms.required_anti_affinity
        if event.new is not other and any(_may_match(term, pod) for term in anti):
            return True
        wanted = terms.required_affinity if event.new is other else terms.required_anti_affinity
        if any(_may_match(term, other) for term in wanted):
            return True
    return False


def _may_match(term: AffinityTerm, pod: Pod) -> bool:
    """Return whether a term may match a pod; namespaces that are selected by labels are taken to match."""
    is_near = pod.namespace in term.namespaces or not term.namespace_selector.matches_nothing
    return is_near and term.selector.matches(pod.labels)
