"""What /metrics tells, under Kubernetes' names. Counting is a dict update; the text is made when someone asks."""

from __future__ import annotations

import resource as process
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Protocol

_BUCKETS = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60)

HANDED_OVER = 0
"""The code of a connection that speaks another protocol from then on: Kubernetes gives it away before anything is
answered, be it a 101 or that the handshake was no good, and so knows of none."""

Labels = tuple[tuple[str, str], ...]


class Place(Protocol):
    """Which resource a request was for."""

    @property
    def group(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def plural(self) -> str: ...


class Counted(Protocol):
    """A request for objects."""

    @property
    def verb(self) -> str: ...
    @property
    def resource(self) -> Place: ...
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def subresource(self) -> str: ...


class _Timing:
    __slots__ = ("count", "counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BUCKETS) + 1)
        self.count = 0
        self.total = 0.0


class Metrics:
    """Requests counted and timed by verb, resource and code; gauges are read from whoever knows them."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, str, str, str, str, str, int], int] = {}
        self._timings: dict[tuple[str, str, str, str, str, str], _Timing] = {}
        self._more: list[Callable[[], list[str]]] = []
        self._gauges: list[tuple[str, str, Callable[[], Iterable[tuple[Labels, float]]]]] = []
        self.started = time.time()
        self.in_flight = 0

    def drop(self, call: Counted) -> None:
        """Count a request that got no turn. How long it has waited says nothing of how long such requests take."""
        counted = (*_place(call), 429)
        self._requests[counted] = self._requests.get(counted, 0) + 1

    def observe(self, call: Counted, code: int, seconds: float) -> None:
        place = _place(call)
        counted = (*place, code)
        self._requests[counted] = self._requests.get(counted, 0) + 1
        timing = self._timings.get(place)
        if timing is None:
            timing = self._timings[place] = _Timing()
        timing.counts[bisect_left(_BUCKETS, seconds)] += 1
        timing.count += 1
        timing.total += seconds

    def gauge(self, name: str, help: str, read: Callable[[], Iterable[tuple[Labels, float]]]) -> None:
        self._gauges.append((name, help, read))

    def add_lines(self, read: Callable[[], list[str]]) -> None:
        """Show what somebody else has written, such as a histogram of his own."""
        self._more.append(read)

    def text(self) -> str:
        """The Prometheus exposition format."""
        lines = [
            "# HELP apiserver_request_total Requests by verb, group, version, resource, scope and HTTP code.",
            "# TYPE apiserver_request_total counter",
        ]
        for (verb, group, version, plural, sub, scope, code), count in sorted(self._requests.items()):
            labels = _labels(
                code=str(code),
                component="apiserver",
                dry_run="",
                group=group,
                resource=plural,
                scope=scope,
                subresource=sub,
                verb=verb,
                version=version,
            )
            lines.append(f"apiserver_request_total{labels} {count}")
        name = "apiserver_request_duration_seconds"
        lines += [f"# HELP {name} How long requests took.", f"# TYPE {name} histogram"]
        for (verb, group, version, plural, sub, scope), timing in sorted(self._timings.items()):
            common = {
                "component": "apiserver",
                "dry_run": "",
                "group": group,
                "resource": plural,
                "scope": scope,
                "subresource": sub,
                "verb": verb,
                "version": version,
            }
            below = 0
            for edge, count in zip([*_BUCKETS, float("inf")], timing.counts, strict=True):
                below += count
                shown = "+Inf" if edge == float("inf") else f"{edge:g}"
                lines.append(f"{name}_bucket{_labels(**common, le=shown)} {below}")
            lines.append(f"{name}_sum{_labels(**common)} {timing.total}")
            lines.append(f"{name}_count{_labels(**common)} {timing.count}")
        gauges = [*self._gauges, *self._process_gauges()]
        for gauge, help, read in gauges:
            kind = "counter" if gauge.endswith("_total") else "gauge"
            lines += [f"# HELP {gauge} {help}", f"# TYPE {gauge} {kind}"]
            lines += [f"{gauge}{_labels(**dict(labels))} {value:g}" for labels, value in read()]
        for written in self._more:
            lines += written()
        return "\n".join(lines) + "\n"

    def _process_gauges(self) -> list[tuple[str, str, Callable[[], Iterable[tuple[Labels, float]]]]]:
        usage = process.getrusage(process.RUSAGE_SELF)
        return [
            (
                "process_cpu_seconds_total",
                "User and system CPU time spent, in seconds.",
                lambda: [((), usage.ru_utime + usage.ru_stime)],
            ),
            ("process_resident_memory_bytes", "Memory in use.", lambda: [((), _resident_bytes())]),
            ("process_start_time_seconds", "When this process started.", lambda: [((), self.started)]),
            (
                "apiserver_current_inflight_requests",
                "Requests being served now.",
                lambda: [((("request_kind", "mutating"),), float(self.in_flight))],
            ),
        ]


_VERBS = {
    "get": "GET",
    "list": "LIST",
    "watch": "WATCH",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETECOLLECTION",
    "": "CONNECT",
    "connect": "CONNECT",
}


def _place(call: Counted) -> tuple[str, str, str, str, str, str]:
    resource = call.resource
    scope = "resource" if call.name else "namespace" if call.namespace else "cluster"
    return _VERBS[call.verb], resource.group, resource.version, resource.plural, call.subresource, scope


def _labels(**pairs: str) -> str:
    if not pairs:
        return ""
    return "{" + ",".join(f'{name}="{value}"' for name, value in pairs.items()) + "}"


def _resident_bytes() -> float:
    try:
        with open("/proc/self/statm") as statm:
            return float(statm.read().split()[1]) * process.getpagesize()
    except OSError:
        return float(process.getrusage(process.RUSAGE_SELF).ru_maxrss) * 1024
