"""PodTopologySpread: pods of one kind are spread evenly over zones, nodes or other domains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pinnace.model import selectors
from pinnace.model.selectors import LabelSelector, Requirement
from pinnace.model.typed_objects import (
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
    TopologySpreadConstraint,
)
from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.events import NODE, POD, ActionType, ClusterEvent, EventRegistration
from pinnace.scheduler.framework.plugin import HIGHEST_SCORE, Depends, Plugin
from pinnace.scheduler.framework.status import SKIP, Refusal, Skip, unresolvable, unschedulable
from pinnace.scheduler.state.arrays import ALL, At, Codes, Integers, Mask, Slots, divide
from pinnace.scheduler.state.counters import PodSelection, count_per_domain
from pinnace.scheduler.state.lookups import Lookups
from pinnace.scheduler.state.node_selectors import length, match_required, match_taints
from pinnace.scheduler.state.nodes import NodeTable
from pinnace.scheduler.state.pods import Pod, Template
from pinnace.scheduler.state.terms import extend

HOSTNAME = "kubernetes.io/hostname"
SYSTEM_DEFAULTS: tuple[TopologySpreadConstraint, ...] = (
    {"topologyKey": HOSTNAME, "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 3},
    {"topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 5},
)
_HONOR = "Honor"


@dataclass(frozen=True, slots=True)
class Constraint:
    """One constraint of a pod."""

    max_skew: int
    topology_key: str
    selector: LabelSelector
    min_domains: int
    honors_affinity: bool
    honors_taints: bool

    @property
    def counted_selector(self) -> LabelSelector:
        """The selector of the pods that count: none, if the selector is empty."""
        return selectors.NOTHING if self.selector.matches_everything else self.selector


def constraints_of(template: Template, action: str) -> Sequence[Constraint]:
    """Return the constraints of a pod with this `whenUnsatisfiable`."""
    key = ("spread", action)
    known: Sequence[Constraint] | None = template.cached.get(key)
    if known is None:
        written = template.spec.get("topologySpreadConstraints") or ()
        known = template.cached[key] = [
            _parse(entry, template) for entry in written if entry.get("whenUnsatisfiable") == action
        ]
    return known


def _parse(written: TopologySpreadConstraint, template: Template, selector: LabelSelector | None = None) -> Constraint:
    if selector is None:
        selector = extend(
            selectors.from_object(written.get("labelSelector")),
            [
                Requirement(key, "=", (template.labels[key],))
                for key in written.get("matchLabelKeys") or ()
                if key in template.labels
            ],
        )
    return Constraint(
        max_skew=written.get("maxSkew") or 1,
        topology_key=written.get("topologyKey") or "",
        selector=selector,
        min_domains=written.get("minDomains") or 1,
        honors_affinity=(written.get("nodeAffinityPolicy") or _HONOR) == _HONOR,
        honors_taints=written.get("nodeTaintsPolicy") == _HONOR,
    )


def default_constraints_of(
    template: Template, lookups: Lookups, defaults: Sequence[TopologySpreadConstraint], action: str
) -> Sequence[Constraint]:
    """Return the default constraints of a pod that states none: for the pods of its services and its owner."""
    wanted = [default for default in defaults if default.get("whenUnsatisfiable") == action]
    if not wanted:
        return ()
    key = ("default spread", action)
    version = lookups.version("Service", "ReplicationController", "ReplicaSet", "StatefulSet")
    known: tuple[int, Sequence[Constraint]] | None = template.cached.get(key)
    if known is None or known[0] != version:
        selector = default_selector(template, lookups)
        parsed = [] if selector.matches_everything else [_parse(entry, template, selector) for entry in wanted]
        known = template.cached[key] = (version, parsed)
    return known[1]


def default_selector(template: Template, lookups: Lookups) -> LabelSelector:
    """Return the selector of the services that select a pod and of the controller that owns it."""
    labels: dict[str, str] = {}
    for service in lookups.within(Service, template.namespace):
        wanted = service.get("spec", {}).get("selector")
        if wanted and all(template.labels.get(key) == value for key, value in wanted.items()):
            labels.update(wanted)
    if template.owner is None:
        return selectors.from_labels(labels)
    api_version, kind, name = template.owner
    match (api_version, kind):
        case ("v1", "ReplicationController"):
            controller = lookups.get(ReplicationController, name, namespace=template.namespace)
            labels.update((controller.get("spec", {}).get("selector") or {}) if controller is not None else {})
            return selectors.from_labels(labels)
        case ("apps/v1", "ReplicaSet" | "StatefulSet"):
            owner: ReplicaSet | StatefulSet | None = (
                lookups.get(ReplicaSet, name, namespace=template.namespace)
                if kind == "ReplicaSet"
                else lookups.get(StatefulSet, name, namespace=template.namespace)
            )
            selector = selectors.from_labels(labels)
            if owner is not None:
                selector = extend(selector, selectors.from_object(owner["spec"].get("selector")).requirements)
            return selector
    return selectors.from_labels(labels)


def is_eligible(nodes: NodeTable, template: Template, constraint: Constraint, at: At) -> Mask:
    """Return the nodes whose pods count for a constraint, by its node inclusion policies."""
    key = ("eligible", constraint.honors_affinity, constraint.honors_taints)
    known: tuple[int, Mask] | None = template.cached.get(key)
    if known is None or known[0] != nodes.log.position:
        mask = np.ones(length(nodes, at), dtype=np.bool_)
        if constraint.honors_affinity:
            mask &= match_required(nodes, template, at)
        if constraint.honors_taints:
            mask &= match_taints(nodes, template, at)
        known = template.cached[key] = (nodes.log.position, mask)
    return known[1]


_REASON = "node(s) didn't match pod topology spread constraints"
_SKEWED, _UNLABELED = 1, 2
_REFUSALS = {_SKEWED: unschedulable(_REASON), _UNLABELED: unresolvable(f"{_REASON} (missing required label)")}
_NO_MINIMUM = 2**31 - 1


@dataclass(slots=True)
class _Hard:
    """One hard constraint, with the pods that match it."""

    constraint: Constraint
    codes: Codes
    per_domain: Integers
    least: int
    """The number of matching pods in the domain that has the fewest."""


@dataclass(slots=True)
class _Soft:
    """The soft constraints, with the nodes that are not scored."""

    constraints: Sequence[Constraint]
    ignored: Mask
    counts: list[tuple[Constraint, Codes, Integers, float]]


class PodTopologySpread(Plugin):
    name = "PodTopologySpread"
    depends = Depends.CLUSTER

    def __init__(self, *, defaults: Sequence[TopologySpreadConstraint], is_system_default: bool) -> None:
        """`defaults` are the constraints of pods that state none."""
        self._defaults = defaults
        self._is_system_default = is_system_default

    # Filter

    def pre_filter(self, cycle: Cycle) -> Skip | None:
        constraints = self._constraints(cycle, "DoNotSchedule")
        if not constraints:
            return SKIP
        cycle.data[self.name] = [_count_hard(cycle, constraint, constraints) for constraint in constraints]
        return None

    def filter(self, cycle: Cycle, at: At) -> Codes:
        codes: Codes | None = None
        hard: list[_Hard] = cycle.data.get(self.name) or []
        for constraint in hard:
            own = 1 if constraint.constraint.selector.matches(cycle.template.labels) else 0
            by_domain = (constraint.per_domain + (own - constraint.least) > constraint.constraint.max_skew).astype(
                np.int32
            )
            by_domain *= _SKEWED
            by_domain[-1] = _UNLABELED
            failed = by_domain[constraint.codes[at]]
            codes = failed if codes is None else np.where(codes == 0, failed, codes)
        return codes if codes is not None else np.zeros(length(cycle.state.nodes, at), dtype=np.int32)

    def refusal(self, cycle: Cycle, code: int) -> Refusal:
        return _REFUSALS[code]

    # Score

    def pre_score(self, cycle: Cycle, feasible: Mask) -> Skip | None:
        constraints = self._constraints(cycle, "ScheduleAnyway")
        if not constraints:
            return SKIP
        nodes = cycle.state.nodes
        needs_all = bool(cycle.template.spec.get("topologySpreadConstraints")) or not self._is_system_default
        has_all = np.ones(nodes.size, dtype=np.bool_)
        if needs_all:
            for constraint in constraints:
                has_all &= nodes.labels.codes(constraint.topology_key) >= 0
        scored = feasible & has_all
        counted = nodes.present & has_all
        counts = [_count_soft(cycle, constraint, scored, counted) for constraint in constraints]
        cycle.data[self.name + "/score"] = _Soft(constraints, feasible & ~has_all, counts)
        return None

    def score(self, cycle: Cycle, at: At) -> Integers:
        soft: _Soft = cycle.data[self.name + "/score"]
        total: npt.NDArray[np.float64] = np.zeros(length(cycle.state.nodes, at), dtype=np.float64)
        for constraint, codes, counts, weight in soft.counts:
            domains = codes[at]
            matching = counts[at] if constraint.topology_key == HOSTNAME else counts[domains]
            total += np.where(domains >= 0, matching * weight + (constraint.max_skew - 1), 0.0)
        total[soft.ignored[at]] = 0.0
        return np.floor(total + 0.5).astype(np.int64)

    def normalize(self, cycle: Cycle, scores: Integers, slots: Slots) -> Integers:
        soft: _Soft = cycle.data[self.name + "/score"]
        ignored = soft.ignored[slots]
        if ignored.all():
            return np.zeros_like(scores)
        kept = scores[~ignored]
        least, most = int(kept.min()), max(int(kept.max()), 0)
        if most == 0:
            return np.where(ignored, 0, HIGHEST_SCORE)
        return np.where(ignored, 0, divide(HIGHEST_SCORE * (most + least - scores), most))

    # Constraints

    def _constraints(self, cycle: Cycle, action: str) -> Sequence[Constraint]:
        template = cycle.template
        if template.spec.get("topologySpreadConstraints"):
            return constraints_of(template, action)
        return default_constraints_of(template, cycle.state.lookups, self._defaults, action)

    def events(self) -> Sequence[EventRegistration]:
        pods = ActionType.ADD | ActionType.DELETE | ActionType.POD_LABELS | ActionType.UPDATE
        nodes = ActionType.ADD | ActionType.DELETE | ActionType.NODE_LABELS | ActionType.NODE_TAINTS
        return (EventRegistration(POD, pods, _may_change_counts), EventRegistration(NODE, nodes))


@dataclass(frozen=True, slots=True)
class _Domains:
    """The nodes whose pods count for a constraint, and the domains that these nodes form."""

    position: int
    """The position of the log of nodes for which it is valid."""
    eligible: Mask
    is_present: Mask
    """By domain; the last element is for nodes without the label."""
    count: int


def _domains_of(cycle: Cycle, constraint: Constraint, constraints: Sequence[Constraint]) -> _Domains:
    """Return the domains of a constraint: kept for all pods of the template until a node changes."""
    nodes = cycle.state.nodes
    key = ("spread domains", constraint)
    known: _Domains | None = cycle.template.cached.get(key)
    if known is None or known.position != nodes.log.position:
        eligible = nodes.present & is_eligible(nodes, cycle.template, constraint, ALL)
        for other in constraints:
            eligible &= nodes.labels.codes(other.topology_key) >= 0
        column = nodes.labels.column(constraint.topology_key)
        is_present = np.zeros(len(column.values) + 1, dtype=np.bool_)
        is_present[column.codes(nodes.size)[eligible]] = True
        is_present[-1] = False
        known = _Domains(nodes.log.position, eligible, is_present, int(is_present.sum()))
        cycle.template.cached[key] = known
    return known


def _count_hard(cycle: Cycle, constraint: Constraint, constraints: Sequence[Constraint]) -> _Hard:
    state, topology_key = cycle.state, constraint.topology_key
    domains = _domains_of(cycle, constraint, constraints)
    per_domain = state.count_by_domain(_selection(cycle, constraint), topology_key, domains.eligible)
    least = int(per_domain[domains.is_present].min()) if domains.count else _NO_MINIMUM
    codes = state.nodes.labels.codes(topology_key)
    return _Hard(constraint, codes, per_domain, 0 if domains.count < constraint.min_domains else least)


def _count_soft(
    cycle: Cycle, constraint: Constraint, scored: Mask, counted: Mask
) -> tuple[Constraint, Codes, Integers, float]:
    nodes = cycle.state.nodes
    column = nodes.labels.column(constraint.topology_key)
    codes = column.codes(nodes.size)
    counts = cycle.state.count(_selection(cycle, constraint))
    if constraint.topology_key == HOSTNAME:
        return constraint, codes, counts, float(np.log(float(int(scored.sum()) + 2)))
    has_domain = np.zeros(len(column.values) + 1, dtype=np.bool_)
    has_domain[codes[scored]] = True
    eligible = counted & is_eligible(nodes, cycle.template, constraint, ALL)
    per_domain = count_per_domain(codes[eligible], counts[eligible], len(column.values))
    size = int(has_domain.sum())
    return constraint, codes, per_domain, float(np.log(float(size + 2)))


def _selection(cycle: Cycle, constraint: Constraint) -> PodSelection:
    return PodSelection(constraint.counted_selector, frozenset((cycle.template.namespace,)), has_terminating=False)


def _may_change_counts(pod: Pod, event: ClusterEvent) -> bool:
    """Return whether a pod of the same namespace that a constraint selects came, went or changed its labels."""
    other: Pod = event.new or event.old
    if other.uid == pod.uid:
        return True
    if other.namespace != pod.namespace:
        return False
    constraints = constraints_of(pod.template, "DoNotSchedule")
    if not constraints:
        return True  # Default constraints: their selector depends on services and owners.
    both = [template for template in (event.old, event.new) if template is not None]
    return any(constraint.selector.matches(template.labels) for constraint in constraints for template in both)
