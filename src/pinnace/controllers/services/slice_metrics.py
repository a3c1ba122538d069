"""The metrics of EndpointSlices under Kubernetes' names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from pinnace.controllers.metric_names import (
    ENDPOINT_SLICE_CHANGES,
    ENDPOINT_SLICE_SYNCS,
    ENDPOINT_SLICES,
    ENDPOINT_SLICES_DESIRED,
    ENDPOINTS_ADDED,
    ENDPOINTS_DESIRED,
    ENDPOINTS_REMOVED,
    TRAFFIC_DISTRIBUTIONS,
    ControllerMetrics,
)
from pinnace.controllers.services.packing import MOST, Plan
from pinnace.model.clock import AlarmClock
from pinnace.model.exposition import Sample
from pinnace.model.objects import Key, Object
from pinnace.reconcile.metrics import Metrics


class _ServiceSlices(NamedTuple):
    slices: int
    desired: int
    endpoints: int
    distribution: str


class SliceMetrics:
    """Counts changes of slices, and the slices and endpoints of each Service."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = ControllerMetrics(
            metrics, ENDPOINT_SLICE_SYNCS, ENDPOINT_SLICE_CHANGES, ENDPOINTS_ADDED, ENDPOINTS_REMOVED
        )
        self._services: dict[Key, _ServiceSlices] = {}
        gauge = self._metrics.gauge
        gauge(ENDPOINT_SLICES, "The EndpointSlices of all Services.", lambda: self._total(0))
        gauge(ENDPOINT_SLICES_DESIRED, "The EndpointSlices that full slices would need.", lambda: self._total(1))
        gauge(ENDPOINTS_DESIRED, "The endpoints of all Services.", lambda: self._total(2))
        gauge(TRAFFIC_DISTRIBUTIONS, "Services by trafficDistribution.", self._read_distributions)

    @contextmanager
    def syncing(self, clock: AlarmClock) -> Iterator[None]:
        with self._metrics.syncing(ENDPOINT_SLICE_SYNCS, "", clock, {}):
            yield

    def count_change(self, operation: str) -> None:
        self._metrics.count(ENDPOINT_SLICE_CHANGES, operation=operation)

    def observe_plan(self, plan: Plan) -> None:
        self._metrics.observe(ENDPOINTS_ADDED, plan.added)
        self._metrics.observe(ENDPOINTS_REMOVED, plan.removed)

    def set_service(self, key: Key, service: Object, plans: Sequence[Plan], endpoints: Sequence[int]) -> None:
        """Record the slices of a Service; `endpoints` has the number of each set of ports."""
        slices = sum(len(plan.create) + len(plan.update) + len(plan.unchanged) for plan in plans)
        desired = sum(max(1, -(-count // MOST)) for count in endpoints) or len(plans)
        distribution = service["spec"].get("trafficDistribution") or ""
        self._services[key] = _ServiceSlices(slices, desired, sum(endpoints), distribution)

    def forget(self, key: Key) -> None:
        self._services.pop(key, None)

    def _total(self, column: int) -> list[Sample]:
        return [((), float(sum(int(one[column]) for one in self._services.values())))]

    def _read_distributions(self) -> list[Sample]:
        counts = Counter(one.distribution for one in self._services.values() if one.distribution)
        return [((("traffic_distribution", name),), float(count)) for name, count in sorted(counts.items())]
