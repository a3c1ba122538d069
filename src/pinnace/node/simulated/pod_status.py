"""Builds the status of a simulated pod in each stage, as a kubelet would write it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

from pinnace.model.typed_objects import (
    Container,
    ContainerStateTerminated,
    ContainerStatus,
    Pod,
    PodCondition,
    PodStatus,
)

_COMPLETED: ContainerStateTerminated = {"exitCode": 0, "reason": "Completed"}


def running(pod: Pod, *, now: str, host_ips: Iterable[str], pod_ips: Iterable[str]) -> PodStatus:
    """Return the status of a pod whose containers run and are ready and whose init containers have completed."""
    spec = pod["spec"]
    readiness_gates = [(gate["conditionType"], "True", "") for gate in spec.get("readinessGates") or ()]
    wanted = [
        *readiness_gates,
        ("PodReadyToStartContainers", "True", ""),
        ("Initialized", "True", ""),
        ("Ready", "True", ""),
        ("ContainersReady", "True", ""),
    ]
    status: PodStatus = {
        "phase": "Running",
        "startTime": (pod.get("status") or {}).get("startTime") or now,
        "conditions": _conditions(pod, wanted, now=now),
        "containerStatuses": [_running_container(pod, container, now=now) for container in spec["containers"]],
        **_generation(pod),
    }
    if spec.get("initContainers"):
        status["initContainerStatuses"] = [
            _running_container(pod, container, now=now)
            if container.get("restartPolicy") == "Always"
            else _end_container(pod, container, _COMPLETED, now=now, ready=True)
            for container in spec["initContainers"]
        ]
    if hosts := list(host_ips):
        status |= {"hostIP": hosts[0], "hostIPs": [{"ip": address} for address in hosts]}
    if addresses := list(pod_ips):
        status |= {"podIP": addresses[0], "podIPs": [{"ip": address} for address in addresses]}
    return status


def succeeded(pod: Pod, *, now: str) -> PodStatus:
    return _end(pod, "Succeeded", "PodCompleted", lambda _: _COMPLETED, now=now)


def failed(pod: Pod, ended: ContainerStateTerminated, *, now: str, container: str = "") -> PodStatus:
    """Return the status of a failed pod: `container`, or every container, ended with `ended`; others completed."""

    def end_of(name: str) -> ContainerStateTerminated:
        return ended if container in ("", name) else _COMPLETED

    return _end(pod, "Failed", "PodFailed", end_of, now=now)


def restarts_of(pod: Pod) -> int:
    """Return the most restarts of a container."""
    known = (pod.get("status") or {}).get("containerStatuses") or ()
    return max((status.get("restartCount", 0) for status in known), default=0)


def restarted(pod: Pod, ended: ContainerStateTerminated, *, now: str) -> PodStatus:
    """Return the status of a pod whose containers have all ended with `ended` and run again."""
    statuses: list[ContainerStatus] = []
    for container in pod["spec"]["containers"]:
        last = _end_container(pod, container, ended, now=now)
        again = _running_container(pod, container, now=now)
        statuses.append({**again, "restartCount": last["restartCount"] + 1, "lastState": last["state"]})
    return {"containerStatuses": statuses}


def _end(
    pod: Pod, phase: str, reason: str, end_of: Callable[[str], ContainerStateTerminated], *, now: str
) -> PodStatus:
    wanted = [
        ("PodReadyToStartContainers", "False", ""),
        ("Initialized", "True", reason if phase == "Succeeded" else ""),
        ("Ready", "False", reason),
        ("ContainersReady", "False", reason),
    ]
    return {
        "phase": phase,
        "conditions": _conditions(pod, wanted, now=now),
        "containerStatuses": [
            _end_container(pod, container, end_of(container["name"]), now=now)
            for container in pod["spec"]["containers"]
        ],
        **_generation(pod),
    }


def _generation(pod: Pod) -> PodStatus:
    generation = pod["metadata"].get("generation")
    return {"observedGeneration": generation} if generation else {}


def _conditions(pod: Pod, wanted: Iterable[tuple[str, str, str]], *, now: str) -> list[PodCondition]:
    """Return the conditions. Those of other components are kept; an unchanged condition keeps its time."""
    present = {condition["type"]: condition for condition in (pod.get("status") or {}).get("conditions") or ()}
    generation = pod["metadata"].get("generation")
    for type_, status, reason in wanted:
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
        if reason:
            made["reason"] = reason
        present[type_] = made
    return list(present.values())


def _container(pod: Pod, container: Container) -> ContainerStatus:
    """Return the fields of a container status that do not depend on its state."""
    name = container["name"]
    return {
        "name": name,
        "image": container.get("image", ""),
        "imageID": f"simulated://{container.get('image', '')}",
        "containerID": f"simulated://{pod['metadata'].get('uid', '')}/{name}",
        "restartCount": 0,
        "ready": False,
        "lastState": {},
    }


def _running_container(pod: Pod, container: Container, *, now: str) -> ContainerStatus:
    return {**_container(pod, container), "ready": True, "started": True, "state": {"running": {"startedAt": now}}}


def _end_container(
    pod: Pod, container: Container, ended: ContainerStateTerminated, *, now: str, ready: bool = False
) -> ContainerStatus:
    made = _container(pod, container)
    known = (pod.get("status") or {}).get("containerStatuses") or ()
    before = next((status for status in known if status.get("name") == container["name"]), None)
    running = ((before.get("state") or {}).get("running") if before is not None else None) or {}
    terminated: ContainerStateTerminated = {
        **ended,
        "startedAt": running.get("startedAt") or now,
        "finishedAt": now,
        "containerID": made["containerID"],
    }
    made["restartCount"] = before.get("restartCount", 0) if before is not None else 0
    return {**made, "ready": ready, "started": False, "state": {"terminated": terminated}}
