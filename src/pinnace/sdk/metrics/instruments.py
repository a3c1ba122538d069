"""The counters, gauges and histograms of an author, which the operator serves on its /metrics beside its own.

    shipped = operator.counter("orders_shipped_total", "Orders that have left the shop.", labels=["shop"])
    shipped.inc(shop="north")

Each run of an operator begins at zero. A metric keeps a limited number of label sets: values of users must not fill
the memory of the operator and of Prometheus.
"""

from __future__ import annotations

import logging
import math
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, Protocol

from pinnace.process.exposition import Histogram as Buckets
from pinnace.process.exposition import Labels, render_histograms, render_samples
from pinnace.sdk.resources.spelling import nearest

MOST_SETS = 1_000
"""The label sets that one metric keeps, unless its author says otherwise."""
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_MOST_BUCKETS = 100
_MOST_CHARACTERS = 200
"""Of the value of a label."""
_DROPPED = "pinnace_operator_dropped_samples_total"
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_OWN = re.compile(
    r"controller_runtime_|workqueue_|rest_client_|pinnace_|leader_election_master_status$|running_managed_controllers$"
)
_log = logging.getLogger(__name__)


class Instrument:
    """One metric: its name, and a value for each set of labels."""

    kind = ""

    def __init__(self, name: str, help: str, *, labels: Sequence[str] = (), most: int = MOST_SETS) -> None:
        """`most` is the number of label sets that are kept; further ones are dropped, logged and counted."""
        self.name = name
        self.help = help
        self.labels = _check_labels(name, labels)
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name for a metric: write letters, digits and _, as in orders_total")
        if _OWN.match(name):
            raise ValueError(f"{name} is a name of the operator's own metrics: choose another, such as shop_{name}")
        if not help:
            raise ValueError(f"the metric {name} needs a sentence that says what it counts")
        if most < 1:
            raise ValueError(f"the metric {name} keeps most={most} label sets: write 1 or more")
        self.dropped = 0
        """The samples that were dropped, because there were too many label sets."""
        self._most = most
        self._lock = Lock()  # Handlers that are `def` run in threads.
        self._values: dict[Labels, Any] = {}
        if not self.labels:
            self._values[()] = self._new()

    def remove(self, **labels: object) -> None:
        """Forget the value for some labels, of an object that is gone."""
        with self._lock:
            self._values.pop(self._set_of(labels), None)

    def reset(self) -> None:
        """Forget all values."""
        with self._lock:
            self._values.clear()
            self.dropped = 0
            if not self.labels:
                self._values[()] = self._new()

    def lines(self) -> Iterable[str]:
        """Return the metric in Prometheus' text format."""
        with self._lock:
            samples = sorted(self._values.items())
            return list(render_samples(self.name, self.help, self.kind, samples))

    def _new(self) -> Any:
        return 0.0

    def _set_of(self, labels: dict[str, object]) -> Labels:
        """Return the label set. Raise TypeError unless every label has a value."""
        if labels.keys() != set(self.labels):
            unknown = next((name for name in labels if name not in self.labels), None)
            expected = ", ".join(self.labels) or "none"
            if unknown is not None:
                hint = nearest(unknown, self.labels)
                raise TypeError(f"{self.name} has no label {unknown}{hint or f'; its labels: {expected}'}")
            missing = next(name for name in self.labels if name not in labels)
            raise TypeError(f"{self.name} needs a value for the label {missing}; its labels: {expected}")
        return tuple((name, str(labels[name])[:_MOST_CHARACTERS]) for name in self.labels)

    def _admits(self, chosen: Labels) -> bool:
        """Return whether there is room for a label set. Call it with the lock."""
        if chosen in self._values or len(self._values) < self._most:
            return True
        self.dropped += 1
        if self.dropped == 1:
            _log.warning(
                "the metric %s has %d sets of labels already: %s is dropped, and so are all further ones. Use labels "
                "with few values: no names of objects, users or requests",
                self.name,
                self._most,
                dict(chosen),
            )
        return False

    def _change(self, value: float, labels: dict[str, object], *, adds: bool) -> None:
        number = _check_number(self.name, value)
        chosen = self._set_of(labels)
        with self._lock:
            if self._admits(chosen):
                self._values[chosen] = number + (self._values.get(chosen, 0.0) if adds else 0.0)


class Counter(Instrument):
    """A number that only grows: `operator.counter("orders_total", "...")`."""

    kind = "counter"

    def __init__(self, name: str, help: str, *, labels: Sequence[str] = (), most: int = MOST_SETS) -> None:
        super().__init__(name, help, labels=labels, most=most)
        if not name.endswith("_total"):
            raise ValueError(f"the name of a counter ends in _total: write {name}_total")

    def inc(self, by: float = 1.0, /, **labels: object) -> None:
        """Add to the number. Raise ValueError for a negative one."""
        if by < 0:
            raise ValueError(f"the counter {self.name} cannot go down by {-by:g}: use a gauge")
        self._change(by, labels, adds=True)


class Gauge(Instrument):
    """A number that goes up and down: `operator.gauge("queue_length", "...")`."""

    kind = "gauge"

    def set(self, value: float, /, **labels: object) -> None:
        """Replace the number."""
        self._change(value, labels, adds=False)

    def inc(self, by: float = 1.0, /, **labels: object) -> None:
        """Add to the number."""
        self._change(by, labels, adds=True)

    def dec(self, by: float = 1.0, /, **labels: object) -> None:
        """Subtract from the number."""
        self._change(-by, labels, adds=True)


