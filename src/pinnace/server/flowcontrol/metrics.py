"""What /metrics tells of priority and fairness, under Kubernetes' names."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Protocol

from pinnace.server.flowcontrol.priority_levels import PriorityLevel

BUCKETS = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0)
"""Of seconds waited. Those who did not have to wait are in the first."""

Labels = tuple[tuple[str, str], ...]
Samples = list[tuple[Labels, float]]
Read = Callable[[], Samples]


class Waits:
    """How long those waited who had to, and got their turn."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds


class FlowCounts:
    """What is counted of the requests of one flow schema in one level."""

    __slots__ = ("dispatched", "labels", "rejected", "waiting", "waits")

    def __init__(self, schema: str, level: str) -> None:
        self.labels: Labels = (("flow_schema", schema), ("priority_level", level))
        self.dispatched = 0
        self.waiting = 0
        self.rejected: dict[str, int] = {}
        self.waits = Waits()

    def reject(self, reason: str) -> None:
        self.rejected[reason] = self.rejected.get(reason, 0) + 1


class Flows(Protocol):
    @property
    def levels(self) -> Iterable[PriorityLevel]: ...
    @property
    def counts(self) -> Iterable[FlowCounts]: ...


def gauges(flows: Flows) -> list[tuple[str, str, Read]]:
    """Every metric: its name, what it is, and what reads it. A name that ends in _total is a counter."""

    def each(value: Callable[[FlowCounts], float]) -> Read:
        return lambda: [(counts.labels, value(counts)) for counts in flows.counts]

    def each_level(value: Callable[[PriorityLevel], float]) -> Read:
        return lambda: [((("priority_level", level.name),), value(level)) for level in flows.levels]

    def rejected() -> Samples:
        return [
            ((*counts.labels, ("reason", reason)), float(number))
            for counts in flows.counts
            for reason, number in counts.rejected.items()
        ]

    named: list[tuple[str, str, Read]] = [
        ("dispatched_requests_total", "Requests that were let through.", each(lambda one: one.dispatched)),
        ("rejected_requests_total", "Requests that were refused, by reason.", rejected),
        ("current_inqueue_requests", "Requests that wait for a seat.", each(lambda one: one.waiting)),
        ("current_executing_requests", "Requests that have a seat.", each_level(lambda level: level.executing)),
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


def waits(flows: Flows) -> list[str]:
    """The histogram of how long requests waited, as lines."""
    name = "apiserver_flowcontrol_request_wait_duration_seconds"
    lines = [f"# HELP {name} How long requests waited for their turn.", f"# TYPE {name} histogram"]
    for counts in flows.counts:
        labels = ",".join(f'{key}="{value}"' for key, value in (("execute", "true"), *counts.labels))
        waited = sum(counts.waits.counts)
        below = at_once = counts.dispatched - waited
        for edge, count in zip((*BUCKETS, float("inf")), counts.waits.counts, strict=True):
            below += count
            shown = "+Inf" if edge == float("inf") else f"{edge:g}"
            lines.append(f'{name}_bucket{{{labels},le="{shown}"}} {below}')
        lines += [f"{name}_sum{{{labels}}} {counts.waits.total}", f"{name}_count{{{labels}}} {at_once + waited}"]
    return lines


def _limit_now(level: PriorityLevel) -> float:
    """What it has, and what it could yet take."""
    if level.is_exempt:
        return level.nominal
    free = max(0, level.pool.seats - level.pool.used) + max(0, level.guaranteed - level.executing)
    return min(level.most, level.executing + free)
