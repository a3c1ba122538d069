"""The conditions of a Node object, from the failures and pressures of the node: pure, in kubelet's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pinnace.model.typed_objects import NodeCondition

_PRESSURES = {
    "MemoryPressure": (
        ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
    ),
    "DiskPressure": (
        ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("KubeletHasDiskPressure", "kubelet has disk pressure"),
    ),
    "PIDPressure": (
        ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
    ),
}
"""The reason and message of each condition, without and with the pressure."""


def node_conditions(
    present: Sequence[NodeCondition], *, failures: Sequence[str], pressures: Sequence[str], now: str
) -> list[NodeCondition]:
    """Return the conditions of the node's agent. A status that has not changed keeps the time of its transition."""
    known = {condition.get("type"): condition for condition in present}
    stated = [_pressure(type_, is_met=type_ in pressures) for type_ in _PRESSURES]
    stated.append(_ready(failures))
    return [_with_times(condition, known.get(condition["type"]), now) for condition in stated]


def have_changed(present: Sequence[NodeCondition], wanted: Sequence[NodeCondition]) -> bool:
    """Whether the Node shows something else than these conditions; the times of heartbeats do not count."""
    known = {condition.get("type"): _without_heartbeat(condition) for condition in present}
    return any(known.get(condition["type"]) != _without_heartbeat(condition) for condition in wanted)


def _pressure(type_: str, *, is_met: bool) -> NodeCondition:
    reason, message = _PRESSURES[type_][1 if is_met else 0]
    return {"type": type_, "status": "True" if is_met else "False", "reason": reason, "message": message}


def _ready(failures: Sequence[str]) -> NodeCondition:
    if not failures:
        message = "kubelet is posting ready status"
        return {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": message}
    # Go's aggregate of errors: one as it is, several in brackets.
    message = failures[0] if len(failures) == 1 else f"[{', '.join(failures)}]"
    return {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": message}


def _with_times(condition: NodeCondition, old: NodeCondition | None, now: str) -> NodeCondition:
    is_same = old is not None and old.get("status") == condition["status"]
    since = (old or {}).get("lastTransitionTime") if is_same else None
    return {**condition, "lastHeartbeatTime": now, "lastTransitionTime": since or now}


def _without_heartbeat(condition: NodeCondition) -> Mapping[str, object]:
    return {name: value for name, value in condition.items() if name != "lastHeartbeatTime"}
