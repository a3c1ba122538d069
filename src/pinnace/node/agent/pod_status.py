"""The status of a pod, computed from what the runtime reports. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pinnace.model.clock import to_rfc3339
from pinnace.model.objects import Object
from pinnace.node.runtime.runtime import ContainerState, ContainerStatus

SCHEME = "pinnace://"


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a container does not run."""

    reason: str
    message: str = ""


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
    address: str = ""


def status_of(pod: Object, seen: Observed, *, now: str, host_ip: str) -> Object:
    """Return the status to write. Conditions of other components, and times that still hold, are kept."""
    spec, old = pod["spec"], pod.get("status") or {}
    apps = [_container(one, seen, is_init=False) for one in spec["containers"]]
    inits = [_container(one, seen, is_init=True) for one in spec.get("initContainers") or ()]
    phase = phase_of(pod, apps, inits)
    is_over = phase in ("Succeeded", "Failed")
    are_ready = all(one["ready"] for one in apps) and not is_over and bool(apps)
    further = [one["conditionType"] for one in spec.get("readinessGates") or ()]
    known = {one["type"]: one["status"] for one in old.get("conditions") or ()}
    is_ready = are_ready and all(known.get(type_) == "True" for type_ in further)
    unready = [one["name"] for one in apps if not one["ready"]]
    why = (
        ("PodCompleted", "") if phase == "Succeeded" else ("PodFailed", "") if phase == "Failed" else _unready(unready)
    )
    is_initialized = all(_is_initialized(one, seen) for one in spec.get("initContainers") or ())
    pending = [one["name"] for one in inits if not one["ready"]]
    missing = ("ContainersNotInitialized", f"containers with incomplete status: [{' '.join(pending)}]")
    wanted = [
        ("PodReadyToStartContainers", seen.has_sandbox, ("", "")),
        ("Initialized", is_initialized, missing),
        ("Ready", is_ready, why),
        ("ContainersReady", are_ready, why),
    ]
    status: Object = {
        "phase": phase,
        "startTime": old.get("startTime") or now,
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "conditions": _conditions(pod, wanted, now=now),
        "containerStatuses": apps,
        "initContainerStatuses": inits or None,
        "ephemeralContainerStatuses": [
            _container(one, seen, is_init=False) for one in spec.get("ephemeralContainers") or ()
        ]
        or None,
    }
    address = host_ip if spec.get("hostNetwork") else seen.address
    if address:
        status |= {"podIP": address, "podIPs": [{"ip": address}]}
    if pod["metadata"].get("generation"):
        status["observedGeneration"] = pod["metadata"]["generation"]
    return {name: value for name, value in status.items() if value is not None}


def phase_of(pod: Object, apps: Sequence[Object], inits: Sequence[Object]) -> str:
    """The phase by kubelet's rules."""
    policy = pod["spec"].get("restartPolicy", "Always")
    sidecars = {one["name"] for one in pod["spec"].get("initContainers") or () if one.get("restartPolicy") == "Always"}
    for one in inits:
        if one["name"] in sidecars:
            if not one.get("started"):
                return "Pending"
            continue
        ended = one["state"].get("terminated") or {}
        if ended and ended["exitCode"] != 0 and policy == "Never":
            return "Failed"
        if not ended or ended["exitCode"] != 0:
            return "Pending"
    running = waiting = stopped = succeeded = 0
    for one in apps:
        ended = one["state"].get("terminated") or (
            one["lastState"].get("terminated") if "waiting" in one["state"] else None
        )
        if "running" in one["state"]:
            running += 1
        elif ended:
            stopped += 1
            succeeded += ended["exitCode"] == 0
        else:
            waiting += 1
    if waiting:
        return "Pending"
    if running or not stopped:
        return "Running" if running else "Pending"
    if policy == "Always" or (policy == "OnFailure" and stopped != succeeded):
        return "Running"
    return "Succeeded" if stopped == succeeded else "Failed"


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
    return status


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
        "startedAt": _time(ended.started_at) if ended.started_at else None,
        "finishedAt": _time(ended.finished_at),
        "containerID": f"{SCHEME}{ended.id}",
    }
    if ended.message:
        state["message"] = ended.message
    return state


def _conditions(pod: Object, wanted: Sequence[tuple[str, bool, tuple[str, str]]], *, now: str) -> list[Object]:
    present = {one["type"]: one for one in (pod.get("status") or {}).get("conditions") or ()}
    generation = pod["metadata"].get("generation")
    for type_, holds, (reason, message) in wanted:
        status = "True" if holds else "False"
        old = present.pop(type_, None)
        since = old["lastTransitionTime"] if old is not None and old["status"] == status else now
        made: Object = {"type": type_, "status": status, "lastProbeTime": None, "lastTransitionTime": since}
        if generation:
            made["observedGeneration"] = generation
        if not holds and reason:
            made["reason"] = reason
            if message:
                made["message"] = message
        present[type_] = made
    return list(present.values())


def _time(nanoseconds: int) -> str:
    return to_rfc3339(datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC))
