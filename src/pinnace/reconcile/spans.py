"""The spans of a reconcile: the watch event that caused it, the time in the queue, and the call itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from pinnace.model.objects import Key
from pinnace.model.tracing import context_of_write, record_span, span
from pinnace.reconcile.history import Reason

Answer = TypeVar("Answer")


async def trace_reconcile(
    controller: str, key: Key, reasons: Sequence[Reason], waited: float, reconcile: Callable[[Key], Awaitable[Answer]]
) -> Answer:
    """Call `reconcile` within a span. `waited` is how long the key was in the queue, in seconds.

    If the write behind the first change was made in this process, all of them are part of its trace.
    """
    causes = [one for one in reasons if one.kind is not None and not one.is_initial]
    contexts = [found for one in causes if (found := context_of_write(one.version)) is not None]
    parent, links = (contexts[0], contexts[1:]) if contexts else (None, [])
    for cause in causes[:1]:
        place: dict[str, str | int] = {"object": str(cause.key), "event": cause.what, "resourceVersion": cause.version}
        name = cause.kind.name if cause.kind is not None else ""
        parent = record_span(f"watch {name}", place, began=waited, ended=waited, parent=parent) or parent
    attributes: dict[str, str | int] = {"controller": controller, "namespace": key.namespace, "object": key.name}
    record_span(f"queue {controller}", attributes, began=waited, parent=parent)
    with span(f"reconcile {controller}", parent=parent, links=links, **attributes):
        return await reconcile(key)
