"""The metrics of the API server, under Kubernetes' names. Counting is a dict update; /metrics renders the text."""

from __future__ import annotations

import os
import resource as process
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from pinnace.process.exposition import Histogram, Labels, Sample, render_histograms, render_samples
from pinnace.serving.deadlines import LONG_RUNNING
from pinnace.serving.request.call import Call

_BUCKETS = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60)

_SIZES = (1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)

TAKEOVER_CODE = 0
"""The code of a request whose connection changes to another protocol.

Kubernetes hijacks such a connection before it answers, whether with 101 or with a failed handshake, and counts no code.
"""

Read = Callable[[], Iterable[Sample]]
ReadHistograms = Callable[[], Iterable[tuple[Labels, Histogram]]]


@dataclass(frozen=True, slots=True)
class ForwardedRequest:
    """A request that another API server answered, as it is counted."""

    verb: str
    group: str
    version: str
    plural: str
    namespace: str
    name: str
    subresource: str

    @property
    def resource(self) -> ForwardedRequest:
        return self


CountedRequest = Call | ForwardedRequest
"""A request for objects."""
CountedPlace: TypeAlias = tuple[str, str, str, str, str, str]
"""Requests with the same verb, group, version, resource, subresource and scope are counted together."""


class _Row(Histogram):
    """The requests of one verb, resource and scope: their durations, how many had each code, and their sizes."""

    __slots__ = ("codes", "is_sized", "sizes")

    def __init__(self, place: CountedPlace) -> None:
        super().__init__(_BUCKETS)
        self.codes: dict[int, int] = {}
        self.is_sized = place[0] in _SIZED
        self.sizes = Histogram(_SIZES)
        """The bytes of the answers to reads."""


_SIZED = frozenset(("GET", "LIST"))
"""The verbs whose answers are counted by their size."""
_TOTALS_THAT_FALL = frozenset(("apiserver_watch_shards_total",))
"""Gauges of Kubernetes with the ending of counters."""


