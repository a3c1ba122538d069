"""The fields of a pod that its Job depends on, decoded once for each version of the pod."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from pinnace.client.snapshots import Snapshot
from pinnace.controllers.workloads.ownership import Owned, OwnedMetadata, owned_fields
from pinnace.model.typed_objects import Pod
from pinnace.process.clock import later, to_rfc3339

FINALIZER = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED_INDEX_FAILURES = "batch.kubernetes.io/job-index-ignored-failure-count"
NO_INDEX = -1
_TERMINAL = ("Succeeded", "Failed")
_LARGEST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class JobPod(Owned):
    """A pod as the Job controller counts it."""

    node: str
    phase: str
    is_ready: bool
    ready_since: str
    is_tracked: bool
    """Whether it has the finalizer: it is not counted for good yet."""
    index: int
    index_failures: int
    ignored_index_failures: int
    restarts: int
    finished: str
    """When it ended, as far as its status says."""
    exit_codes: tuple[tuple[str, int], ...]
    """Containers that failed."""
    conditions: tuple[tuple[str, str], ...]

    @property
    def is_active(self) -> bool:
        return not self.is_deleting and self.phase not in _TERMINAL

    @property
    def is_terminating(self) -> bool:
        return self.is_deleting and self.phase not in _TERMINAL

    def has_failed(self, *, only_when_ended: bool) -> bool:
        """Whether it counts as failed. A pod that is being deleted does, unless the Job waits until it has ended."""
        if self.phase == "Failed":
            return True
        return not only_when_ended and self.is_deleting and self.phase != "Succeeded"

    @property
    def all_index_failures(self) -> int:
        return self.index_failures + self.ignored_index_failures


class _Metadata(OwnedMetadata):
    finalizers: Sequence[str] | None = None
    deletionGracePeriodSeconds: int | None = None


class _Condition(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""
    lastTransitionTime: str | None = None


class _Terminated(msgspec.Struct, gc=False):
    exitCode: int = 0
    finishedAt: str | None = None


class _State(msgspec.Struct, gc=False):
    terminated: _Terminated | None = None


class _ContainerStatus(msgspec.Struct, gc=False):
    name: str = ""
    restartCount: int = 0
    state: _State | None = None


class _Status(msgspec.Struct, gc=False):
    phase: str = ""
    conditions: Sequence[_Condition] | None = None
    containerStatuses: Sequence[_ContainerStatus] | None = None
    initContainerStatuses: Sequence[_ContainerStatus] | None = None


class _Container(msgspec.Struct, gc=False):
    name: str = ""
    restartPolicy: str | None = None


class _Spec(msgspec.Struct, gc=False):
    nodeName: str = ""
    initContainers: Sequence[_Container] | None = None


class _Pod(msgspec.Struct, gc=False):
    metadata: _Metadata
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


_decoder = msgspec.json.Decoder(_Pod)


def job_pod(snapshot: Snapshot[Pod]) -> JobPod:
    """Read the facts of a pod. Use through `snapshot.derive(job_pod)`."""
    pod = _decoder.decode(snapshot.body)
    metadata, status = pod.metadata, pod.status
    annotations = metadata.annotations or {}
    containers = [*(status.containerStatuses or ()), *(status.initContainerStatuses or ())]
    ready = next((condition for condition in status.conditions or () if condition.type == "Ready"), None)
    is_ready = ready is not None and ready.status == "True"
    return JobPod(
        *owned_fields(snapshot, metadata),
        node=pod.spec.nodeName,
        phase=status.phase,
        is_ready=is_ready,
        ready_since=(ready.lastTransitionTime or "") if ready is not None and is_ready else "",
        is_tracked=FINALIZER in (metadata.finalizers or ()),
        index=_number(annotations.get(INDEX), NO_INDEX),
        index_failures=_number(annotations.get(INDEX_FAILURES), 0),
        ignored_index_failures=_number(annotations.get(IGNORED_INDEX_FAILURES), 0),
        restarts=sum(status.restartCount for status in containers),
        finished=_finish_time(pod, ready),
        exit_codes=tuple(
            (status.name, status.state.terminated.exitCode)
            for status in containers
            if status.state is not None and status.state.terminated is not None and status.state.terminated.exitCode
        ),
        conditions=tuple((condition.type, condition.status) for condition in status.conditions or ()),
    )


def _number(text: str | None, otherwise: int) -> int:
    """Parse the number in an annotation; return `otherwise` if it is none: users can write anything there."""
    if text is None or not (text.isascii() and text.isdigit() and len(text) <= 10):
        return otherwise
    number = int(text)
    return number if number <= _LARGEST else otherwise


def _finish_time(pod: _Pod, ready: _Condition | None) -> str:
    """Return the end of the last container; else when it was no longer ready; else when it was deleted or created."""
    ended = _end_time(pod)
    if ended:
        return ended
    if ready is not None and ready.status == "False" and ready.lastTransitionTime:
        return ready.lastTransitionTime
    if pod.metadata.deletionTimestamp is not None:
        grace = pod.metadata.deletionGracePeriodSeconds or 0
        return to_rfc3339(later(datetime.fromisoformat(pod.metadata.deletionTimestamp), -grace))
    return pod.metadata.creationTimestamp or ""


def _end_time(pod: _Pod) -> str:
    sidecars = {container.name for container in pod.spec.initContainers or () if container.restartPolicy == "Always"}
    running_to_end = [
        *(pod.status.containerStatuses or ()),
        *(status for status in pod.status.initContainerStatuses or () if status.name in sidecars),
    ]
    latest = ""
    for status in running_to_end:
        terminated = status.state.terminated if status.state is not None else None
        if terminated is None or not terminated.finishedAt:
            return ""
        latest = max(latest, terminated.finishedAt)
    return latest
