"""The values that metric functions return, and their form on the wire."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from pinnace.model import quantity
from pinnace.model.quantity import Quantity
from pinnace.model.selectors import LabelSelector

Number = int | float | Decimal | str
"""A value of a metric. A text is a quantity, such as 250m or 1.5Gi."""


class BadValue(ValueError):
    """A function returned a value that no metric can have."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric, with the labels of its series, the moment and the seconds over which it was measured."""

    value: Number
    labels: Mapping[str, str] = field(default_factory=dict)
    at: datetime | None = None
    """The time of the measurement; the time of the request if it is None."""
    window: float | None = None
    """The seconds until `at` that a rate was computed over; None for a value of a moment."""


@dataclass(frozen=True, slots=True)
class MetricQuery:
    """A request for values of a metric."""

    name: str
    """The metric. A function for a prefix is called with different names."""
    namespace: str
    """The namespace of the objects, or of the autoscaler for an external metric; empty outside of namespaces."""
    selector: LabelSelector
    """Selects among the series of the metric by their labels."""

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels that the selector requires with exactly one value."""
        return self.selector.equalities()


def samples_of(result: Any) -> list[Sample]:
    """Return the samples in the result of a function: a number, a Sample, several of them, or None for no value.

    Raise BadValue for anything else.
    """
    if result is None:
        return []
    if isinstance(result, Sample):
        return [result]
    if isinstance(result, int | float | Decimal | str):
        return [Sample(result)]
    if isinstance(result, Iterable) and not isinstance(result, Mapping | bytes):
        return [sample for value in result for sample in samples_of(value)]
    raise BadValue(f"{result!r} is no value: return a number, a quantity such as '250m', a Sample, or None")


def quantity_of(value: Number) -> Quantity:
    """Return a value as a quantity. Raise BadValue for a bool, for NaN, for infinity and for a text that is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise BadValue(f"{value!r} is no number: return an int, a float, a Decimal or a quantity such as '250m'")
    if not isinstance(value, str):
        if not math.isfinite(value):
            raise BadValue(f"{value} is no value of a metric: return None if there is none")
        value = f"{Decimal(str(value)):f}"
    try:
        return quantity.parse(value)
    except quantity.InvalidQuantity as error:
        raise BadValue(f"{value!r} is no quantity ({error}): write 250m, 12 or 1.5Gi, without a unit") from None


def add_up(samples: list[Sample]) -> Sample | None:
    """Return one sample for several series of one object: the sum of their values. None if there is no sample.

    Raise BadValue. The time is that of the oldest sample, the window the longest.
    """
    if len(samples) < 2:
        return samples[0] if samples else None
    total = quantity.ZERO
    for sample in samples:
        total = total + quantity_of(sample.value)
    times = [sample.at for sample in samples if sample.at is not None]
    windows = [sample.window for sample in samples if sample.window is not None]
    return Sample(str(total), {}, min(times, default=None), max(windows, default=None))
