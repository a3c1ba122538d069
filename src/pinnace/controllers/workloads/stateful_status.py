"""The status of a StatefulSet: how many pods there are of each revision, and when an update is complete."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from pinnace.controllers.workloads.pod_facts import PodFacts, is_available
from pinnace.controllers.workloads.revisions import POD_LABEL
from pinnace.model.objects import Object


def status_of(
    stateful_set: Object, pods: Collection[PodFacts], *, current: str, update: str, collisions: int, now: datetime
) -> Object:
    """Return the status. `current` and `update` name the revisions."""
    spec = stateful_set["spec"]
    ready = [pod for pod in pods if pod.phase == "Running" and pod.is_ready]
    staying = [pod for pod in pods if not pod.is_deleting]
    counts = {
        "readyReplicas": len(ready),
        "currentReplicas": sum(pod.labels.get(POD_LABEL) == current for pod in staying),
        "updatedReplicas": sum(pod.labels.get(POD_LABEL) == update for pod in staying),
    }
    if len(pods) == len(ready) == counts["updatedReplicas"] == spec["replicas"]:
        counts["currentReplicas"], current = counts["updatedReplicas"], update
    status: Object = {
        "observedGeneration": stateful_set["metadata"].get("generation", 0),
        "replicas": len(pods),
        "availableReplicas": sum(is_available(pod, spec.get("minReadySeconds", 0), now) for pod in ready),
        "currentRevision": current,
        "updateRevision": update,
        "collisionCount": collisions,
        **{name: count for name, count in counts.items() if count},
    }
    conditions = (stateful_set.get("status") or {}).get("conditions")
    return {**status, "conditions": conditions} if conditions else status
