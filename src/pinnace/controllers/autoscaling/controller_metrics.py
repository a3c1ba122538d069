"""The metrics of the autoscaler's controller, under Kubernetes' names."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pinnace.model.exposition import Sample
from pinnace.reconcile.metrics import Metrics

_PREFIX = "horizontal_pod_autoscaler_controller"
RECONCILIATIONS = f"{_PREFIX}_reconciliations_total"
RECONCILIATION_SECONDS = f"{_PREFIX}_reconciliation_duration_seconds"
COMPUTATIONS = f"{_PREFIX}_metric_computation_total"
COMPUTATION_SECONDS = f"{_PREFIX}_metric_computation_duration_seconds"
AUTOSCALERS = f"{_PREFIX}_num_horizontal_pod_autoscalers"
DESIRED_REPLICAS = f"{_PREFIX}_desired_replicas"
_BOUNDS = tuple(0.001 * 2**exponent for exponent in range(15))


class AutoscalerMetrics:
    """Counts evaluations and computations of metrics by their action (scale_up, scale_down, none) and error."""

    def __init__(self, metrics: Metrics, count: Callable[[], int], desired: Callable[[], Iterable[Sample]]) -> None:
        self._metrics = metrics
        metrics.describe(RECONCILIATIONS, "Evaluations of autoscalers, by action and error.")
        metrics.describe(RECONCILIATION_SECONDS, "The time that an evaluation takes.", _BOUNDS)
        metrics.describe(COMPUTATIONS, "Computations of metrics, by action, error and the type of the metric.")
        metrics.describe(COMPUTATION_SECONDS, "The time that the computation of one metric takes.", _BOUNDS)
        metrics.gauge(AUTOSCALERS, "The number of autoscalers.", lambda: [((), float(count()))])
        metrics.gauge(DESIRED_REPLICAS, "The desired replicas of each autoscaler.", desired)

    def evaluated(self, before: int, after: int, *, failed: bool, seconds: float) -> None:
        """Count an evaluation that found `before` replicas and wants `after`."""
        labels = (("action", _action(before, after)), ("error", "internal" if failed else "none"))
        self._metrics.count(RECONCILIATIONS, labels)
        self._metrics.observe(RECONCILIATION_SECONDS, labels, seconds)

    def computed(self, type: str, before: int, after: int | None, seconds: float) -> None:
        """Count the computation of a metric; `after` is None if it failed."""
        action = "none" if after is None else _action(before, after)
        error = "internal" if after is None else "none"
        labels = (("action", action), ("error", error), ("metric_type", type))
        self._metrics.count(COMPUTATIONS, labels)
        self._metrics.observe(COMPUTATION_SECONDS, labels, seconds)


def _action(before: int, after: int) -> str:
    if after == before:
        return "none"
    return "scale_up" if after > before else "scale_down"
