"""Validation of node selectors: node affinity of volumes, nodes of devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.validation.fields import validate_name
from pinnace.model import names
from pinnace.model.field_errors import FieldError, forbidden, invalid, required
from pinnace.model.typed_objects import NodeSelector, NodeSelectorRequirement

_REQUIREMENT = GoStruct("Key='' Operator='' Values")
NODE_SELECTOR_TERM = GoStruct("MatchExpressions MatchFields", MatchExpressions=_REQUIREMENT, MatchFields=_REQUIREMENT)
NOT_AN_OPERATOR = "not a valid selector operator"

DEPRECATED_NODE_LABELS: Mapping[str, str] = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and Tolerations instead",
}


def validate_node_selector(selector: NodeSelector, path: str) -> Iterator[FieldError]:
    """Check that there is at least one term, and the requirements of each."""
    terms = selector.get("nodeSelectorTerms") or []
    if not terms:
        yield required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
    for i, term in enumerate(terms):
        place = f"{path}.nodeSelectorTerms[{i}]"
        for j, requirement in enumerate(term.get("matchExpressions") or []):
            yield from _validate_label_requirement(requirement, f"{place}.matchExpressions[{j}]")
        for j, requirement in enumerate(term.get("matchFields") or []):
            yield from _validate_field_requirement(requirement, f"{place}.matchFields[{j}]")


def _validate_label_requirement(requirement: NodeSelectorRequirement, path: str) -> Iterator[FieldError]:
    operator, values = requirement.get("operator", ""), requirement.get("values") or []
    if operator in ("In", "NotIn"):
        if not values:
            yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield forbidden(f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            yield required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    else:
        yield invalid(f"{path}.operator", operator, NOT_AN_OPERATOR)
    yield from validate_name(requirement.get("key", ""), names.qualified_name, f"{path}.key")
    for i, value in enumerate(values):
        yield from validate_name(value, names.label_value, f"{path}.values[{i}]")


def _validate_field_requirement(requirement: NodeSelectorRequirement, path: str) -> Iterator[FieldError]:
    operator, values = requirement.get("operator", ""), requirement.get("values") or []
    if operator not in ("In", "NotIn"):
        yield invalid(f"{path}.operator", operator, NOT_AN_OPERATOR)
    elif len(values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield required(f"{path}.values", detail)
    if requirement.get("key", "") != "metadata.name":
        yield invalid(f"{path}.key", requirement.get("key", ""), "not a valid field selector key")
    else:
        for i, value in enumerate(values):
            yield from validate_name(value, names.dns_subdomain, f"{path}.values[{i}]")


def node_selector_warnings(selector: NodeSelector, path: str) -> Iterator[str]:
    """Yield a warning for each deprecated node label."""
    for i, term in enumerate(selector.get("nodeSelectorTerms") or []):
        for j, requirement in enumerate(term.get("matchExpressions") or []):
            if message := DEPRECATED_NODE_LABELS.get(requirement.get("key", "")):
                yield f"{path}.nodeSelectorTerms[{i}].matchExpressions[{j}].key: {requirement['key']} is {message}"
