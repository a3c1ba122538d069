"""The options that the decorators of object handlers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

from pinnace.client.mapping import KindLike
from pinnace.client.rates import Rate
from pinnace.model.selectors import LabelsLike, selector_text
from pinnace.process.backoff import Backoff
from pinnace.reconcile.predicates import Predicate
from pinnace.reconcile.queue import RETRIES, ReconcileLimits
from pinnace.sdk.handlers.calls import is_async
from pinnace.sdk.resources.spelling import nearest


class HandlerOptions(TypedDict, total=False):
    """The objects for which a handler is called, and how often a call is repeated."""

    labels: LabelsLike
    """A label selector: only objects that match it. `{"app": "web"}` is `"app=web"`."""
    fields: str
    """A field selector."""
    when: Predicate
    """Called with the old and the new object, as dicts; return whether the change counts."""
    workers: int
    """The number of objects that are handled at the same time."""
    backoff: Backoff
    """The delays after failures."""
    retries: int
    """Give up after so many failures in a row, until the object changes."""
    timeout: float
    """The seconds that one call may take."""
    rate: Rate
    """Calls per second, of all objects together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """The options of one handler, with their defaults."""

    labels: str = ""
    fields: str = ""
    when: Predicate | None = None
    workers: int = 4
    backoff: Backoff = RETRIES
    retries: int | None = None
    timeout: float = 0.0
    rate: Rate | None = None

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ValueError(f"workers={self.workers}: write 1 or more")
        if self.timeout < 0:
            raise ValueError(f"timeout={self.timeout}: write the seconds that a call may take, or 0 for no limit")
        if self.retries is not None and self.retries < 0:
            raise ValueError(f"retries={self.retries}: write 0 or more, or leave it out to retry for ever")
        if self.when is not None and not callable(self.when):
            raise TypeError(f"when={self.when!r}: write a function of the old and the new object")
        if self.when is not None and is_async(self.when):
            raise TypeError(f"when={self.when!r} is called for each change and must not wait: write def, not async def")

    @property
    def limits(self) -> ReconcileLimits:
        return ReconcileLimits(backoff=self.backoff, retries=self.retries, rate=self.rate)


def read_options(decorator: str, options: HandlerOptions, *others: str) -> CallOptions:
    """Return the options of a handler. Raise TypeError for one that the decorator, which takes `others` too, lacks."""
    known = (*others, *HandlerOptions.__annotations__)
    for name in options:
        if name not in known:
            fix = nearest(name, known) or f"; there are {', '.join(known)}"
            raise TypeError(f"operator.{decorator}({name}=...): there is no such option{fix}")
    chosen: dict[str, Any] = {**options, "labels": selector_text(options.get("labels", ""))}
    return CallOptions(**chosen)


@dataclass(frozen=True, slots=True)
class Select:
    """Some objects of a kind, for `owns` and `watches`: `Select("v1/Secret", labels="app=db", metadata_only=True)`.

    Only these are kept in memory. With `metadata_only` that is their metadata alone.
    """

    kind: KindLike
    labels: LabelsLike = ""
    fields: str = ""
    metadata_only: bool = False
    when: Predicate | None = None
    """Called with the old and the new object, as dicts; return whether the change counts."""
