"""Caches the decoded part of each pod per Service, so that one changed pod among hundreds costs one decoding."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from pinnace.client.snapshots import Snapshot
from pinnace.controllers.pods import PodView, pod_of
from pinnace.model.objects import Key
from pinnace.model.typed_objects import Endpoints, EndpointSlice, Pod, Service
from pinnace.process.work_slices import DECODING, in_turns

Entry = TypeVar("Entry")

_FEW = 16
_PER_MEMBER = 0.001
_LONGEST = 1.0


class Member(NamedTuple, Generic[Entry]):
    entry: Entry
    ready_since: str
    """When the Ready condition of the pod changed last; empty if it has none."""


class Members(Generic[Entry]):
    """Entries that are computed from a service and one of its pods, kept until either changes."""

    def __init__(self, compute: Callable[[Service, PodView], Entry]) -> None:
        self._compute = compute
        self._known: dict[Key, tuple[str, dict[Key, tuple[str, Member[Entry]]]]] = {}

    async def of(self, key: Key, service: Service, pods: Iterable[Snapshot[Pod]]) -> dict[Key, Member[Entry]]:
        """Return the entry of each pod, by the pod's key. Other work has its turn in between."""
        version = service["metadata"]["resourceVersion"]
        known = self._known.get(key)
        before = known[1] if known is not None and known[0] == version else {}
        after = {}
        async for some in in_turns(pods, cost=DECODING):
            for snapshot in some:
                member = before.get(snapshot.key)
                if member is None or member[0] != snapshot.version:
                    pod = pod_of(snapshot)
                    ready = pod.condition("Ready")
                    since = (ready.lastTransitionTime or "") if ready is not None else ""
                    member = (snapshot.version, Member(self._compute(service, pod), since))
                after[snapshot.key] = member
        self._known[key] = (version, after)
        return {pod: member for pod, (_, member) in after.items()}

    def forget(self, key: Key) -> None:
        self._known.pop(key, None)

    def batch_seconds(self, key: Key) -> float:
        """Return how long to collect pod changes before the endpoints are written again: the larger, the longer."""
        known = self._known.get(key)
        count = len(known[1]) if known is not None else 0
        return min(_LONGEST, count * _PER_MEMBER) if count > _FEW else 0.0


class TriggerTimes:
    """The earliest of the changes in one reconcile, for the annotation that clients measure latency by."""

    ANNOTATION = "endpoints.kubernetes.io/last-change-trigger-time"

    def __init__(self) -> None:
        self._known: dict[Key, dict[str, str]] = {}

    def next(self, key: Key, service: Service, times: dict[str, str]) -> str:
        """Return the trigger time from the `times` of pods by name; empty if none is later than at the last call."""
        known = self._known.get(key)
        self._known[key] = times
        created: str = service["metadata"]["creationTimestamp"]
        if known is None:
            return created
        return min((time for name, time in times.items() if time > known.get(name, "")), default="")

    def forget(self, key: Key) -> None:
        self._known.pop(key, None)

    @classmethod
    def annotate(cls, obj: Endpoints | EndpointSlice, time: str) -> None:
        annotations = dict(obj["metadata"].get("annotations") or {})
        annotations.pop(cls.ANNOTATION, None)
        if time:
            annotations[cls.ANNOTATION] = time
        obj["metadata"]["annotations"] = annotations
