"""Refuses pods with more scheduling terms than a decision has time for. Kubernetes has no limits of this kind.

A decision is one piece of work between two requests. Each pod affinity term and each spread constraint is compared with
the labels of all pods, each requirement of a node selector with all nodes.
"""

from __future__ import annotations

from pinnace.model.objects import Object
from pinnace.scheduler.framework.status import Refusal, unresolvable
from pinnace.scheduler.state.pods import Template
from pinnace.scheduler.state.terms import MOST_TERMS, PREFERRED, REQUIRED

MOST_CONSTRAINTS = MOST_TERMS
MOST_NODE_REQUIREMENTS = 1_000
_KEY = "excess"


def refuse_excess(template: Template) -> Refusal | None:
    """Return why pods of a template are not scheduled, whatever the nodes; None if their terms are few enough."""
    cached = template.cached
    if _KEY not in cached:
        cached[_KEY] = _find_excess(template)
    refusal: Refusal | None = cached[_KEY]
    return refusal


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


def _constraints(spec: Object) -> int:
    return len(spec.get("topologySpreadConstraints") or ())


def _node_requirements(spec: Object) -> int:
    """Return the number of node selector requirements, where an empty term counts as one."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = [*((affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or ())]
    terms += [one.get("preference") or {} for one in affinity.get(PREFERRED) or ()]
    return len(spec.get("nodeSelector") or ()) + sum(
        max(1, len(term.get("matchExpressions") or ()) + len(term.get("matchFields") or ())) for term in terms
    )
