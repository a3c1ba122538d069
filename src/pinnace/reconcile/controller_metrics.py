"""The metrics of one controller and its queue, from the moment at which it is added to a manager."""

from __future__ import annotations

from pinnace.model.objects import Key
from pinnace.reconcile import metrics as names
from pinnace.reconcile.metrics import Metrics
from pinnace.reconcile.queue import Queue

_OUTCOMES = ("success", "requeue_after", "error")


def register_controller(metrics: Metrics, name: str, queue: Queue[Key], *, workers: int) -> None:
    """Create the counters of a controller at zero, and the gauges of its queue and workers."""
    labels = (("controller", name),)
    both = (("name", name), *labels)
    for outcome in _OUTCOMES:
        metrics.count(names.RECONCILES, (*labels, ("result", outcome)), by=0)
    for counter in (names.ERRORS, names.TERMINAL_ERRORS):
        metrics.count(counter, labels, by=0)
    metrics.gauge("workqueue_depth", "Current depth of workqueue", lambda: [(both, queue.depth)])
    metrics.gauge(
        "workqueue_unfinished_work_seconds",
        "How long in seconds the items that are being worked on have been so, together",
        lambda: [(both, sum(queue.unfinished_seconds()))],
    )
    metrics.gauge(
        "workqueue_longest_running_processor_seconds",
        "How long in seconds the longest running worker has been working",
        lambda: [(both, max(queue.unfinished_seconds(), default=0.0))],
    )
    metrics.gauge(
        "controller_runtime_active_workers",
        "Number of currently used workers per controller",
        lambda: [(labels, queue.working)],
    )
    metrics.gauge(
        "controller_runtime_max_concurrent_reconciles",
        "Maximum number of concurrent reconciles per controller",
        lambda: [(labels, workers)],
    )
