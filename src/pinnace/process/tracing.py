"""OpenTelemetry spans, if the process has loaded OpenTelemetry; it is never loaded from here."""

from __future__ import annotations

import sys
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

TRACE_HEADERS = ("traceparent", "tracestate")
_MOST_WRITES = 4096
_tracers: list[Any] = []
_writes: OrderedDict[str, Any] = OrderedDict()


def is_loaded() -> bool:
    """Return whether the process has loaded OpenTelemetry, as `opentelemetry-instrument pinnace up` does."""
    return "opentelemetry.trace" in sys.modules


def active_tracer() -> Any:
    """Return a tracer once the process has loaded OpenTelemetry, otherwise None: spans would go nowhere."""
    if not _tracers:
        trace = sys.modules.get("opentelemetry.trace")
        if trace is None:
            return None
        _tracers.append(trace.get_tracer("pinnace"))
    return _tracers[0]


@contextmanager
def span(name: str, *, parent: Any = None, links: Sequence[Any] = (), **attributes: str | int) -> Iterator[Any]:
    """Open a span around a block; an exception is recorded on it. Yield the span, or None without OpenTelemetry.

    `parent` and `links` are contexts of spans; without a parent it is a child of the current span.
    """
    tracer = active_tracer()
    if tracer is None:
        yield None
        return
    options = {"context": _as_parent(parent), "links": _links(links), "attributes": attributes}
    with tracer.start_as_current_span(name, **options) as opened:
        yield opened


@contextmanager
def client_span(name: str, **attributes: str | int) -> Iterator[dict[str, str]]:
    """Open a span around a request to another server; yield the headers that continue the trace there.

    Without OpenTelemetry there is no span, and there are no headers.
    """
    tracer = active_tracer()
    if tracer is None:
        yield {}
        return
    kind = sys.modules["opentelemetry.trace"].SpanKind.CLIENT
    with tracer.start_as_current_span(name, kind=kind, attributes=attributes):
        yield trace_headers()


def record_span(
    name: str,
    attributes: Mapping[str, str | int],
    *,
    began: float,
    ended: float = 0.0,
    parent: Any = None,
    headers: Mapping[str, str] | None = None,
) -> Any:
    """Record a span that is over: it began and ended so many seconds ago. Return its context.

    `headers` of a request may name the parent.
    """
    tracer = active_tracer()
    if tracer is None:
        return None
    now = time.time_ns()  # The exporters and the other spans of OpenTelemetry use this clock.
    context = _as_parent(parent)
    if headers and "traceparent" in headers:
        context = import_module("opentelemetry.propagate").extract(headers)
    recorded = tracer.start_span(name, context=context, start_time=now - int(began * 1e9), attributes=attributes)
    recorded.end(now - int(ended * 1e9))
    return recorded.get_span_context()


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


def trace_headers() -> dict[str, str]:
    """Return the headers that make the spans of another server children of the current one; none without a span."""
    headers: dict[str, str] = {}
    if is_loaded():
        import_module("opentelemetry.propagate").inject(headers)
    return headers


# Writes and the reconciles that follow from them


def remember_write(version: str) -> None:
    """Keep the context of the current span as that of the write with this resourceVersion."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return
    _writes[version] = trace.get_current_span().get_span_context()
    if len(_writes) > _MOST_WRITES:
        _writes.popitem(last=False)


def context_of_write(version: str) -> Any:
    """Return the context of the write with a resourceVersion, if it was one of the last in this process, or None."""
    return _writes.get(version)


def _as_parent(context: Any) -> Any:
    if context is None:
        return None
    trace = sys.modules["opentelemetry.trace"]
    return trace.set_span_in_context(trace.NonRecordingSpan(context))


def _links(contexts: Sequence[Any]) -> list[Any]:
    return [sys.modules["opentelemetry.trace"].Link(context) for context in contexts]
