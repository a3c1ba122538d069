"""The metrics of the scheduler, under the names that dashboards for kube-scheduler use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pinnace.process.exposition import Labels, Sample
from pinnace.reconcile.metrics import Metrics
from pinnace.scheduler.framework.observer import MOMENT_SECONDS, PLUGIN_SECONDS
from pinnace.scheduler.framework.queued import QueuedPod
from pinnace.scheduler.queue import SchedulingQueue
from pinnace.scheduler.state.cluster import ClusterState

ATTEMPTS = "scheduler_schedule_attempts_total"
ATTEMPT_SECONDS = "scheduler_scheduling_attempt_duration_seconds"
ALGORITHM_SECONDS = "scheduler_scheduling_algorithm_duration_seconds"
PENDING = "scheduler_pending_pods"
CACHE_SIZE = "scheduler_cache_size"
UNSCHEDULABLE = "scheduler_unschedulable_pods"
PREEMPTIONS = "scheduler_preemption_attempts_total"
VICTIMS = "scheduler_preemption_victims"
POD_ATTEMPTS = "scheduler_pod_scheduling_attempts"
INCOMING = "scheduler_queue_incoming_pods_total"
PERMIT_SECONDS = "scheduler_permit_wait_duration_seconds"
POD_SECONDS = "scheduler_pod_scheduling_sli_duration_seconds"


SCHEDULED, REFUSED, FAILED = "scheduled", "unschedulable", "error"


def _doubling(first: float, count: int) -> tuple[float, ...]:
    return tuple(first * 2**power for power in range(count))


class SchedulerMetrics:
    """Counts attempts by result and profile, and reads the sizes of queue and state when they are asked for."""

    def __init__(self, metrics: Metrics, queue: SchedulingQueue, state: ClusterState) -> None:
        self._metrics = metrics
        self._queue = queue
        self._state = state
        metrics.describe(ATTEMPTS, "Attempts to schedule pods, by result.")
        metrics.describe(ATTEMPT_SECONDS, "Seconds from an attempt's begin to its end.", _doubling(0.001, 15))
        metrics.describe(ALGORITHM_SECONDS, "Seconds that a decision takes.", _doubling(0.001, 15))
        metrics.describe(PREEMPTIONS, "Attempts to make room by preemption.")
        metrics.describe(VICTIMS, "Pods that one preemption evicts.", _doubling(1, 7))
        metrics.describe(POD_ATTEMPTS, "Attempts that a pod needs until it is scheduled.", _doubling(1, 5))
        metrics.describe(POD_SECONDS, "Seconds from a pod's first attempt until it is scheduled.", _doubling(0.01, 20))
        metrics.describe(MOMENT_SECONDS, "Seconds that all plug-ins of one moment take.", _doubling(0.0001, 12))
        bounds = tuple(0.00001 * 1.5**power for power in range(20))
        metrics.describe(
            PLUGIN_SECONDS, "Seconds that one plug-in takes at one moment, in a sample of attempts.", bounds
        )
        metrics.describe(INCOMING, "Pods that came to a queue, by queue and event.")
        metrics.counted(INCOMING, self._incoming)
        metrics.describe(PERMIT_SECONDS, "Seconds that a pod waits for its permit.", _doubling(0.001, 15))
        metrics.count(PREEMPTIONS, (), by=0)
        metrics.histogram(VICTIMS, ())
        metrics.histogram(POD_ATTEMPTS, ())
        metrics.gauge(PENDING, "Pods that wait, by queue.", self._pending)
        metrics.gauge(CACHE_SIZE, "Nodes and pods that the scheduler knows.", self._sizes)
        metrics.gauge(UNSCHEDULABLE, "Pods that wait because a plug-in refused nodes.", self._unschedulable)

    def count_decision(self, seconds: float) -> None:
        self._metrics.observe(ALGORITHM_SECONDS, (), seconds)

    def count_attempt(self, profile: str, result: str, seconds: float) -> None:
        labels: Labels = (("profile", profile), ("result", result))
        self._metrics.count(ATTEMPTS, labels)
        self._metrics.observe(ATTEMPT_SECONDS, labels, seconds)

    def count_scheduled(self, queued: QueuedPod, now: float) -> None:
        self._metrics.observe(POD_ATTEMPTS, (), queued.attempts)
        if queued.first_attempt is not None:
            attempts = str(queued.attempts) if queued.attempts < 16 else "16+"
            self._metrics.observe(POD_SECONDS, (("attempts", attempts),), now - queued.first_attempt)

    def count_preemption(self, victims: int) -> None:
        self._metrics.count(PREEMPTIONS, ())
        if victims:
            self._metrics.observe(VICTIMS, (), victims)

    def count_permit(self, result: str, seconds: float) -> None:
        """Count the end of a wait for a permit: Success, Unschedulable or another code."""
        self._metrics.observe(PERMIT_SECONDS, (("result", result),), seconds)

    def _incoming(self) -> Iterator[Sample]:
        for (queue, event), count in sorted(self._queue.incoming.items()):
            yield (("event", event), ("queue", queue)), float(count)

    def _pending(self) -> Iterator[Sample]:
        for queue, count in self._queue.counts().items():
            yield (("queue", queue),), count

    def _sizes(self) -> Iterator[Sample]:
        yield (("type", "nodes"),), self._state.nodes.count
        yield (("type", "pods"),), len(self._state.pods)

    def _unschedulable(self) -> Iterator[Sample]:
        counted = Counter(
            (plugin, queued.pod.template.spec.get("schedulerName") or "")
            for queued in self._queue.unschedulable()
            for plugin in queued.refused_by
            if plugin
        )
        for (plugin, profile), count in sorted(counted.items()):
            yield (("plugin", plugin), ("profile", profile)), count
