"""The metrics of controllers, under the names that dashboards for controller-runtime use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pinnace.process.exposition import Histogram, Labels, Sample, render_histograms, render_samples

Gauge = Callable[[], Iterable[Sample]]

_RECONCILE_SECONDS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60,
)  # fmt: skip
_WEBHOOK_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_QUEUE_SECONDS = (1e-8, 1e-7, 1e-6, 9.999999999999999e-06, 9.999999999999999e-05, 0.001, 0.01, 0.1, 1, 10, 100, 1000)

RECONCILES = "controller_runtime_reconcile_total"
ERRORS = "controller_runtime_reconcile_errors_total"
TERMINAL_ERRORS = "controller_runtime_terminal_reconcile_errors_total"
PANICS = "controller_runtime_reconcile_panics_total"
FUNCTION_ERRORS = "pinnace_operator_function_errors_total"
WORKER_ENDS = "pinnace_controller_worker_ends_total"
RECONCILE_SECONDS = "controller_runtime_reconcile_time_seconds"
QUEUE_ADDS = "workqueue_adds_total"
QUEUE_RETRIES = "workqueue_retries_total"
QUEUE_SECONDS = "workqueue_queue_duration_seconds"
WORK_SECONDS = "workqueue_work_duration_seconds"
WEBHOOKS = "controller_runtime_webhook_requests_total"
REQUESTS = "rest_client_requests_total"
WEBHOOK_SECONDS = "controller_runtime_webhook_latency_seconds"

_BOUNDS = {RECONCILE_SECONDS: _RECONCILE_SECONDS, WEBHOOK_SECONDS: _WEBHOOK_SECONDS}
_HELP = {
    RECONCILES: "Total number of reconciliations per controller",
    ERRORS: "Total number of reconciliation errors per controller",
    TERMINAL_ERRORS: "Total number of terminal reconciliation errors per controller",
    PANICS: "Total number of reconciliation panics per controller",
    FUNCTION_ERRORS: "Failures of functions that choose the objects to reconcile, by function",
    WORKER_ENDS: "Workers of a controller that ended although it was not stopped, each followed by another",
    RECONCILE_SECONDS: "Length of time per reconciliation per controller",
    QUEUE_ADDS: "Total number of adds handled by workqueue",
    QUEUE_RETRIES: "Total number of retries handled by workqueue",
    QUEUE_SECONDS: "How long in seconds an item stays in workqueue before being requested",
    WORK_SECONDS: "How long in seconds processing an item from workqueue takes.",
    WEBHOOKS: "Total number of admission requests by HTTP status code.",
    REQUESTS: "Number of HTTP requests, partitioned by status code, method, and host.",
    WEBHOOK_SECONDS: "Histogram of the latency of processing admission requests",
}


class Metrics:
    """Counters, histograms and gauges of one process; `text` renders them for Prometheus."""

    def __init__(self) -> None:
        self._counters: dict[str, dict[Labels, float]] = {}
        self._histograms: dict[str, dict[Labels, Histogram]] = {}
        self._gauges: dict[str, tuple[str, list[Gauge]]] = {}
        self._counted: dict[str, Gauge] = {}
        self._others: list[Callable[[], Iterable[str]]] = []
        self._help = dict(_HELP)
        self._bounds = dict(_BOUNDS)

    def describe(self, name: str, help: str, bounds: tuple[float, ...] = ()) -> None:
        """Give a metric its help text, and the upper bounds of a histogram's buckets."""
        self._help[name] = help
        if bounds:
            self._bounds[name] = bounds

    def count(self, name: str, labels: Labels, *, by: float = 1.0) -> None:
        """Increase a counter; `by=0` creates it at zero, so that its first increase is visible."""
        counter = self._counters.setdefault(name, {})
        counter[labels] = counter.get(labels, 0.0) + by

    def observe(self, name: str, labels: Labels, value: float) -> None:
        self.histogram(name, labels).observe(value)

    def histogram(self, name: str, labels: Labels) -> Histogram:
        """Return a histogram, for those who observe very often."""
        histograms = self._histograms.setdefault(name, {})
        histogram = histograms.get(labels)
        if histogram is None:
            histogram = histograms[labels] = Histogram(self._bounds.get(name, _QUEUE_SECONDS))
        return histogram

    def gauge(self, name: str, help: str, read: Gauge) -> None:
        """Call `read` whenever the metrics are rendered; several gauges may share a name."""
        self._gauges.setdefault(name, (help, []))[1].append(read)

    def counted(self, name: str, read: Gauge) -> None:
        """Call `read` for the values of a counter that is kept elsewhere."""
        self._counted[name] = read

    def append(self, lines: Callable[[], Iterable[str]]) -> None:
        """Add the lines of other metrics, which are called for whenever the metrics are rendered."""
        self._others.append(lines)

    def forget(self, labels: Labels) -> None:
        """Forget the counters and histograms with these labels, of something that is gone."""
        wanted = set(labels)
        families: list[dict[Labels, Any]] = [*self._counters.values(), *self._histograms.values()]
        for family in families:
            for gone in [known for known in family if wanted <= set(known)]:
                del family[gone]

    def value(self, name: str, **labels: str) -> float:
        """Return one counter or gauge, for tests."""
        wanted = tuple(labels.items())
        if name in self._counters:
            return self._counters[name].get(wanted, 0.0)
        reads = self._gauges[name][1] if name in self._gauges else ()
        return next((value for read in reads for own, value in read() if own == wanted), 0.0)

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        counters = {name: dict(read()) for name, read in self._counted.items()} | self._counters
        for name, counter in sorted(counters.items()):
            yield from render_samples(name, self._help.get(name, name), "counter", sorted(counter.items()))
        for name, histograms in sorted(self._histograms.items()):
            by_labels = sorted(histograms.items(), key=lambda pair: pair[0])
            yield from render_histograms(name, self._help.get(name, name), by_labels)
        for name, (help, reads) in sorted(self._gauges.items()):
            yield from render_samples(name, help, "gauge", (sample for read in reads for sample in read()))
        for lines in self._others:
            yield from lines()


class QueueMetrics:
    """The metrics of one controller's queue."""

    def __init__(self, metrics: Metrics, controller: str) -> None:
        self._metrics = metrics
        self._labels = (("name", controller), ("controller", controller))
        for counter in (QUEUE_ADDS, QUEUE_RETRIES):
            metrics.count(counter, self._labels, by=0)

    def added(self) -> None:
        self._metrics.count(QUEUE_ADDS, self._labels)

    def retried(self) -> None:
        self._metrics.count(QUEUE_RETRIES, self._labels)

    def taken(self, waited: float) -> None:
        self._metrics.observe(QUEUE_SECONDS, self._labels, waited)

    def finished(self, worked: float) -> None:
        self._metrics.observe(WORK_SECONDS, self._labels, worked)
