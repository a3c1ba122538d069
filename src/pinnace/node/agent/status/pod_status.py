"""The status of a pod, computed from what the runtime reports. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import cast

from pinnace.kinds.pods.resource_amounts import total_of
from pinnace.model.quantity import Quantity
from pinnace.model.typed_objects import (
    Container,
    ContainerStateTerminated,
    Pod,
    PodCondition,
    PodStatus,
    ResourceRequirements,
    ResourceStatus,
)
from pinnace.model.typed_objects import (
    ContainerState as ContainerStateObject,
)
from pinnace.model.typed_objects import (
    ContainerStatus as ContainerStatusObject,
)
from pinnace.node.agent.pod_records import Waiting
from pinnace.node.agent.restarts import restarts_after
from pinnace.node.resources.admission import PodFailure
from pinnace.node.resources.amounts import limits_of_pod
from pinnace.node.resources.resize import ERROR, PodAllocation
from pinnace.node.runtime.runtime import ContainerState, ContainerStatus
from pinnace.process.clock import to_rfc3339

SCHEME = "pinnace://"
OWN_CONDITIONS = frozenset(
    (
        *("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"),
        *("PodResizePending", "PodResizeInProgress", "DisruptionTarget"),
    )
)
"""The conditions that the node writes; it never changes those of others."""
FINAL = ("Succeeded", "Failed")
"""The phases that no pod leaves."""
_UNKNOWN: ContainerStateTerminated = {
    "exitCode": 137,
    "reason": "ContainerStatusUnknown",
    "message": "The container could not be located when the pod was terminated",
    "startedAt": cast(str, None),  # As kubelet writes it.
    "finishedAt": cast(str, None),
}
_WITH_REASON = frozenset(("PodResizePending", "PodResizeInProgress", "DisruptionTarget"))
_Wanted = tuple[str, bool, tuple[str, str]]


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
    failure: PodFailure | None = None
    is_rejected: bool = False
    """Whether the node never took the pod: then its status has nothing but the failure."""
    is_terminated: bool = False
    """Whether no container of the pod will run again: it was deleted, and all have ended."""
    allocation: PodAllocation | None = None
    devices: Mapping[str, Sequence[ResourceStatus]] = field(default_factory=dict)
    """The devices of each container, with their health."""
    has_pod_resources: bool = False
    """Whether the status shows the resources of the pod as a whole."""


def status_of(pod: Pod, seen: Observed, *, now: str, host_ips: Sequence[str]) -> PodStatus:
    """Return the status to write. Conditions of other components, and times that still hold, are kept."""
    spec, old = pod["spec"], pod.get("status") or {}
    if seen.is_rejected and seen.failure is not None:
        return _with_generation(pod, {"phase": "Failed", "startTime": old.get("startTime") or now}, seen.failure)
    apps = [_container(container, seen, is_init=False) for container in spec["containers"]]
    inits = [_container(container, seen, is_init=True) for container in spec.get("initContainers") or ()]
    if seen.is_terminated:
        _end_missing(pod, apps, inits)
    phase = "Failed" if seen.failure is not None else _phase(pod, seen, apps, inits)
    status: PodStatus = {
        "phase": phase,
        "startTime": old.get("startTime") or now,
        "hostIP": host_ips[0],
        "hostIPs": [{"ip": address} for address in host_ips],
        "conditions": _conditions(pod, _wanted_conditions(pod, seen, phase, apps, inits), now=now),
        "containerStatuses": apps,
    }
    if inits:
        status["initContainerStatuses"] = inits
    if ephemeral := spec.get("ephemeralContainers"):
        status["ephemeralContainerStatuses"] = [_ephemeral(pod, container, seen) for container in ephemeral]
    addresses = host_ips if spec.get("hostNetwork") else seen.addresses
    if addresses:
        status |= {"podIP": addresses[0], "podIPs": [{"ip": address} for address in addresses]}
    if seen.has_pod_resources and seen.allocation is not None and any(seen.allocation.allocated.values()):
        status |= _resources_of(pod, seen.allocation)
    return _with_generation(pod, status, seen.failure)


def _resources_of(pod: Pod, allocation: PodAllocation) -> PodStatus:
    """Return the resources of the pod as a whole: as the kernel has them, and as the node has allocated them."""
    actual = allocation.actual_of(pod)["spec"]
    resources: ResourceRequirements = {}
    if requests := total_of(actual, "requests"):
        resources["requests"] = _texts(requests)
    if limits := limits_of_pod(actual):
        resources["limits"] = _texts(limits)
    allocated = _texts(total_of(allocation.of_pod(pod)["spec"], "requests"))
    return {"resources": resources, "allocatedResources": allocated} if resources and allocated else {}


def _texts(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def _with_generation(pod: Pod, status: PodStatus, failure: PodFailure | None) -> PodStatus:
    if failure is not None:
        status |= {"reason": failure.reason, "message": failure.message}
    if generation := pod["metadata"].get("generation"):
        status["observedGeneration"] = generation
    return status


def _wanted_conditions(
    pod: Pod, seen: Observed, phase: str, apps: Sequence[ContainerStatusObject], inits: Sequence[ContainerStatusObject]
) -> list[_Wanted]:
    """Return type, whether it holds, and reason and message of each condition that the node writes."""
    spec = pod["spec"]
    are_ready = all(app["ready"] for app in apps) and phase not in ("Succeeded", "Failed") and bool(apps)
    further = [gate["conditionType"] for gate in spec.get("readinessGates") or ()]
    known = {condition["type"]: condition["status"] for condition in (pod.get("status") or {}).get("conditions") or ()}
    is_ready = are_ready and all(known.get(type_) == "True" for type_ in further)
    why = {"Succeeded": ("PodCompleted", ""), "Failed": ("PodFailed", "")}.get(
        phase, _unready([app["name"] for app in apps if not app["ready"]])
    )
    unready = why if not are_ready else ("ReadinessGatesNotReady", _missing_readiness(further, known))
    is_initialized = all(_is_initialized(container, seen) for container in spec.get("initContainers") or ())
    pending = [init["name"] for init in inits if not init["ready"]]
    missing = ("ContainersNotInitialized", f"containers with incomplete status: [{' '.join(pending)}]")
    wanted: list[_Wanted] = [
        ("PodReadyToStartContainers", seen.has_sandbox, ("", "")),
        ("Initialized", is_initialized, missing if phase != "Succeeded" else ("PodCompleted", "")),
        ("Ready", is_ready, unready),
        ("ContainersReady", are_ready, why),
        ("PodScheduled", True, ("", "")),
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
    absent = [type_ for type_ in types if type_ not in known]
    if absent:
        return ", ".join(f'corresponding condition of pod readiness gate "{type_}" does not exist.' for type_ in absent)
    false = [type_ for type_ in types if known[type_] != "True"]
    return ", ".join(f'the status of pod readiness gate "{type_}" is not "True", but {known[type_]}' for type_ in false)


def _phase(
    pod: Pod, seen: Observed, apps: Sequence[ContainerStatusObject], inits: Sequence[ContainerStatusObject]
) -> str:
    """The phase; a final one for a pod that was deleted, whatever its restart policy says."""
    if not seen.is_terminated:
        return phase_of(pod, apps, inits)
    known = (pod.get("status") or {}).get("phase", "")
    if known in FINAL:
        return known
    codes = [status["state"].get("terminated", _UNKNOWN)["exitCode"] for status in apps]
    return "Failed" if any(codes) else "Succeeded"


def phase_of(pod: Pod, apps: Sequence[ContainerStatusObject], inits: Sequence[ContainerStatusObject]) -> str:
    """The phase by kubelet's rules."""
    specs = {
        container["name"]: container
        for container in (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"])
    }
    is_initialized = any(app.get("containerID") for app in apps)
    for init in inits:
        if specs[init["name"]].get("restartPolicy") == "Always":
            if not init.get("started") and not is_initialized:
                return "Pending"
            continue
        ended = init["state"].get("terminated")
        if ended and ended["exitCode"] != 0 and not restarts_after(pod, specs[init["name"]], ended["exitCode"]):
            return "Failed"
        if not ended or ended["exitCode"] != 0:
            return "Pending"
    running = waiting = restarting = failed = 0
    for app in apps:
        ended = app["state"].get("terminated") or (
            app["lastState"].get("terminated") if "waiting" in app["state"] else None
        )
        if "running" in app["state"]:
            running += 1
        elif ended:
            restarting += restarts_after(pod, specs[app["name"]], ended["exitCode"])
            failed += ended["exitCode"] != 0
        else:
            waiting += 1
    if waiting:
        return "Pending"
    if running or restarting:
        return "Running"
    return "Failed" if failed else "Succeeded"


def _end_missing(pod: Pod, apps: list[ContainerStatusObject], inits: list[ContainerStatusObject]) -> None:
    """Give containers of a terminated pod that the runtime does not know their last known state, or an unknown end.

    As in kubelet, those that the pod never came to stay as they are.
    """
    last = pod.get("status") or {}
    known = [*(last.get("containerStatuses") or ()), *(last.get("initContainerStatuses") or ())]
    ended = {status["name"]: status for status in known if (status.get("state") or {}).get("terminated")}
    for statuses in (apps, inits):
        for number, status in enumerate(statuses):
            if "terminated" not in status["state"] and status["name"] in ended:
                statuses[number] = ended[status["name"]]
    began = [number for number, status in enumerate(inits) if _has_begun(status)]
    missing = inits[: max(began, default=0) + 1]
    is_initialized = not inits or any(map(_has_begun, apps))
    if is_initialized or inits[-1]["state"].get("terminated", _UNKNOWN)["exitCode"] == 0:
        missing += apps
    for status in missing:
        if "terminated" not in status["state"]:
            status["state"] = {"terminated": _UNKNOWN}


def _has_begun(status: ContainerStatusObject) -> bool:
    return "waiting" not in status["state"] or bool((status.get("lastState") or {}).get("terminated"))


def _is_initialized(container: Container, seen: Observed) -> bool:
    latest = seen.latest.get(container["name"])
    if container.get("restartPolicy") == "Always":
        return seen.started.get(container["name"], False)
    return latest is not None and latest.state is ContainerState.EXITED and latest.exit_code == 0


def _unready(names: Sequence[str]) -> tuple[str, str]:
    return "ContainersNotReady", f"containers with unready status: [{' '.join(names)}]"


def _container(container: Container, seen: Observed, *, is_init: bool) -> ContainerStatusObject:
    name = container["name"]
    latest, previous, waiting = seen.latest.get(name), seen.previous.get(name), seen.waiting.get(name)
    if latest is not None and waiting is not None and latest.state is ContainerState.EXITED:
        latest, previous = None, latest  # It waits for its restart.
    instance = latest or previous
    is_running = latest is not None and latest.state is ContainerState.RUNNING
    is_done = is_init and latest is not None and latest.state is ContainerState.EXITED and latest.exit_code == 0
    is_ready = is_done if is_init and container.get("restartPolicy") != "Always" else seen.ready.get(name, False)
    status: ContainerStatusObject = {
        "name": name,
        "image": container.get("image", ""),
        "imageID": seen.images.get(name, ""),
        "restartCount": instance.config.attempt if instance is not None else 0,
        "ready": bool(is_ready and (is_running or is_done)),
        "started": bool(is_running and seen.started.get(name, False)),
        "state": _state(latest, waiting),
        "lastState": {"terminated": terminated(previous)} if previous is not None else {},
    }
    if instance is not None:
        status["containerID"] = f"{SCHEME}{instance.id}"
    if seen.allocation is not None and is_running and name in seen.allocation.actual:
        requests = seen.allocation.allocated.get(name, {}).get("requests")
        if requests is not None:
            status["allocatedResources"] = requests
        status["resources"] = seen.allocation.actual[name]
    if name in seen.devices:
        status["allocatedResourcesStatus"] = list(seen.devices[name])
    return status


def last_of_ephemeral(pod: Pod, name: str) -> ContainerStatusObject | None:
    """Return the last status of an ephemeral container that has been started: it is never started again."""
    known = (pod.get("status") or {}).get("ephemeralContainerStatuses") or ()
    return next((status for status in known if status["name"] == name and status.get("containerID")), None)


def _ephemeral(pod: Pod, container: Container, seen: Observed) -> ContainerStatusObject:
    """One that is gone with its sandbox keeps its end, which the API server lets no agent change."""
    last = last_of_ephemeral(pod, container["name"])
    if last is None or container["name"] in seen.latest:
        return _container(container, seen, is_init=False)
    if "terminated" in last["state"]:
        return last
    return {**last, "ready": False, "started": False, "state": {"terminated": _UNKNOWN}}


def _state(latest: ContainerStatus | None, waiting: Waiting | None) -> ContainerStateObject:
    if latest is not None and latest.state is ContainerState.RUNNING:
        return {"running": {"startedAt": _time(latest.started_at)}}
    if latest is not None and latest.state is ContainerState.EXITED:
        return {"terminated": terminated(latest)}
    if waiting is None or not waiting.message:
        return {"waiting": {"reason": waiting.reason if waiting is not None else "ContainerCreating"}}
    return {"waiting": {"reason": waiting.reason, "message": waiting.message}}


def terminated(ended: ContainerStatus) -> ContainerStateTerminated:
    state: ContainerStateTerminated = {
        "exitCode": ended.exit_code,
        "reason": ended.reason,
        "startedAt": _time(ended.started_at),
        "finishedAt": _time(ended.finished_at),
        "containerID": f"{SCHEME}{ended.id}",
    }
    if ended.message:
        state["message"] = ended.message
    return state


def _conditions(pod: Pod, wanted: Sequence[_Wanted], *, now: str) -> list[PodCondition]:
    present = {condition["type"]: condition for condition in (pod.get("status") or {}).get("conditions") or ()}
    for type_ in ("PodResizePending", "PodResizeInProgress"):
        if type_ not in (row[0] for row in wanted):
            present.pop(type_, None)
    generation = pod["metadata"].get("generation")
    for type_, holds, (reason, message) in wanted:
        status = "True" if holds else "False"
        old = present.pop(type_, None)
        since = old["lastTransitionTime"] if old is not None and old["status"] == status else now
        made: PodCondition = {
            "type": type_,
            "status": status,
            "lastProbeTime": cast(str, None),  # As kubelet writes it.
            "lastTransitionTime": since,
        }
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
