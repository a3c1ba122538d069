"""Estimates how many seats a request takes: a list by the bytes that it reads, a write by the watches that it wakes.

The formulas are those of kube-apiserver's work estimators with the size-based list cost (on by default since 1.34).
"""

from __future__ import annotations

from typing import NamedTuple

from pinnace.model import errors
from pinnace.serving.cache.fanout import Fanout
from pinnace.serving.request.call import Call

BYTES_PER_SEAT = 100_000
MOST_CACHED_BYTES = 1_000_000
"""A list that is read from the watch cache is streamed: it counts no more than this."""
MOST_LIST_SEATS = 100
MOST_WRITE_SEATS = 10
WATCHES_PER_SEAT = 10
EVENT_SECONDS = 0.005
"""How long the events of a write keep one seat for each `WATCHES_PER_SEAT` watches."""
_WRITES = frozenset(("create", "update", "patch", "delete"))
_NAMED = ("metadata.name=", "metadata.name==")


class WorkEstimate(NamedTuple):
    seats: int
    seconds_after: float = 0.0
    """How long the seats stay taken after the answer, for the events of the write."""


ONE_SEAT = WorkEstimate(1)
NO_SEAT = WorkEstimate(0)


class WorkEstimator:
    def __init__(self, objects: Fanout) -> None:
        self._objects = objects

    def estimate(self, call: Call, most: int) -> WorkEstimate:
        """Return the work of a request in a priority level with `most` seats for one request (0: no limit)."""
        if call.verb in _WRITES:
            return self._write(call, most)
        if call.verb == "list" or (call.verb == "watch" and _sends_state(call)):
            return WorkEstimate(self._list(call, min(most or MOST_LIST_SEATS, MOST_LIST_SEATS)))
        return ONE_SEAT

    def _write(self, call: Call, most: int) -> WorkEstimate:
        watches = self._objects.watch_count(call.resource.prefix, call.namespace)
        if watches < WATCHES_PER_SEAT or call.subresource == "token":
            return ONE_SEAT
        seats = -(-watches // WATCHES_PER_SEAT)
        width = min(seats, most or MOST_WRITE_SEATS, MOST_WRITE_SEATS)
        return WorkEstimate(width, EVENT_SECONDS * seats / width)

    def _list(self, call: Call, most: int) -> int:
        count, total = self._objects.size(call.resource.prefix)
        if not count or call.name or _is_of_one_name(call):
            return 1
        try:
            limit = call.number("limit") or 0
        except errors.ApiError:
            return most  # The request fails later.
        read = min(count, limit) if limit > 0 else count
        is_cached = call.verb == "watch" or not _is_of_the_past(call, limit)
        if not is_cached and (call.text("labelSelector") or call.text("fieldSelector")):
            read = max(read, count // 2)
        size = read * (total // count)
        if is_cached:
            size = min(size, MOST_CACHED_BYTES)
        return max(1, min(-(-size // BYTES_PER_SEAT), most))


def _sends_state(call: Call) -> bool:
    """Whether a watch begins with the current objects."""
    return call.text("resourceVersion") in ("", "0") or call.flag("sendInitialEvents")


def _is_of_one_name(call: Call) -> bool:
    selector = call.text("fieldSelector")
    return selector.startswith(_NAMED) and "," not in selector


def _is_of_the_past(call: Call, limit: int) -> bool:
    """Whether Kubernetes reads this list from its store, not from its cache."""
    if call.text("continue") or call.text("resourceVersionMatch") == "Exact":
        return True
    is_exact = call.text("resourceVersion") not in ("", "0") and not call.text("resourceVersionMatch")
    return is_exact and limit > 0
