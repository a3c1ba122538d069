"""The metrics of devices, under kube-scheduler's names: claims for extended resources, and waits for devices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pinnace.model.objects import Object
from pinnace.reconcile.metrics import Metrics
from pinnace.scheduler.devices.binding_conditions import drivers_of
from pinnace.scheduler.framework.plugin import DeviceObserver

CLAIMS = "scheduler_resourceclaim_creates_total"
ALLOCATIONS = "scheduler_dra_bindingconditions_allocations_total"
WAIT_SECONDS = "scheduler_dra_bindingconditions_wait_duration_seconds"


class DeviceMetrics:
    """Counts claims that the scheduler creates, and the waits for binding conditions by driver."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        metrics.describe(CLAIMS, "ResourceClaims that the scheduler has created, by status.")
        metrics.describe(ALLOCATIONS, "Allocations of devices with binding conditions, by driver and outcome.")
        bounds = tuple(0.1 * 2**power for power in range(14))
        metrics.describe(WAIT_SECONDS, "Seconds that a pod has waited for the binding conditions of devices.", bounds)

    def count_claim(self, status: str) -> None:
        self._metrics.count(CLAIMS, (("status", status),))

    def count_wait(self, profile: str, claims: Iterable[Object], status: str, seconds: float) -> None:
        """Count the end of a wait: success, failure, timeout or error."""
        for claim in claims:
            for driver, has_conditions in drivers_of(claim):
                labels = (("profile", profile), ("driver", driver), ("status", status))
                self._metrics.observe(WAIT_SECONDS, labels, seconds)
                if has_conditions:
                    self._metrics.count(ALLOCATIONS, labels)


@dataclass(frozen=True, slots=True)
class DeviceObservation:
    """An observer, if there is one, with the name of the profile that is observed."""

    observer: DeviceObserver | None = None
    profile: str = ""

    def count_claim(self, *, is_created: bool) -> None:
        if self.observer is not None:
            self.observer.count_claim("success" if is_created else "failure")

    def count_wait(self, claims: Iterable[Object], status: str, seconds: float) -> None:
        if self.observer is not None:
            self.observer.count_wait(self.profile, claims, status, seconds)


NO_OBSERVATION = DeviceObservation()
