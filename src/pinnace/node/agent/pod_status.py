"""The status of a pod, computed from what the runtime reports. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from pinnace.model.clock import to_rfc3339
from pinnace.model.objects import Object
from pinnace.node.agent.restarts import restarts_after
from pinnace.node.resources.resize import ERROR, PodAllocation
from pinnace.node.runtime.runtime import ContainerState, ContainerStatus

SCHEME = "pinnace://"
OWN_CONDITIONS = frozenset(
    (
        *("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"),
        *("PodResizePending", "PodResizeInProgress", "DisruptionTarget"),
    )
)
"""The conditions that the node writes; it never changes those of others."""
_WITH_REASON = frozenset(("PodResizePending", "PodResizeInProgress", "DisruptionTarget"))
_Wanted = tuple[str, bool, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a container does not run."""

    reason: str
    message: str = ""


class StatusFailure(Protocol):
    """Why the node has ended a pod."""

    @property
    def reason(self) -> str: ...

    @property
    def message(self) -> str: ...

    @property
    def is_disruption(self) -> bool: ...


@dataclass(slots=True)
class Observed:
    """Everything that is known about the containers of a pod."""

    latest: Mapping[str, ContainerStatus] = field(default_factory=dict)
    previous: Mapping[str, ContainerStatus] = field(default_factory=dict)
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    ready: Mapping[str, bool] = field(default_factory=dict)
    started: Mapping[str, bool] = field(default_factory=dict)
    images: Mapping[str, str] = field(default_factory=dict)
    """The id of the image of each container."""
    has_sandbox: bool = False
    addresses: Sequence[str] = ()
    """Those of the pod, the default IP family first."""
    failure: StatusFailure | None = None
    allocation: PodAllocation | None = None


def status_of(pod: Object, seen: Observed, *, now: str, host_ips: Sequence[str]) -> Object:
    """Return the status to write. Conditions of other components, and times that still hold, are kept."""
    spec, old = pod["spec"], pod.get("status") or {}
    apps = [_container(one, seen, is_init=False) for one in spec["containers"]]
    inits = [_container(one, seen, is_init=True) for one in spec.get("initContainers") or ()]
    phase = "Failed" if seen.failure is not None else phase_of(pod, apps, inits)
    status: Object = {
        "phase": phase,
        "startTime": old.get("startTime") or now,
        "hostIP": host_ips[0],
        "hostIPs": [{"ip": one} for one in host_ips],
        "conditions": _conditions(pod, _wanted_conditions(pod, seen, phase, apps, inits), now=now),
        "containerStatuses": apps,
        "initContainerStatuses": inits or None,
        "ephemeralContainerStatuses": [
            _container(one, seen, is_init=False) for one in spec.get("ephemeralContainers") or ()
        ]
        or None,
    }
    addresses = host_ips if spec.get("hostNetwork") else seen.addresses
    if addresses:
        status |= {"podIP": addresses[0], "podIPs": [{"ip": one} for one in addresses]}
    if seen.failure is not None:
        status |= {"reason": seen.failure.reason, "message": seen.failure.message}
    if pod["metadata"].get("generation"):
        status["observedGeneration"] = pod["metadata"]["generation"]
    return {name: value for name, value in status.items() if value is not None}


def _wanted_conditions(
    pod: Object, seen: Observed, phase: str, apps: Sequence[Object], inits: Sequence[Object]
) -> list[_Wanted]:
    """Return type, whether it holds, and reason and message of each condition that the node writes."""
    spec = pod["spec"]
    are_ready = all(one["ready"] for one in apps) and phase not in ("Succeeded", "Failed") and bool(apps)
    further = [one["conditionType"] for one in spec.get("readinessGates") or ()]
    known = {one["type"]: one["status"] for one in (pod.get("status") or {}).get("conditions") or ()}
    is_ready = are_ready and all(known.get(type_) == "True" for type_ in further)
    why = {"Succeeded": ("PodCompleted", ""), "Failed": ("PodFailed", "")}.get(
        phase, _unready([one["name"] for one in apps if not one["ready"]])
    )
    unready = why if not are_ready else ("ReadinessGatesNotReady", _missing_readiness(further, known))
    is_initialized = all(_is_initialized(one, seen) for one in spec.get("initContainers") or ())
    pending = [one["name"] for one in inits if not one["ready"]]
    missing = ("ContainersNotInitialized", f"containers with incomplete status: [{' '.join(pending)}]")
    wanted: list[_Wanted] = [
        ("PodReadyToStartContainers", seen.has_sandbox, ("", "")),
        ("Initialized", is_initialized, missing if phase != "Succeeded" else ("PodCompleted", "")),
        ("Ready", is_ready, unready),
        ("ContainersReady", are_ready, why),
    ]
    if seen.failure is not None and seen.failure.is_disruption:
        wanted.append(("DisruptionTarget", True, ("TerminationByKubelet", seen.failure.message)))
    allocation = seen.allocation
    if allocation is not None and allocation.pending is not None:
        wanted.append(("PodResizePending", True, (allocation.pending.reason, allocation.pending.message)))
    if allocation is not None and (allocation.is_in_progress or allocation.error):
        reason = (ERROR, allocation.error) if allocation.error else ("", "")
        wanted.append(("PodResizeInProgress", True, reason))
    return wanted


