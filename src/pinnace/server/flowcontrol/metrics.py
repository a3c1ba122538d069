"""The metrics of API priority and fairness, under Kubernetes' names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from pinnace.model.exposition import Histogram, Labels, Sample
from pinnace.server.flowcontrol.priority_levels import PriorityLevel

BUCKETS = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0)
"""Seconds of waiting. Requests that did not wait are in the first bucket."""
WAIT_SECONDS = "apiserver_flowcontrol_request_wait_duration_seconds"

Read = Callable[[], list[Sample]]


class FlowCounts:
    """The requests of one flow schema in one priority level, counted."""

    __slots__ = ("dispatched", "labels", "rejected", "waiting", "waits")

    def __init__(self, schema: str, level: str) -> None:
        self.labels: Labels = (("flow_schema", schema), ("priority_level", level))
        self.dispatched = 0
        self.waiting = 0
        self.rejected: dict[str, int] = {}
        self.waits = Histogram(BUCKETS)
        """The waiting times of the requests that waited and were then dispatched."""

    def reject(self, reason: str) -> None:
        self.rejected[reason] = self.rejected.get(reason, 0) + 1


class Flows(Protocol):
    @property
    def levels(self) -> Iterable[PriorityLevel]: ...
    @property
    def counts(self) -> Iterable[FlowCounts]: ...


def gauges(flows: Flows) -> list[tuple[str, str, Read]]:
    """Return the name, help and reader of every counter and gauge. A name that ends in _total is a counter."""

    def each(value: Callable[[FlowCounts], float]) -> Read:
        return lambda: [(counts.labels, value(counts)) for counts in flows.counts]

    def each_level(value: Callable[[PriorityLevel], float]) -> Read:
        return lambda: [((("priority_level", level.name),), value(level)) for level in flows.levels]

    def read_rejected() -> list[Sample]:
        return [
            ((*counts.labels, ("reason", reason)), float(number))
            for counts in flows.counts
            for reason, number in counts.rejected.items()
        ]

    named: list[tuple[str, str, Read]] = [
        ("dispatched_requests_total", "Requests that were let through.", each(lambda one: one.dispatched)),
        ("rejected_requests_total", "Requests that were refused, by reason.", read_rejected),
        ("current_inqueue_requests", "Requests that wait for a seat.", each(lambda one: one.waiting)),
        ("current_executing_requests", "Requests that have a seat.", each_level(lambda level: level.requests)),
        ("current_executing_seats", "Seats that are taken.", each_level(lambda level: level.executing)),
        ("nominal_limit_seats", "Seats of the level's own.", each_level(lambda level: level.nominal)),
        (
            "lower_limit_seats",
            "Seats that the level never lends.",
            each_level(lambda level: min(level.guaranteed, level.nominal)),
        ),
        ("upper_limit_seats", "Seats with all that the level may borrow.", each_level(lambda level: level.most)),
        ("current_limit_seats", "Seats that the level could have now.", each_level(_limit_now)),
    ]
    return [(f"apiserver_flowcontrol_{name}", about, read) for name, about, read in named]


def wait_durations(flows: Flows) -> Iterable[tuple[Labels, Histogram]]:
    """Yield how long the dispatched requests of each flow schema waited, those that did not wait included."""
    for counts in flows.counts:
        durations = Histogram(BUCKETS)
        durations.counts = list(counts.waits.counts)
        durations.counts[0] += counts.dispatched - sum(counts.waits.counts)
        durations.sum = counts.waits.sum
        yield (("execute", "true"), *counts.labels), durations


def _limit_now(level: PriorityLevel) -> float:
    """Return the seats that the level has and could take now."""
    if level.is_exempt:
        return level.nominal
    free = max(0, level.pool.seats - level.pool.used) + max(0, level.guaranteed - level.executing)
    return min(level.most, level.executing + free)
