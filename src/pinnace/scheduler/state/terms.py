"""The terms of pod affinity and anti-affinity, parsed once for all pods of a template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pinnace.model import selectors
from pinnace.model.selectors import LabelSelector, Requirement
from pinnace.model.typed_objects import Affinity, PodAffinityTerm, WeightedPodAffinityTerm

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
Labels = Mapping[str, str]
MOST_TERMS = 128
"""The terms of one pod: each is compared with the labels of all pods, and those of pods on nodes with all pods that
wait."""


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """A set of pods, and the domains in which a pod wants to be together with them or apart from them."""

    topology_key: str
    namespaces: frozenset[str]
    namespace_selector: LabelSelector
    selector: LabelSelector
    weight: int = 0

    def matches(self, namespace: str, labels: Labels, namespace_labels: Labels) -> bool:
        if namespace in self.namespaces or self.namespace_selector.matches(namespace_labels):
            return self.selector.matches(labels)
        return False


@dataclass(frozen=True, slots=True)
class PodTerms:
    """All terms of one pod."""

    required_affinity: tuple[AffinityTerm, ...] = ()
    required_anti_affinity: tuple[AffinityTerm, ...] = ()
    preferred_affinity: tuple[AffinityTerm, ...] = ()
    preferred_anti_affinity: tuple[AffinityTerm, ...] = ()
    count: int = 0
    """The number of terms. The terms of a pod that has more than `MOST_TERMS` are left out."""

    @property
    def is_empty(self) -> bool:
        return not (
            self.required_affinity
            or self.required_anti_affinity
            or self.preferred_affinity
            or self.preferred_anti_affinity
        )


NO_TERMS = PodTerms()


def terms_of(namespace: str, labels: Labels, affinity: Affinity | None) -> PodTerms:
    """Parse the pod affinity of a spec. Raise ValueError for an operator that does not exist."""
    if not affinity:
        return NO_TERMS
    together, apart = affinity.get("podAffinity") or {}, affinity.get("podAntiAffinity") or {}
    parts = (together.get(REQUIRED), together.get(PREFERRED), apart.get(REQUIRED), apart.get(PREFERRED))
    count = sum(len(part or ()) for part in parts)
    if count > MOST_TERMS:
        return PodTerms(count=count)
    return PodTerms(
        tuple(_term(namespace, labels, term) for term in together.get(REQUIRED) or ()),
        tuple(_term(namespace, labels, term) for term in apart.get(REQUIRED) or ()),
        tuple(_weighted(namespace, labels, together.get(PREFERRED) or ())),
        tuple(_weighted(namespace, labels, apart.get(PREFERRED) or ())),
        count,
    )


def _weighted(namespace: str, labels: Labels, preferences: Sequence[WeightedPodAffinityTerm]) -> list[AffinityTerm]:
    return [
        _term(namespace, labels, preference.get("podAffinityTerm") or {}, weight=preference.get("weight", 0))
        for preference in preferences
    ]


def _term(namespace: str, labels: Labels, term: PodAffinityTerm, *, weight: int = 0) -> AffinityTerm:
    named = term.get("namespaces") or ()
    selected = term.get("namespaceSelector")
    return AffinityTerm(
        topology_key=term.get("topologyKey", ""),
        namespaces=frozenset(named) if named or selected is not None else frozenset((namespace,)),
        namespace_selector=selectors.from_object(selected),
        selector=_with_label_keys(term, labels),
        weight=weight,
    )


def _with_label_keys(term: PodAffinityTerm, labels: Labels) -> LabelSelector:
    """Return the selector of a term with its matchLabelKeys. The API server has added them to stored pods already."""
    selector = selectors.from_object(term.get("labelSelector"))
    return extend(
        selector,
        [
            Requirement(key, operator, (labels[key],))
            for keys, operator in ((term.get("matchLabelKeys"), "in"), (term.get("mismatchLabelKeys"), "notin"))
            for key in keys or ()
            if key in labels
        ],
    )


def extend(selector: LabelSelector, more: Sequence[Requirement]) -> LabelSelector:
    """Return a selector with further requirements; one that matches nothing stays as it is."""
    new = [requirement for requirement in more if requirement not in selector.requirements]
    if not new or selector.matches_nothing:
        return selector
    return LabelSelector(tuple(sorted((*selector.requirements, *new))))