class RequestMetrics:
    """Requests counted and timed by verb, resource and code, and the gauges and histograms that other parts add."""

    def __init__(self) -> None:
        self._rows: dict[CountedPlace, _Row] = {}
        self._gauges: list[tuple[str, str, Read]] = []
        self._counters: set[str] = set()
        """Counters whose names do not end in _total."""
        self._histograms: list[tuple[str, str, ReadHistograms]] = []
        self._others: list[Callable[[], str]] = []
        self.started = time.time()
        self.of_server = ("apiserver_id_hash", "")
        """The label with the hash of the name of this server."""
        self.in_flight = {"mutating": 0, "readOnly": 0}
        """The requests that run now, by Kubernetes' name of their kind."""

    def drop(self, call: CountedRequest) -> None:
        """Count a request that flow control rejected. Its waiting time is not the duration of such a request."""
        place = place_of(call)
        codes = self._rows.setdefault(place, _Row(place)).codes
        codes[429] = codes.get(429, 0) + 1

    def observe(self, place: CountedPlace, code: int, seconds: float, size: int = -1) -> None:
        """Count a request; `size` is the number of bytes of the whole answer."""
        row = self._rows.get(place)
        if row is None:
            row = self._rows[place] = _Row(place)
        codes = row.codes
        codes[code] = codes.get(code, 0) + 1
        row.counts[bisect_left(_BUCKETS, seconds)] += 1
        row.sum += seconds
        if row.is_sized and size >= 0:
            sizes = row.sizes
            sizes.counts[bisect_left(_SIZES, size)] += 1
            sizes.sum += size

    def requested(self) -> set[tuple[str, str, str, str]]:
        """Return the group, version, plural and subresource of all requests so far."""
        return {place[1:5] for place in self._rows}

    def gauge(self, name: str, help: str, read: Read) -> None:
        """Call `read` whenever the metrics are read. A name that ends in _total is a counter."""
        self._gauges.append((name, help, read))

    def counter(self, name: str, help: str, read: Read) -> None:
        """As `gauge`, for a counter whose name does not end in _total."""
        self._counters.add(name)
        self._gauges.append((name, help, read))

    def histogram(self, name: str, help: str, read: ReadHistograms) -> None:
        """Call `read` whenever the metrics are read."""
        self._histograms.append((name, help, read))

    def include(self, text: Callable[[], str]) -> None:
        """Show the metrics of another part of this process beside the server's: controllers, scheduler, nodes."""
        self._others.append(text)

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        return "".join(("\n".join(self._lines()), "\n", *(text() for text in self._others)))

    def _lines(self) -> Iterator[str]:
        rows = sorted(self._rows.items(), key=lambda item: item[0])
        yield from render_samples(
            "apiserver_request_total",
            "Requests by verb, group, version, resource, scope and HTTP code.",
            "counter",
            (
                ((("code", str(code)), *_labels(place)), count)
                for place, row in rows
                for code, count in sorted(row.codes.items())
            ),
        )
        yield from render_histograms(
            "apiserver_request_duration_seconds",
            "How long requests took.",
            ((_labels(place), row) for place, row in rows if any(row.counts)),
        )
        yield from render_histograms(
            "apiserver_response_sizes",
            "The bytes of the answers to get and list.",
            ((_labels(place, "dry_run"), row.sizes) for place, row in rows if any(row.sizes.counts)),
        )
        for name, help, read in (*self._gauges, *self._process_gauges()):
            is_counter = (name.endswith("_total") and name not in _TOTALS_THAT_FALL) or name in self._counters
            yield from render_samples(name, help, "counter" if is_counter else "gauge", read())
        for name, help, read_histograms in self._histograms:
            yield from render_histograms(name, help, read_histograms())

    def _process_gauges(self) -> list[tuple[str, str, Read]]:
        usage = process.getrusage(process.RUSAGE_SELF)
        return [
            (
                "process_cpu_seconds_total",
                "User and system CPU time spent, in seconds.",
                lambda: [((), usage.ru_utime + usage.ru_stime)],
            ),
            ("process_resident_memory_bytes", "Memory in use.", lambda: [((), _memory_bytes(1))]),
            ("process_start_time_seconds", "When this process started.", lambda: [((), self.started)]),
            (
                "apiserver_current_inflight_requests",
                "Requests being served now.",
                lambda: [((("request_kind", kind),), float(count)) for kind, count in self.in_flight.items()],
            ),
            ("process_open_fds", "Open file descriptors.", lambda: [((), float(_open_files()))]),
            (
                "process_max_fds",
                "File descriptors that may be open.",
                lambda: [((), float(process.getrlimit(process.RLIMIT_NOFILE)[0]))],
            ),
            ("process_virtual_memory_bytes", "Virtual memory.", lambda: [((), _memory_bytes(0))]),
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
}


def place_of(call: CountedRequest) -> CountedPlace:
    """Return where a request is counted. One for a stream counts as a connection, whatever its method."""
    resource = call.resource
    verb = "CONNECT" if call.subresource in LONG_RUNNING and isinstance(call, Call) else _VERBS[call.verb]
    scope = "resource" if call.name or call.verb == "create" else "namespace" if call.namespace else "cluster"
    return verb, resource.group, resource.version, resource.plural, call.subresource, scope


def _labels(place: CountedPlace, without: str = "") -> Labels:
    verb, group, version, plural, subresource, scope = place
    labels = (
        ("component", "apiserver"),
        ("dry_run", ""),
        ("group", group),
        ("resource", plural),
        ("scope", scope),
        ("subresource", subresource),
        ("verb", verb),
        ("version", version),
    )
    return tuple(label for label in labels if label[0] != without)


def _memory_bytes(column: int) -> float:
    """Return a column of statm in bytes: 0 is virtual memory, 1 is memory in use."""
    try:
        with open("/proc/self/statm") as statm:
            return float(statm.read().split()[column]) * process.getpagesize()
    except OSError:
        return float(process.getrusage(process.RUSAGE_SELF).ru_maxrss) * 1024


def _open_files() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0
