"""Whether a pod may run on a node, resources aside: node selector, required node affinity, taints."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from pinnace.model.typed_objects import NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration
from pinnace.schema.golang.numbers import parse_int

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
HARD_EFFECTS = ("NoSchedule", "NoExecute")
Labels = Mapping[str, str]


class Constraints:
    """Where pods of one kind may run. Equal for all pods of a template."""

    __slots__ = ("node_name_terms", "selector", "tolerations")

    def __init__(self, spec: PodSpec) -> None:
        affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
        self.selector: Labels = spec.get("nodeSelector") or {}
        self.node_name_terms = affinity.get("nodeSelectorTerms") if affinity else None
        self.tolerations: Sequence[Toleration] = spec.get("tolerations") or ()

    @property
    def size(self) -> int:
        """The number of terms and tolerations, each of which is compared with a node."""
        return len(self.node_name_terms or ()) + len(self.tolerations)

    def matches_labels(self, name: str, labels: Labels) -> bool:
        if any(labels.get(key) != value for key, value in self.selector.items()):
            return False
        terms = self.node_name_terms
        return terms is None or any(_matches_term(term, name, labels) for term in terms)

    def tolerates(self, taints: Sequence[Taint], effects: Collection[str] = HARD_EFFECTS) -> bool:
        """Whether every taint with one of these effects is tolerated."""
        return all(
            any(_tolerates(toleration, taint) for toleration in self.tolerations)
            for taint in taints
            if taint.get("effect") in effects
        )


def _matches_term(term: NodeSelectorTerm, name: str, labels: Labels) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False  # An empty term selects nothing.
    return all(_matches(expression, labels) for expression in expressions) and all(
        _matches(field, {"metadata.name": name}) for field in fields
    )


def _matches(requirement: NodeSelectorRequirement, labels: Labels) -> bool:
    value = labels.get(requirement["key"])
    values: Sequence[Any] = requirement.get("values") or ()
    match requirement.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            number, limit = _parse(value), _parse(values[0] if len(values) == 1 else None)
            if number is None or limit is None:
                return False  # No number is greater than a text, nor less.
            return number > limit if operator == "Gt" else number < limit
        case _:
            return False


def _parse(text: str | None) -> int | None:
    return None if text is None else parse_int(text)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")