def _missing_readiness(types: Sequence[str], known: Mapping[str, str]) -> str:
    """The message about readiness gates whose conditions do not hold."""
    absent = [one for one in types if one not in known]
    if absent:
        return ", ".join(f'corresponding condition of pod readiness gate "{one}" does not exist.' for one in absent)
    false = [one for one in types if known[one] != "True"]
    return ", ".join(f'the status of pod readiness gate "{one}" is not "True", but {known[one]}' for one in false)


def phase_of(pod: Object, apps: Sequence[Object], inits: Sequence[Object]) -> str:
    """The phase by kubelet's rules."""
    specs = {one["name"]: one for one in (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"])}
    for one in inits:
        if specs[one["name"]].get("restartPolicy") == "Always":
            if not one.get("started"):
                return "Pending"
            continue
        ended = one["state"].get("terminated") or {}
        if ended and ended["exitCode"] != 0 and not restarts_after(pod, specs[one["name"]], ended["exitCode"]):
            return "Failed"
        if not ended or ended["exitCode"] != 0:
            return "Pending"
    running = waiting = restarting = failed = 0
    for one in apps:
        ended = one["state"].get("terminated") or (
            one["lastState"].get("terminated") if "waiting" in one["state"] else None
        )
        if "running" in one["state"]:
            running += 1
        elif ended:
            restarting += restarts_after(pod, specs[one["name"]], ended["exitCode"])
            failed += ended["exitCode"] != 0
        else:
            waiting += 1
    if waiting:
        return "Pending"
    if running or restarting:
        return "Running"
    return "Failed" if failed else "Succeeded"


def _is_initialized(container: Object, seen: Observed) -> bool:
    latest = seen.latest.get(container["name"])
    if container.get("restartPolicy") == "Always":
        return seen.started.get(container["name"], False)
    return latest is not None and latest.state is ContainerState.EXITED and latest.exit_code == 0


def _unready(names: Sequence[str]) -> tuple[str, str]:
    return "ContainersNotReady", f"containers with unready status: [{' '.join(names)}]"


def _container(container: Object, seen: Observed, *, is_init: bool) -> Object:
    name = container["name"]
    latest, previous, waiting = seen.latest.get(name), seen.previous.get(name), seen.waiting.get(name)
    if latest is not None and waiting is not None and latest.state is ContainerState.EXITED:
        latest, previous = None, latest  # It waits for its restart.
    shown = latest or previous
    is_running = latest is not None and latest.state is ContainerState.RUNNING
    is_done = is_init and latest is not None and latest.state is ContainerState.EXITED and latest.exit_code == 0
    is_ready = is_done if is_init and container.get("restartPolicy") != "Always" else seen.ready.get(name, False)
    status: Object = {
        "name": name,
        "image": container.get("image", ""),
        "imageID": seen.images.get(name, ""),
        "restartCount": shown.config.attempt if shown is not None else 0,
        "ready": bool(is_ready and (is_running or is_done)),
        "started": bool(is_running and seen.started.get(name, False)),
        "state": _state(latest, waiting),
        "lastState": {"terminated": terminated(previous)} if previous is not None else {},
    }
    if shown is not None:
        status["containerID"] = f"{SCHEME}{shown.id}"
    if seen.allocation is not None and is_running and name in seen.allocation.actual:
        status["allocatedResources"] = seen.allocation.allocated.get(name, {}).get("requests")
        status["resources"] = seen.allocation.actual[name]
    return {name: value for name, value in status.items() if value is not None}


def _state(latest: ContainerStatus | None, waiting: Waiting | None) -> Object:
    if latest is not None and latest.state is ContainerState.RUNNING:
        return {"running": {"startedAt": _time(latest.started_at)}}
    if latest is not None and latest.state is ContainerState.EXITED:
        return {"terminated": terminated(latest)}
    found = waiting or Waiting("ContainerCreating")
    return {"waiting": {"reason": found.reason, **({"message": found.message} if found.message else {})}}


def terminated(ended: ContainerStatus) -> Object:
    state: Object = {
        "exitCode": ended.exit_code,
        "reason": ended.reason,
        "startedAt": _time(ended.started_at),
        "finishedAt": _time(ended.finished_at),
        "containerID": f"{SCHEME}{ended.id}",
    }
    if ended.message:
        state["message"] = ended.message
    return state


def _conditions(pod: Object, wanted: Sequence[_Wanted], *, now: str) -> list[Object]:
    present = {one["type"]: one for one in (pod.get("status") or {}).get("conditions") or ()}
    for type_ in ("PodResizePending", "PodResizeInProgress"):
        if type_ not in (one[0] for one in wanted):
            present.pop(type_, None)
    generation = pod["metadata"].get("generation")
    for type_, holds, (reason, message) in wanted:
        status = "True" if holds else "False"
        old = present.pop(type_, None)
        since = old["lastTransitionTime"] if old is not None and old["status"] == status else now
        made: Object = {"type": type_, "status": status, "lastProbeTime": None, "lastTransitionTime": since}
        if generation:
            made["observedGeneration"] = generation
        if reason and (not holds or type_ in _WITH_REASON):
            made["reason"] = reason
            if message:
                made["message"] = message
        present[type_] = made
    return list(present.values())


def _time(nanoseconds: int) -> str:
    return to_rfc3339(datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC))
