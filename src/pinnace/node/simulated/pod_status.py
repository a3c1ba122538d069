"""Builds the status of a simulated pod in each stage, as a kubelet would write it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pinnace.model.objects import Object


def running(pod: Object, *, now: str, host_ips: Iterable[str], pod_ips: Iterable[str]) -> Object:
    """Return the status of a pod whose containers run and are ready and whose init containers have completed."""
    spec = pod["spec"]
    readiness_gates = [(one["conditionType"], "True", "") for one in spec.get("readinessGates") or ()]
    wanted = [
        *readiness_gates,
        ("PodReadyToStartContainers", "True", ""),
        ("Initialized", "True", ""),
        ("Ready", "True", ""),
        ("ContainersReady", "True", ""),
    ]
    status: Object = {
        "phase": "Running",
        "startTime": (pod.get("status") or {}).get("startTime") or now,
        "conditions": _conditions(pod, wanted, now=now),
        "containerStatuses": [_running_container(pod, one, now=now) for one in spec["containers"]],
        **_generation(pod),
    }
    if spec.get("initContainers"):
        status["initContainerStatuses"] = [
            _running_container(pod, one, now=now)
            if one.get("restartPolicy") == "Always"
            else _end_container(pod, one, {"exitCode": 0, "reason": "Completed"}, now=now, ready=True)
            for one in spec["initContainers"]
        ]
    for name, addresses in (("host", list(host_ips)), ("pod", list(pod_ips))):
        if addresses:
            status |= {f"{name}IP": addresses[0], f"{name}IPs": [{"ip": address} for address in addresses]}
    return status


def succeeded(pod: Object, *, now: str) -> Object:
    ended = {"exitCode": 0, "reason": "Completed"}
    return _end(pod, "Succeeded", "PodCompleted", lambda _: ended, now=now)


def failed(pod: Object, ended: Mapping[str, Any], *, now: str, container: str = "") -> Object:
    """Return the status of a failed pod: `container`, or every container, ended with `ended`; others completed."""
    fine = {"exitCode": 0, "reason": "Completed"}
    return _end(pod, "Failed", "PodFailed", lambda name: ended if not container or name == container else fine, now=now)


def restarts_of(pod: Object) -> int:
    """Return the most restarts of a container."""
    known = (pod.get("status") or {}).get("containerStatuses") or ()
    return max((one.get("restartCount", 0) for one in known), default=0)


def restarted(pod: Object, ended: Mapping[str, Any], *, now: str) -> Object:
    """Return the status of a pod whose containers have all ended with `ended` and run again."""
    statuses = []
    for container in pod["spec"]["containers"]:
        last = _end_container(pod, container, ended, now=now)
        again = _running_container(pod, container, now=now)
        statuses.append({**again, "restartCount": last["restartCount"] + 1, "lastState": last["state"]})
    return {"containerStatuses": statuses}


def _end(pod: Object, phase: str, reason: str, how: Any, *, now: str) -> Object:
    wanted = [
        ("PodReadyToStartContainers", "False", ""),
        ("Initialized", "True", reason if phase == "Succeeded" else ""),
        ("Ready", "False", reason),
        ("ContainersReady", "False", reason),
    ]
    return {
        "phase": phase,
        "conditions": _conditions(pod, wanted, now=now),
        "containerStatuses": [_end_container(pod, one, how(one["name"]), now=now) for one in pod["spec"]["containers"]],
        **_generation(pod),
    }


def _generation(pod: Object) -> Object:
    generation = pod["metadata"].get("generation")
    return {"observedGeneration": generation} if generation else {}


def _conditions(pod: Object, wanted: Iterable[tuple[str, str, str]], *, now: str) -> list[Object]:
    """Return the conditions. Those of other components are kept; an unchanged condition keeps its time."""
    present = {one["type"]: one for one in (pod.get("status") or {}).get("conditions") or ()}
    generation = _generation(pod)
    for type_, status, reason in wanted:
        old = present.pop(type_, None)
        since = old["lastTransitionTime"] if old is not None and old["status"] == status else now
        made = {"type": type_, "status": status, "lastProbeTime": None, "lastTransitionTime": since, **generation}
        present[type_] = {**made, "reason": reason} if reason else made
    return list(present.values())


def _container(pod: Object, container: Object) -> Object:
    """Return the fields of a container status that do not depend on its state."""
    name = container["name"]
    return {
        "name": name,
        "image": container.get("image", ""),
        "imageID": f"simulated://{container.get('image', '')}",
        "containerID": f"simulated://{pod['metadata'].get('uid', '')}/{name}",
        "restartCount": 0,
        "lastState": {},
    }


def _running_container(pod: Object, container: Object, *, now: str) -> Object:
    state = {"running": {"startedAt": now}}
    return {**_container(pod, container), "ready": True, "started": True, "state": state}


def _end_container(
    pod: Object, container: Object, ended: Mapping[str, Any], *, now: str, ready: bool = False
) -> Object:
    made = _container(pod, container)
    known = (pod.get("status") or {}).get("containerStatuses") or ()
    before: Object = next((one for one in known if one.get("name") == container["name"]), {})
    started = ((before.get("state") or {}).get("running") or {}).get("startedAt") or now
    terminated = {**ended, "startedAt": started, "finishedAt": now, "containerID": made["containerID"]}
    made["restartCount"] = before.get("restartCount", 0)
    return {**made, "ready": ready, "started": False, "state": {"terminated": terminated}}
