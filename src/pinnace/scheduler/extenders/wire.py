"""The bodies that kube-scheduler and extenders exchange, with the field names that Go writes; it reads any case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from pinnace.model.objects import Object
from pinnace.model.typed_objects import Node
from pinnace.model.typed_objects import Pod as PodObject

HIGHEST_PRIORITY = 10
"""Extenders score from 0 to 10, plug-ins from 0 to 100."""
_LARGEST = 2**31 - 1
_LONGEST_REASON = 1024


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


def arguments(pod: PodObject, names: Iterable[str], nodes: Iterable[Node] | None) -> Object:
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
    """Return an ExtenderFilterResult. Raise InvalidExtenderAnswer."""
    fields = fold(body)
    names: tuple[str, ...] | None = None
    if fields.get("nodenames") is not None:
        names = tuple(_text(name, "NodeNames") for name in _list(fields["nodenames"], "NodeNames"))
    elif fields.get("nodes") is not None:
        nodes = _list(_map(fields["nodes"], "Nodes").get("items") or [], "Nodes.items")
        names = tuple(_node_name(node) for node in nodes)
    return FilterResult(
        names=names,
        failed=_texts(fields.get("failednodes") or {}, "FailedNodes"),
        unresolvable=_texts(fields.get("failedandunresolvablenodes") or {}, "FailedAndUnresolvableNodes"),
        error=_text(fields.get("error") or "", "Error")[:_LONGEST_REASON],
    )


def parse_meta_victims(body: Any) -> dict[str, tuple[list[str], int]]:
    """Return the uids of the victims on each node, and the violated budgets, of an ExtenderPreemptionResult."""
    victims: dict[str, tuple[list[str], int]] = {}
    for name, item in _map(fold(body).get("nodenametometavictims") or {}, "NodeNameToMetaVictims").items():
        fields = fold(item)
        uids = [_text(fold(pod).get("uid") or "", "UID") for pod in _list(fields.get("pods") or [], "Pods")]
        victims[name] = uids, _integer(fields.get("numpdbviolations") or 0, "NumPDBViolations")
    return victims


def filter_body(result: FilterResult, nodes: Iterable[Node] | None) -> Object:
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
        scores[_text(fields.get("host", ""), "Host")] = _integer(fields.get("score", 0), "Score")
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


def _list(value: Any, name: str) -> list[Any]:
    return value if isinstance(value, list) else _refuse(value, name, "a list")


def _map(value: Any, name: str) -> dict[str, Any]:
    return value if isinstance(value, dict) else _refuse(value, name, "an object")


def _text(value: Any, name: str) -> str:
    return value if isinstance(value, str) else _refuse(value, name, "a string")


def _texts(value: Any, name: str) -> dict[str, str]:
    return {key: _text(inner, name)[:_LONGEST_REASON] for key, inner in _map(value, name).items()}


def _integer(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST:
        return _refuse(value, name, "an integer of 32 bits")
    return value


def _node_name(node: Any) -> str:
    return _text(_map(_map(node, "Nodes.items").get("metadata"), "metadata").get("name"), "metadata.name")


def _refuse(value: Any, name: str, expected: str) -> NoReturn:
    given = type(value).__name__ if isinstance(value, dict | list | str) else repr(value)[:64]
    raise InvalidExtenderAnswer(f"expected {expected} in {name}, found {given}")
