"""The metrics of devices, under kube-scheduler's names: claims for extended resources, and waits for devices."""

from __future__ import annotations

from collections.abc import Iterable

from pinnace.model.typed_objects import ResourceClaim
from pinnace.reconcile.metrics import Metrics
from pinnace.scheduler.devices.binding_conditions import drivers_of

CLAIMS = "scheduler_resourceclaim_creates_total"
ALLOCATIONS = "scheduler_dra_bindingconditions_allocations_total"
WAIT_SECONDS = "scheduler_dra_bindingconditions_wait_duration_seconds"


class DeviceMetrics:
    """Counts the claims that one profile creates, and its waits for binding conditions by driver."""

    def __init__(self, metrics: Metrics | None, profile: str) -> None:
        """Without `metrics` nothing is counted."""
        self._metrics = metrics
        self._profile = profile
        if metrics is not None:
            metrics.describe(CLAIMS, "ResourceClaims that the scheduler has created, by status.")
            metrics.describe(ALLOCATIONS, "Allocations of devices with binding conditions, by driver and outcome.")
            bounds = tuple(0.1 * 2**power for power in range(14))
            metrics.describe(
                WAIT_SECONDS, "Seconds that a pod has waited for the binding conditions of devices.", bounds
            )

    def count_claim(self, *, is_created: bool) -> None:
        if self._metrics is not None:
            self._metrics.count(CLAIMS, (("status", "success" if is_created else "failure"),))

    def count_wait(self, claims: Iterable[ResourceClaim], status: str, seconds: float) -> None:
        """Count the end of a wait: success, failure, timeout or error."""
        if self._metrics is None:
            return
        for claim in claims:
            for driver, has_conditions in drivers_of(claim):
                labels = (("profile", self._profile), ("driver", driver), ("status", status))
                self._metrics.observe(WAIT_SECONDS, labels, seconds)
                if has_conditions:
                    self._metrics.count(ALLOCATIONS, labels)
