"""Node selectors and tolerations, evaluated for many nodes at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from pinnace.model.objects import AnyObject, Object
from pinnace.model.typed_objects import NodeSelectorTerm, Taint, Toleration
from pinnace.scheduler.state.arrays import At, Integers, Mask
from pinnace.scheduler.state.nodes import NodeTable
from pinnace.scheduler.state.pods import Template
from pinnace.scheduler.state.terms import REQUIRED

HARD_EFFECTS = ("NoSchedule", "NoExecute")
_SOFT = "PreferNoSchedule"
_UNSCHEDULABLE: Object = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def length(nodes: NodeTable, at: At) -> int:
    return nodes.size if isinstance(at, slice) else len(at)


def match_terms(nodes: NodeTable, terms: Iterable[NodeSelectorTerm], at: At) -> Mask:
    """Return the nodes that match one of the nodeSelectorTerms. An empty term matches none."""
    matched = np.zeros(length(nodes, at), dtype=np.bool_)
    for term in terms:
        matched |= match_term(nodes, term, at)
    return matched


def match_term(nodes: NodeTable, term: NodeSelectorTerm, at: At) -> Mask:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return np.zeros(length(nodes, at), dtype=np.bool_)
    matched = np.ones(length(nodes, at), dtype=np.bool_)
    for expression in expressions:
        matched &= nodes.labels.match(
            expression["key"], expression.get("operator", ""), expression.get("values") or (), at
        )
    for field in fields:
        matched &= nodes.fields.match(field["key"], field.get("operator", ""), field.get("values") or (), at)
    return matched


def required_terms(template: Template) -> Sequence[NodeSelectorTerm] | None:
    """Return the terms of the required node affinity; None if there is none."""
    affinity = ((template.spec.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED)
    return None if affinity is None else affinity.get("nodeSelectorTerms") or ()


def match_required(nodes: NodeTable, template: Template, at: At) -> Mask:
    """Return the nodes that match a pod's nodeSelector and required node affinity."""
    matched = nodes.labels.match_labels(template.spec.get("nodeSelector") or {}, at, nodes.size)
    terms = required_terms(template)
    return matched if terms is None else matched & match_terms(nodes, terms, at)


def tolerates(toleration: AnyObject, taint: AnyObject) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    match toleration.get("operator") or "Equal":
        case "Equal":
            return bool((toleration.get("value") or "") == (taint.get("value") or ""))
        case "Exists":
            return True
        case _:
            return False


def match_taints(nodes: NodeTable, template: Template, at: At) -> Mask:
    """Return the nodes whose NoSchedule and NoExecute taints are all tolerated."""
    tolerations = template.spec.get("tolerations") or ()
    table = _per_taint_set(nodes, template, "hard", lambda taint: taint.get("effect") in HARD_EFFECTS, tolerations)
    matched: Mask = table[nodes.taints[at]] == 0
    return matched


def count_soft_taints(nodes: NodeTable, template: Template, at: At) -> Integers:
    """Return the number of PreferNoSchedule taints of each node that are not tolerated."""
    tolerations = [
        toleration
        for toleration in template.spec.get("tolerations") or ()
        if toleration.get("effect") in (None, "", _SOFT)
    ]
    table = _per_taint_set(nodes, template, "soft", lambda taint: taint.get("effect") == _SOFT, tolerations)
    return table[nodes.taints[at]]


def tolerates_unschedulable(template: Template) -> bool:
    """Return whether the pod may run on cordoned nodes."""
    return any(tolerates(toleration, _UNSCHEDULABLE) for toleration in template.spec.get("tolerations") or ())


def _per_taint_set(
    nodes: NodeTable,
    template: Template,
    kind: str,
    is_counted: Callable[[Taint], bool],
    tolerations: Sequence[Toleration],
) -> Integers:
    """Return the number of untolerated taints for each distinct list of taints."""
    key = ("taints", kind)
    known: Integers = template.cached.get(key, _NO_SETS)
    if len(known) < len(nodes.taint_sets):
        new = [
            sum(
                is_counted(taint) and not any(tolerates(toleration, taint) for toleration in tolerations)
                for taint in taints
            )
            for taints in nodes.taint_sets[len(known) :]
        ]
        known = template.cached[key] = np.concatenate([known, np.array(new, dtype=np.int64)])
    return known


_NO_SETS: Integers = np.zeros(0, dtype=np.int64)
