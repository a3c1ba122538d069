"""The fields of pods that the replica arithmetic needs, decoded once per version of a pod."""

from __future__ import annotations

from datetime import datetime

import msgspec

from pinnace.client.snapshots import Snapshot
from pinnace.controllers.autoscaling.recommendation import PodState, Readiness
from pinnace.model import quantity
from pinnace.model.typed_objects import Pod


class _Resources(msgspec.Struct, gc=False, frozen=True):
    requests: dict[str, str | int | float] | None = None


class _Container(msgspec.Struct, frozen=True):
    name: str = ""
    restartPolicy: str | None = None
    resources: _Resources = _Resources()


class _Spec(msgspec.Struct, frozen=True):
    containers: list[_Container] | None = None
    initContainers: list[_Container] | None = None
    resources: _Resources | None = None


class _Condition(msgspec.Struct, gc=False, frozen=True):
    type: str = ""
    status: str = ""
    lastTransitionTime: str | None = None


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""
    startTime: str | None = None
    conditions: list[_Condition] | None = None


class _Metadata(msgspec.Struct, gc=False, frozen=True):
    name: str = ""
    deletionTimestamp: str | None = None
    labels: dict[str, str] | None = None


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


_decode = msgspec.json.Decoder(_Pod).decode


def state_of(snapshot: Snapshot[Pod]) -> tuple[PodState, dict[str, str]]:
    """Return the state of a pod, and its labels. A function for `Snapshot.derive`."""
    pod = _decode(snapshot.body)
    ready = next((condition for condition in pod.status.conditions or () if condition.type == "Ready"), None)
    # Init containers that are restarted always are sidecars: they run beside the others, and after them in the sum.
    sidecars = (container for container in pod.spec.initContainers or () if container.restartPolicy == "Always")
    of_pod = pod.spec.resources.requests if pod.spec.resources is not None else None
    state = PodState(
        name=pod.metadata.name,
        phase=pod.status.phase,
        is_terminating=pod.metadata.deletionTimestamp is not None,
        ready=Readiness(status=ready.status, since=_seconds(ready.lastTransitionTime) or 0.0) if ready else None,
        started=_seconds(pod.status.startTime),
        containers={
            container.name: _amounts(container.resources) for container in (*(pod.spec.containers or ()), *sidecars)
        },
        pod_requests=_amounts(pod.spec.resources) if of_pod and pod.spec.resources is not None else None,
    )
    return state, pod.metadata.labels or {}


def _amounts(resources: _Resources) -> dict[str, int]:
    return {name: quantity.parse(amount).milli_value for name, amount in (resources.requests or {}).items()}


def _seconds(moment: str | None) -> float | None:
    return datetime.fromisoformat(moment).timestamp() if moment else None
