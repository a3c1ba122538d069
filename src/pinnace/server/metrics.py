"""What /metrics tells, under Kubernetes' names. Counting is a dict update; the text is made when someone asks."""

from __future__ import annotations

import resource as process
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Protocol

_BUCKETS = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60)

TAKEOVER_CODE = 0
"""The code of a connection that speaks another protocol from then on: Kubernetes gives it away before anything is
answered, be it a 101 or that the handshake was no good, and so knows of none."""

Labels = tuple[tuple[str, str], ...]


class CountedResource(Protocol):
    """Which resource a request was for."""

    @property
    def group(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def plural(self) -> str: ...


class CountedRequest(Protocol):
    """A request for objects."""

    @property
    def verb(self) -> str: ...
    @property
    def resource(self) -> CountedResource: ...
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def subresource(self) -> str: ...


class _Row:
    """What is counted of the requests of one sort."""

    __slots__ = ("codes", "count", "counts", "total")

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self.counts = [0] * (len(_BUCKETS) + 1)
        self.count = 0
        self.total = 0.0


class RequestMetrics:
    """Requests counted and timed by verb, resource and code; gauges are read from whoever knows them."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str, str, str, str], _Row] = {}
        self._more: list[Callable[[], list[str]]] = []
        self._gauges: list[tuple[str, str, Callable[[], Iterable[tuple[Labels, float]]]]] = []
        self.started = time.time()
        self.in_flight = 0

    def drop(self, call: CountedRequest) -> None:
        """Count a request that got no turn. How long it has waited says nothing of how long such requests take."""
        codes = self._rows.setdefault(_place(call), _Row()).codes
        codes[429] = codes.get(429, 0) + 1

    def observe(self, call: CountedRequest, code: int, seconds: float) -> None:
        place = _place(call)
        row = self._rows.get(place)
        if row is None:
            row = self._rows[place] = _Row()
        codes = row.codes
        codes[code] = codes.get(code, 0) + 1
        row.counts[bisect_left(_BUCKETS, seconds)] += 1
        row.count += 1
        row.total += seconds

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
        counted = [(*place, code, count) for place, row in self._rows.items() for code, count in row.codes.items()]
        for verb, group, version, plural, sub, scope, code, count in sorted(counted):
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
        for place, row in sorted(self._rows.items(), key=lambda one: one[0]):
            if not row.count:
                continue
            verb, group, version, plural, sub, scope = place
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
            for edge, count in zip([*_BUCKETS, float("inf")], row.counts, strict=True):
                below += count
                shown = "+Inf" if edge == float("inf") else f"{edge:g}"
                lines.append(f"{name}_bucket{_labels(**common, le=shown)} {below}")
            lines.append(f"{name}_sum{_labels(**common)} {row.total}")
            lines.append(f"{name}_count{_labels(**common)} {row.count}")
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


def _place(call: CountedRequest) -> tuple[str, str, str, str, str, str]:
    resource = call.resource
    scope = "resource" if call.name or call.verb == "create" else "namespace" if call.namespace else "cluster"
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
