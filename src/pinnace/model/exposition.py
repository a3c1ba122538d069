"""Prometheus' text format: counters, gauges and histograms as lines (docs/decisions/0008-metrics.md)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from pinnace.model.metric_stability import describe

Labels = tuple[tuple[str, str], ...]
Sample = tuple[Labels, float]


class Histogram:
    """Observed values, counted by bucket. `counts` has one bucket more than `bounds`: the last is unbounded."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, weight: int = 1) -> None:
        """Count a value, or as many equal ones as `weight` says."""
        self.counts[bisect_left(self.bounds, value)] += weight
        self.sum += value * weight


class HistogramFamily:
    """One histogram for each set of labels, under one name."""

    __slots__ = ("_bounds", "_histograms", "help", "name")

    def __init__(self, name: str, help: str, bounds: tuple[float, ...]) -> None:
        self.name = name
        self.help = help
        self._bounds = bounds
        self._histograms: dict[Labels, Histogram] = {}

    def of(self, labels: Labels) -> Histogram:
        histogram = self._histograms.get(labels)
        if histogram is None:
            histogram = self._histograms[labels] = Histogram(self._bounds)
        return histogram

    def items(self) -> Iterable[tuple[Labels, Histogram]]:
        """Return the histograms that have observed a value, by labels."""
        return sorted((pair for pair in self._histograms.items() if any(pair[1].counts)), key=lambda pair: pair[0])


def render_samples(name: str, help: str, kind: str, samples: Iterable[Sample]) -> Iterator[str]:
    """Yield the lines of a counter or gauge (`kind`), in the order of `samples`."""
    yield from _head(name, help, kind)
    for labels, value in samples:
        inner = _format_labels(labels)
        yield f"{name}{{{inner}}} {format_number(value)}" if inner else f"{name} {format_number(value)}"


def render_histograms(name: str, help: str, histograms: Iterable[tuple[Labels, Histogram]]) -> Iterator[str]:
    """Yield the lines of a histogram, in the order of `histograms`."""
    yield from _head(name, help, "histogram")
    for labels, histogram in histograms:
        inner = _format_labels(labels)
        start = f'{name}_bucket{{{inner},le="' if inner else f'{name}_bucket{{le="'
        total = 0
        for bound, count in zip(histogram.bounds, histogram.counts, strict=False):
            total += count
            yield f'{start}{format_number(bound)}"}} {total}'
        total += histogram.counts[-1]
        yield f'{start}+Inf"}} {total}'
        braced = f"{{{inner}}}" if inner else ""
        yield f"{name}_sum{braced} {histogram.sum}"
        yield f"{name}_count{braced} {total}"


def format_number(value: float) -> str:
    """Format a value as Go does: integers without a decimal point."""
    return str(int(value)) if float(value).is_integer() else repr(value)


def _head(name: str, help: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {describe(name, help)}"
    yield f"# TYPE {name} {kind}"


def _format_labels(labels: Labels) -> str:
    return ",".join([f'{name}="{_escape(value)}"' for name, value in labels])


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
