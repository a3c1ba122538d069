"""One OpenTelemetry span per reconcile where the package is installed; nothing where it is not."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def _find_tracer() -> Any:
    try:
        return importlib.import_module("opentelemetry.trace").get_tracer("pinnace.reconcile")
    except ImportError:
        return None


_tracer = _find_tracer()


@contextmanager
def span(name: str, **attributes: str | int) -> Iterator[None]:
    """A span around what is done within; an exception is recorded on it."""
    if _tracer is None:
        yield
        return
    with _tracer.start_as_current_span(name, attributes=attributes):
        yield
