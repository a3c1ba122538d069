"""Topology spread constraints: parsed once per template, with the defaults of pods that state none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pinnace.model import selectors
from pinnace.model.objects import Object
from pinnace.model.selectors import LabelSelector, Requirement
from pinnace.scheduler.state.arrays import At, Mask
from pinnace.scheduler.state.lookups import Lookups
from pinnace.scheduler.state.node_selectors import length, match_required, match_taints
from pinnace.scheduler.state.nodes import NodeTable
from pinnace.scheduler.state.pods import Template
from pinnace.scheduler.state.terms import extend

HOSTNAME = "kubernetes.io/hostname"
SYSTEM_DEFAULTS: tuple[Object, ...] = (
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
            _parse(one, template) for one in written if one.get("whenUnsatisfiable") == action
        ]
    return known


def _parse(written: Object, template: Template, selector: LabelSelector | None = None) -> Constraint:
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
    template: Template, lookups: Lookups, defaults: Sequence[Object], action: str
) -> Sequence[Constraint]:
    """Return the default constraints of a pod that states none: for the pods of its services and its owner."""
    wanted = [one for one in defaults if one.get("whenUnsatisfiable") == action]
    if not wanted:
        return ()
    key = ("default spread", action)
    version = lookups.version("Service", "ReplicationController", "ReplicaSet", "StatefulSet")
    known: tuple[int, Sequence[Constraint]] | None = template.cached.get(key)
    if known is None or known[0] != version:
        selector = default_selector(template, lookups)
        parsed = [] if selector.matches_everything else [_parse(one, template, selector) for one in wanted]
        known = template.cached[key] = (version, parsed)
    return known[1]


def default_selector(template: Template, lookups: Lookups) -> LabelSelector:
    """Return the selector of the services that select a pod and of the controller that owns it."""
    labels: dict[str, str] = {}
    for service in lookups.within("Service", template.namespace):
        selector = service.get("spec", {}).get("selector")
        if selector and all(template.labels.get(key) == value for key, value in selector.items()):
            labels.update(selector)
    if template.owner is None:
        return selectors.from_labels(labels)
    api_version, kind, name = template.owner
    match (api_version, kind):
        case ("v1", "ReplicationController"):
            found = lookups.get("ReplicationController", name, namespace=template.namespace)
            labels.update((found or {}).get("spec", {}).get("selector") or {})
            return selectors.from_labels(labels)
        case ("apps/v1", "ReplicaSet" | "StatefulSet"):
            found = lookups.get(
                "ReplicaSet" if kind == "ReplicaSet" else "StatefulSet", name, namespace=template.namespace
            )
            selector = selectors.from_labels(labels)
            if found is not None:
                selector = extend(selector, selectors.from_object(found["spec"].get("selector")).requirements)
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
