"""Refuses pods with more scheduling terms than a decision has time for. Kubernetes has no limits of this kind.

A decision is one piece of work between two requests. Each pod affinity term and each spread constraint is compared with
the labels of all pods, each requirement of a node selector with all nodes.
"""

from __future__ import annotations

from pinnace.model.typed_objects import PodSpec
from pinnace.scheduler.framework.status import Refusal, unresolvable
from pinnace.scheduler.state.pods import Template
from pinnace.scheduler.state.terms import MOST_TERMS, PREFERRED, REQUIRED

MOST_CONSTRAINTS = MOST_TERMS
MOST_NODE_REQUIREMENTS = 1_000
MOST_QUESTIONS = 4_000
"""The terms of waiting pods that one event is compared with. Pods beyond are tried again without a question: a decision
is a piece of work of its own, and all of these questions together are one."""
_KEY = "excess"
_WEIGHT = "weight"


def refuse_excess(template: Template) -> Refusal | None:
    """Return why pods of a template are not scheduled, whatever the nodes; None if their terms are few enough."""
    cached = template.cached
    if _KEY not in cached:
        cached[_KEY] = _find_excess(template)
    refusal: Refusal | None = cached[_KEY]
    return refusal


def weigh_question(template: Template) -> int:
    """Return how many terms are read to find out whether an event helps pods of a template, at most."""
    cached = template.cached
    if _WEIGHT not in cached:
        spec = template.spec
        cached[_WEIGHT] = 1 + template.terms.count + _constraints(spec) + _node_requirements(spec)
    weight: int = cached[_WEIGHT]
    return weight


def _find_excess(template: Template) -> Refusal | None:
    spec = template.spec
    for plugin, what, count, most in (
        ("InterPodAffinity", "pod affinity terms", template.terms.count, MOST_TERMS),
        ("PodTopologySpread", "topology spread constraints", _constraints(spec), MOST_CONSTRAINTS),
        ("NodeAffinity", "requirements on nodes", _node_requirements(spec), MOST_NODE_REQUIREMENTS),
    ):
        if count > most:
            return unresolvable(f"pod has {count} {what}, this scheduler takes at most {most}", plugin=plugin)
    return None


def _constraints(spec: PodSpec) -> int:
    return len(spec.get("topologySpreadConstraints") or ())


def _node_requirements(spec: PodSpec) -> int:
    """Return the number of node selector requirements, where an empty term counts as one."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = [*((affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or ())]
    terms += [term.get("preference") or {} for term in affinity.get(PREFERRED) or ()]
    return len(spec.get("nodeSelector") or ()) + sum(
        max(1, len(term.get("matchExpressions") or ()) + len(term.get("matchFields") or ())) for term in terms
    )