class Histogram(Instrument):
    """Observed values by size: `operator.histogram("backup_seconds", "...")`."""

    def __init__(
        self,
        name: str,
        help: str,
        *,
        labels: Sequence[str] = (),
        buckets: Sequence[float] = SECONDS,
        most: int = MOST_SETS,
    ) -> None:
        """`buckets` are the upper bounds, in ascending order."""
        self._bounds = tuple(float(bound) for bound in buckets)
        is_ascending = all(low < high for low, high in zip(self._bounds, self._bounds[1:], strict=False))
        if not (0 < len(self._bounds) <= _MOST_BUCKETS and is_ascending and all(map(math.isfinite, self._bounds))):
            raise ValueError(f"the buckets of {name} are up to {_MOST_BUCKETS} finite numbers in ascending order")
        if "le" in labels:
            raise ValueError(f"the histogram {name} cannot have the label le, which its buckets have")
        super().__init__(name, help, labels=labels, most=most)

    def observe(self, value: float, /, **labels: object) -> None:
        """Count a value."""
        number, chosen = _check_number(self.name, value), self._set_of(labels)
        with self._lock:
            if self._admits(chosen):
                self._values.setdefault(chosen, self._new()).observe(number)

    @contextmanager
    def time(self, **labels: object) -> Iterator[None]:
        """Count the seconds that a block takes: `with backup_seconds.time(): ...`."""
        chosen = dict(labels)
        self._set_of(chosen)  # A wrong label is an error before the block, not after it.
        start = time.perf_counter()
        try:
            yield
        finally:
            self.observe(time.perf_counter() - start, **chosen)

    def lines(self) -> Iterable[str]:
        with self._lock:
            return list(render_histograms(self.name, self.help, sorted(self._values.items(), key=lambda pair: pair[0])))

    def _new(self) -> Buckets:
        return Buckets(self._bounds)


class Collected(Protocol):
    """A registry of prometheus_client."""

    def collect(self) -> Iterable[Any]: ...


class Instruments:
    """All metrics of an author: those of an operator, and the registries of prometheus_client that it serves."""

    def __init__(self) -> None:
        self._by_name: dict[str, Instrument] = {}
        self._registries: list[Collected] = []
        self._runs = 0

    def add(self, instrument: Instrument) -> None:
        """Add a metric. Raise ValueError if there is one with its name."""
        if instrument.name in self._by_name:
            raise ValueError(f"there is a metric {instrument.name} already: keep it in a variable of the module")
        self._by_name[instrument.name] = instrument

    def expose(self, registry: Collected) -> None:
        """Serve the metrics of a registry, too."""
        self._registries.append(registry)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Begin at zero, unless another run in this process counts already."""
        if not self._runs:
            for instrument in self._by_name.values():
                instrument.reset()
        self._runs += 1
        try:
            yield
        finally:
            self._runs -= 1

    def lines(self) -> Iterator[str]:
        """Yield all metrics in Prometheus' text format."""
        for _, instrument in sorted(self._by_name.items()):
            yield from instrument.lines()
        counts = {name: float(known.dropped) for name, known in sorted(self._by_name.items())}
        dropped = [((("metric", name),), count) for name, count in counts.items() if count]
        if dropped:
            help = "Samples of an author's metrics that were dropped, because there were too many sets of labels."
            yield from render_samples(_DROPPED, help, "counter", dropped)
        yield from self._collected_lines()

    def _collected_lines(self) -> Iterator[str]:
        """Yield the metrics of registries; of the default one if the author's code has loaded prometheus_client."""
        client = sys.modules.get("prometheus_client")
        if client is None:
            return
        for registry in dict.fromkeys([client.REGISTRY, *self._registries]):
            try:
                text = client.generate_latest(_Without(registry, self._by_name))
            except Exception:  # It is the author's code.
                _log.exception("a registry of prometheus_client cannot be collected")
                continue
            yield from text.decode().splitlines()


class _Without:
    """A registry without the metrics that others have: each name may occur once."""

    def __init__(self, registry: Collected, names: Iterable[str]) -> None:
        self._registry = registry
        self._names = {name.removesuffix("_total") for name in names}

    def collect(self) -> Iterator[Any]:
        for family in self._registry.collect():
            if family.name.removesuffix("_total") not in self._names and not _OWN.match(family.name):
                yield family


def _check_labels(name: str, labels: Sequence[str]) -> tuple[str, ...]:
    """Return the names of labels. Raise ValueError or TypeError for one that Prometheus does not take."""
    if isinstance(labels, str):
        raise TypeError(f"the labels of {name} are a list: write labels=[{labels!r}]")
    wrong = next((label for label in labels if not isinstance(label, str) or not _LABEL.fullmatch(label)), None)
    if wrong is not None or len(set(labels)) < len(labels):
        given = repr(wrong) if wrong is not None else "a name twice"
        raise ValueError(f"{name} cannot have the label {given}: write each name once, with letters, digits and _")
    return tuple(labels)


def _check_number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} takes finite numbers, not {value!r:.40}")
    return float(value)
