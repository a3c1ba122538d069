"""The columns of pods. READY, STATUS and RESTARTS summarize all containers of a pod."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pinnace.kinds.cells import (
    AGE,
    NAME,
    NONE,
    condition,
    is_true,
    labels_at,
    nonempty_at,
    reach,
    since,
    string,
    template_columns,
)
from pinnace.model.typed_objects import ContainerState, ContainerStateTerminated, ContainerStatus, Pod

_STATUS = "io.k8s.api.core.v1.PodStatus"
_SPEC = "io.k8s.api.core.v1.PodSpec"


def _sidecars(pod: Pod) -> frozenset[str]:
    """Return the init containers that run as long as the pod."""
    return frozenset(
        container.get("name", "")
        for container in (pod.get("spec") or {}).get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    )


def _has_succeeded(state: ContainerState) -> bool:
    terminated = state.get("terminated")
    return terminated is not None and not terminated.get("exitCode")


def _outcome(terminated: ContainerStateTerminated) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _init_reason(pod: Pod, sidecars: frozenset[str]) -> tuple[str, int] | None:
    """Return why the pod is still initializing, and at which init container; None once it is initialized."""
    for index, container in enumerate((pod.get("status") or {}).get("initContainerStatuses") or ()):
        state = container.get("state") or {}
        if _has_succeeded(state) or (container.get("name") in sidecars and container.get("started")):
            continue
        terminated, waiting = state.get("terminated"), state.get("waiting") or {}
        if terminated is not None:
            return f"Init:{_outcome(terminated)}", index
        if waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return f"Init:{waiting['reason']}", index
        return f"Init:{index}/{len(pod['spec'].get('initContainers') or ())}", index
    return None


def _is_running(container: ContainerStatus) -> bool:
    state = container.get("state") or {}
    if (state.get("waiting") or {}).get("reason") or state.get("terminated") is not None:
        return False
    return bool(container.get("ready")) and state.get("running") is not None


def ready(pod: Pod, now: datetime) -> str:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    sidecars = _sidecars(pod)
    total = len(spec.get("containers") or ()) + len(sidecars)
    stuck = _init_reason(pod, sidecars)
    seen = status.get("initContainerStatuses") or ()
    up = 0
    for container in seen if stuck is None else seen[: stuck[1]]:
        if not _has_succeeded(container.get("state") or {}) and container.get("ready"):
            up += 1
    if stuck is None or is_true(pod, "Initialized"):
        up += sum(1 for container in status.get("containerStatuses") or () if _is_running(container))
    return f"{up}/{total}"


def status(pod: Pod, now: datetime) -> str:
    status_of_pod = pod.get("status") or {}
    phase = status_of_pod.get("phase", "")
    reason = str(status_of_pod.get("reason") or phase)
    scheduled = condition(pod, "PodScheduled")
    if scheduled is not None and scheduled.get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    stuck = _init_reason(pod, _sidecars(pod))
    if stuck is not None:
        reason = stuck[0]
    if stuck is None or is_true(pod, "Initialized"):
        reason = _reason_of_containers(pod, reason)
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        if status_of_pod.get("reason") == "NodeLost":
            return "Unknown"
        if phase not in ("Succeeded", "Failed"):
            return "Terminating"
    return reason


def _reason_of_containers(pod: Pod, reason: str) -> str:
    has_running, failure = False, ""
    # From the last container to the first: the first container decides.
    for container in reversed((pod.get("status") or {}).get("containerStatuses") or ()):
        state = container.get("state") or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            reason = str(waiting["reason"])
        elif terminated is not None:
            reason = _outcome(terminated)
            if terminated.get("exitCode"):
                failure = reason
        elif container.get("ready") and state.get("running") is not None:
            has_running = True
    if reason != "Completed":
        return reason
    if has_running and is_true(pod, "Ready"):
        return "Running"
    return failure or ("NotReady" if has_running else reason)


def restarts(pod: Pod, now: datetime) -> str:
    status_of_pod = pod.get("status") or {}
    sidecars = _sidecars(pod)
    stuck = _init_reason(pod, sidecars)
    seen = status_of_pod.get("initContainerStatuses") or ()
    counted: list[ContainerStatus]
    if stuck is not None and not is_true(pod, "Initialized"):
        counted = list(seen[: stuck[1] + 1])
    else:
        reached = seen if stuck is None else seen[: stuck[1] + 1]
        counted = [container for container in reached if container.get("name") in sidecars]
        counted += status_of_pod.get("containerStatuses") or ()
    times = sum(container.get("restartCount") or 0 for container in counted)
    if not times:
        return "0"
    finished = [reach(container, "lastState", "terminated", "finishedAt") for container in counted]
    last = max((moment for moment in finished if moment), default=None)
    return f"{times} ({since(last, now)} ago)" if last else str(times)


def _ip(pod: Pod, now: datetime) -> Any:
    addresses = (pod.get("status") or {}).get("podIPs") or ()
    return (addresses[0].get("ip") if addresses else None) or NONE


def _readiness_gates(pod: Pod, now: datetime) -> str:
    readiness_gates = (pod.get("spec") or {}).get("readinessGates") or ()
    if not readiness_gates:
        return NONE
    passed = sum(is_true(pod, readiness_gate.get("conditionType", "")) for readiness_gate in readiness_gates)
    return f"{passed}/{len(readiness_gates)}"


POD = (
    NAME,
    string("Ready", "The aggregate readiness state of this pod for accepting traffic.", ready),
    string("Status", "The aggregate status of the containers in this pod.", status),
    string(
        "Restarts",
        "The number of times the containers in this pod have been restarted and when the last container in this pod "
        "has restarted.",
        restarts,
    ),
    AGE,
    string("IP", f"{_STATUS}.podIP", _ip, wide=True),
    string("Node", f"{_SPEC}.nodeName", nonempty_at("spec.nodeName", NONE), wide=True),
    string("Nominated Node", f"{_STATUS}.nominatedNodeName", nonempty_at("status.nominatedNodeName", NONE), wide=True),
    string("Readiness Gates", f"{_SPEC}.readinessGates", _readiness_gates, wide=True),
)

_containers, _images = template_columns("template")
POD_TEMPLATE = (
    NAME,
    string(_containers.name, _containers.description, _containers.value),
    string(_images.name, _images.description, _images.value),
    string("Pod Labels", "The labels for the pod template.", labels_at("template.metadata.labels")),
)
