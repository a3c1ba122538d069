"""Limits how many Events clients write: in all, of a namespace, of a user, and about an object."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pinnace.admission.chain import WRITES
from pinnace.model import errors
from pinnace.model.typed_objects import Event
from pinnace.model.write_review import Review
from pinnace.process.clock import AlarmClock

DEFAULT_CACHE = 4096


@dataclass(frozen=True, slots=True)
class EventLimit:
    """One limit, with the fields of the configuration."""

    type: str
    qps: int
    burst: int
    cache_size: int = DEFAULT_CACHE
    """How many namespaces, users or objects are remembered; the others begin with a full allowance."""


class EventRateLimit:
    interests = (("", "events", WRITES),)

    def __init__(self, limits: Sequence[EventLimit], clock: AlarmClock) -> None:
        self._limits = [_Limiter(limit, clock) for limit in limits]

    def validate(self, review: Review) -> None:
        if review.is_dry_run:
            return
        reached = [why for limit in self._limits if (why := limit.take(review))]
        if reached:
            reasons = list(dict.fromkeys(reached))
            text = reasons[0] if len(reasons) == 1 else f"[{', '.join(reasons)}]"
            raise errors.TooManyRequests(f"Too many requests: {text}")


class _Limiter:
    """The allowances of one limit, by key: a pair of the tokens that were left, and when."""

    def __init__(self, limit: EventLimit, clock: AlarmClock) -> None:
        self._limit = limit
        self._clock = clock
        self._key_of = KEYS[limit.type]
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, review: Review) -> str:
        """Take a token. Return why there is none; empty if there was one."""
        limit, key, now = self._limit, self._key_of(review), self._clock.monotonic()
        left, since = self._left.pop(key, (float(limit.burst), now))
        left = min(float(limit.burst), left + (now - since) * limit.qps)
        is_allowed = left >= 1
        self._left[key] = (left - 1 if is_allowed else left, now)
        if len(self._left) > limit.cache_size:
            self._left.popitem(last=False)
        return "" if is_allowed else f"limit reached on type {limit.type} for key {key}"


def _key_of_source_and_object(review: Review) -> str:
    event: Event = review.changed
    source, about = event.get("source") or {}, event.get("involvedObject") or {}
    names = ("kind", "namespace", "name", "uid", "apiVersion")
    parts = [source.get("component"), source.get("host"), *(about.get(name) for name in names)]
    return "".join(str(part or "") for part in parts)


KEYS: dict[str, Callable[[Review], str]] = {
    "Namespace": lambda review: review.namespace,
    "Server": lambda review: "",
    "SourceAndObject": _key_of_source_and_object,
    "User": lambda review: review.user.name,
}
"""The types of limits, with the functions that return what an Event counts for."""
