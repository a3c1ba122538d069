"""One OpenTelemetry span per reconcile, if the process has loaded OpenTelemetry."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_tracers: list[Any] = []


def _tracer() -> Any:
    """Return a tracer once the process has loaded OpenTelemetry; without an exporter spans would go nowhere."""
    if not _tracers:
        trace = sys.modules.get("opentelemetry.trace")
        if trace is None:
            return None
        _tracers.append(trace.get_tracer("pinnace.reconcile"))
    return _tracers[0]


@contextmanager
def span(name: str, **attributes: str | int) -> Iterator[None]:
    """Open a span around a block; an exception is recorded on it."""
    tracer = _tracer()
    if tracer is None:
        yield
        return
    with tracer.start_as_current_span(name, attributes=attributes):
        yield
