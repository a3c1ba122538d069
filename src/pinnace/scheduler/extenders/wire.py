"""The bodies that kube-scheduler and extenders exchange, with the field names that Go writes; it reads any case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pinnace.model.objects import Object

HIGHEST_PRIORITY = 10
"""Extenders score from 0 to 10, plug-ins from 0 to 100."""


class InvalidExtenderAnswer(ValueError):
    """An extender has sent a body that is not in the wire format."""


@dataclass(frozen=True, slots=True)
class FilterResult:
    """The nodes that an extender accepts, and why it refuses others."""

    names: tuple[str, ...] | None
    """None if the body names no nodes: then none is accepted."""
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)
    """Refusals that preemption cannot resolve."""
    error: str = ""


def arguments(pod: Object, names: Iterable[str], nodes: Iterable[Object] | None) -> Object:
    """Return ExtenderArgs: with the nodes, or with their names alone if `nodes` is None."""
    if nodes is None:
        return {"Pod": pod, "Nodes": None, "NodeNames": list(names)}
    return {"Pod": pod, "Nodes": {"metadata": {}, "items": list(nodes)}, "NodeNames": None}


def parse_arguments(body: Any) -> tuple[Object, list[str], list[Object] | None]:
    """Return the pod, the names of nodes and, if they were sent, the nodes of ExtenderArgs."""
    fields = fold(body)
    pod = fields.get("pod")
    if not isinstance(pod, dict):
        raise InvalidExtenderAnswer("expected ExtenderArgs with a Pod, found none")
    listed = fields.get("nodes")
    if isinstance(listed, dict):
        nodes = listed.get("items") or []
        return pod, [node["metadata"]["name"] for node in nodes], nodes
    return pod, list(fields.get("nodenames") or ()), None


def parse_filter_result(body: Any) -> FilterResult:
    fields = fold(body)
    names: tuple[str, ...] | None = None
    if fields.get("nodenames") is not None:
        names = tuple(fields["nodenames"])
    elif isinstance(fields.get("nodes"), dict):
        names = tuple(node["metadata"]["name"] for node in fields["nodes"].get("items") or ())
    return FilterResult(
        names=names,
        failed=fields.get("failednodes") or {},
        unresolvable=fields.get("failedandunresolvablenodes") or {},
        error=fields.get("error") or "",
    )


def filter_body(result: FilterResult, nodes: Iterable[Object] | None) -> Object:
    """Return an ExtenderFilterResult; `nodes` if the request has sent nodes."""
    accepted = set(result.names or ())
    return {
        "Nodes": None
        if nodes is None
        else {"metadata": {}, "items": [node for node in nodes if node["metadata"]["name"] in accepted]},
        "NodeNames": list(result.names or ()) if nodes is None else None,
        "FailedNodes": dict(result.failed),
        "FailedAndUnresolvableNodes": dict(result.unresolvable),
        "Error": result.error,
    }


def parse_priorities(body: Any) -> dict[str, int]:
    """Return the score of each node of a HostPriorityList."""
    if body is None:
        return {}
    if not isinstance(body, list):
        raise InvalidExtenderAnswer(f"expected a list of Host and Score, found {type(body).__name__}")
    scores = {}
    for item in body:
        fields = fold(item)
        score = fields.get("score", 0)
        if isinstance(score, bool) or not isinstance(score, int):
            raise InvalidExtenderAnswer(f"expected an integer as Score of {fields.get('host')}, found {score!r}")
        scores[str(fields.get("host", ""))] = score
    return scores


def priorities_body(scores: Mapping[str, int]) -> list[Object]:
    return [{"Host": name, "Score": score} for name, score in scores.items()]


def error_of(body: Any) -> str:
    """Return the Error of an ExtenderBindingResult."""
    return str(fold(body).get("error") or "") if body is not None else ""


def fold(body: Any) -> dict[str, Any]:
    """Return the fields of an object with their names in lower case."""
    if not isinstance(body, dict):
        raise InvalidExtenderAnswer(f"expected a JSON object, found {type(body).__name__}")
    return {name.lower(): value for name, value in body.items()}
