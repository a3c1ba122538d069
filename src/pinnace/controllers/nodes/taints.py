"""The taints that the cluster itself sets on nodes, and whether pods tolerate them. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from pinnace.client.snapshots import Snapshot
from pinnace.controllers.pods import Toleration
from pinnace.model.typed_objects import Node, Taint

NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "NoExecute"
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"

_BY_CONDITION = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
}
_OURS = {*_BY_CONDITION.values(), UNSCHEDULABLE}


def taints_of(node: Node, effect: str = "") -> list[Taint]:
    """Return the taints of a node, or those of one effect."""
    taints: list[Taint] = (node.get("spec") or {}).get("taints") or []
    return [taint for taint in taints if not effect or taint.get("effect") == effect]


class _Spec(msgspec.Struct, gc=False):
    taints: list[Any] | None = None


class _Node(msgspec.Struct, gc=False):
    spec: _Spec | None = None


_decoder = msgspec.json.Decoder(_Node)


def taints_in(snapshot: Snapshot[Node], effect: str) -> list[Taint]:
    """Return the taints of an encoded node that have this effect. Its status, which may be large, is not decoded."""
    spec = _decoder.decode(snapshot.body).spec
    return [taint for taint in (spec.taints if spec is not None else None) or () if taint.get("effect") == effect]


def has_taint(node: Node, key: str, effect: str = "") -> bool:
    return any(taint.get("key") == key for taint in taints_of(node, effect))


def with_condition_taints(node: Node, now: str) -> list[Taint]:
    """Return the taints of a node, with exactly the NoSchedule taints that follow from its conditions."""
    wanted = {
        key
        for condition in (node.get("status") or {}).get("conditions") or ()
        if (key := _BY_CONDITION.get((condition.get("type", ""), condition.get("status", ""))))
    }
    if (node.get("spec") or {}).get("unschedulable"):
        wanted.add(UNSCHEDULABLE)
    kept = []
    for taint in taints_of(node):
        if taint.get("effect") == NO_SCHEDULE and taint.get("key") in _OURS:
            if taint["key"] not in wanted:
                continue
            wanted.discard(taint["key"])
        kept.append(taint)
    return kept + [{"key": key, "effect": NO_SCHEDULE, "timeAdded": now} for key in sorted(wanted)]


def with_execution_taint(taints: Iterable[Taint], key: str, now: str) -> list[Taint]:
    """Return the taints with the given one of the two that evict pods, or with neither for an empty key."""
    kept = []
    for taint in taints:
        if taint.get("effect") == NO_EXECUTE and taint.get("key") in (NOT_READY, UNREACHABLE):
            if taint["key"] != key:
                continue
            key = ""
        kept.append(taint)
    return kept + ([{"key": key, "effect": NO_EXECUTE, "timeAdded": now}] if key else [])


def toleration_seconds(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> float | None:
    """Return how long a pod may stay under these taints: 0 if it does not tolerate one of them, None for ever."""
    used = []
    for taint in taints:
        tolerating = next((toleration for toleration in tolerations if tolerates(toleration, taint)), None)
        if tolerating is None:
            return 0.0
        used.append(tolerating)
    limits = [toleration.tolerationSeconds for toleration in used if toleration.tolerationSeconds is not None]
    return float(max(0, min(limits))) if limits else None


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.get("effect"):
        return False
    if toleration.key and toleration.key != taint.get("key"):
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == (taint.get("value") or "")
        case "Exists":
            return True
        case "Gt" | "Lt":
            return _compares(toleration, taint.get("value") or "")
        case _:
            return False


def _compares(toleration: Toleration, value: str) -> bool:
    try:
        left, right = int(value), int(toleration.value)
    except ValueError:
        return False
    return left > right if toleration.operator == "Gt" else left < right
