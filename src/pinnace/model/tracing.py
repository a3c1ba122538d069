"""OpenTelemetry spans, if the process has loaded OpenTelemetry; it is never loaded from here."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

_tracers: list[Any] = []


def is_loaded() -> bool:
    """Return whether the process has loaded OpenTelemetry, as `opentelemetry-instrument pinnace up` does."""
    return "opentelemetry.trace" in sys.modules


def _tracer() -> Any:
    """Return a tracer once the process has loaded OpenTelemetry; without an exporter spans would go nowhere."""
    if not _tracers:
        trace = sys.modules.get("opentelemetry.trace")
        if trace is None:
            return None
        _tracers.append(trace.get_tracer("pinnace"))
    return _tracers[0]


@contextmanager
def span(name: str, **attributes: str | int) -> Iterator[Any]:
    """Open a span around a block; an exception is recorded on it. Yield the span, or None without OpenTelemetry."""
    tracer = _tracer()
    if tracer is None:
        yield None
        return
    with tracer.start_as_current_span(name, attributes=attributes) as opened:
        yield opened


@contextmanager
def continued_trace(headers: Mapping[str, str]) -> Iterator[None]:
    """Make spans in a block children of the caller's span, which its `traceparent` header names."""
    if not is_loaded() or "traceparent" not in headers:
        yield
        return
    propagate, context = import_module("opentelemetry.propagate"), import_module("opentelemetry.context")
    token = context.attach(propagate.extract(headers))
    try:
        yield
    finally:
        context.detach(token)
