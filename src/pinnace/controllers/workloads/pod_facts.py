"""The fields of a pod that workload controllers count, decoded once for each version of the pod."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from pinnace.client.snapshots import Snapshot
from pinnace.controllers.workloads.ownership import Owned, OwnedMetadata, controller_values, owned_fields
from pinnace.model.typed_objects import Pod
from pinnace.process.clock import later
from pinnace.schema.golang.numbers import parse_int

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {phase: phase for phase in ("Pending", "Running", "Succeeded", "Failed", "Unknown")}
_TERMINAL = ("Succeeded", "Failed")
_INT32 = 2**31


@dataclass(frozen=True, slots=True)
class PodFacts(Owned):
    """A pod as controllers count it."""

    node: str
    phase: str
    is_ready: bool
    ready_since: str
    """When the Ready condition last changed; empty if that is not known or the pod is not ready."""
    deletion_cost: int

    @property
    def is_active(self) -> bool:
        """Whether it is neither finished nor being deleted."""
        return not self.is_deleting and self.phase not in _TERMINAL

    @property
    def is_terminal(self) -> bool:
        return self.phase in _TERMINAL

    @property
    def is_terminating(self) -> bool:
        """Whether it is being deleted and not finished."""
        return self.is_deleting and self.phase not in _TERMINAL


class _Condition(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""
    lastTransitionTime: str | None = None


class _Status(msgspec.Struct, gc=False):
    phase: str = ""
    conditions: Sequence[_Condition] | None = None


class _Spec(msgspec.Struct, gc=False):
    nodeName: str = ""


class _Pod(msgspec.Struct, gc=False):
    metadata: OwnedMetadata
    spec: _Spec | None = None
    status: _Status | None = None


_decoder = msgspec.json.Decoder(_Pod)


def pod_facts(snapshot: Snapshot[Pod]) -> PodFacts:
    """Read the facts of a pod. Use through `snapshot.derive(pod_facts)`."""
    pod = _decoder.decode(snapshot.body)
    status = pod.status or _Status()
    ready = next(
        (
            condition
            for condition in status.conditions or ()
            if condition.type == "Ready" and condition.status == "True"
        ),
        None,
    )
    return PodFacts(
        *owned_fields(snapshot, pod.metadata),
        node=pod.spec.nodeName if pod.spec is not None else "",
        phase=_PHASES.get(status.phase, status.phase),
        is_ready=ready is not None,
        ready_since=(ready.lastTransitionTime or "") if ready is not None else "",
        deletion_cost=_deletion_cost(pod.metadata.annotations),
    )


def index_pods(snapshot: Snapshot[Pod]) -> Iterable[str]:
    """Index pods by controller."""
    return controller_values(snapshot.derive(pod_facts))


def is_available(pod: PodFacts, min_ready_seconds: int, now: datetime) -> bool:
    """Whether a pod has been ready for long enough."""
    if not pod.is_ready:
        return False
    if not min_ready_seconds:
        return True
    return bool(pod.ready_since) and later(parse_time(pod.ready_since), min_ready_seconds) <= now


def seconds_to_available(pods: Iterable[PodFacts], min_ready_seconds: int, now: datetime) -> float:
    """Return the seconds until the next ready pod becomes available; 0 if none will by time alone."""
    if not min_ready_seconds:
        return 0.0
    left = (
        (later(parse_time(pod.ready_since), min_ready_seconds) - now).total_seconds()
        for pod in pods
        if pod.is_ready and pod.ready_since
    )
    return min((seconds for seconds in left if seconds > 0), default=0.0)


def parse_time(text: str) -> datetime:
    """Read a timestamp of the API."""
    return datetime.fromisoformat(text)


def _deletion_cost(annotations: dict[str, str] | None) -> int:
    """Return the annotated cost; 0 where it is absent or no int32 as Go writes it."""
    text = (annotations or {}).get(DELETION_COST, "")
    digits = text.removeprefix("-")
    if text[:1] == "+" or (len(digits) > 1 and digits[0] == "0"):
        return 0
    return parse_int(text, least=-_INT32, greatest=_INT32 - 1) or 0
