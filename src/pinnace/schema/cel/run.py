"""One evaluation of an expression."""

from __future__ import annotations

from collections.abc import Mapping
from time import thread_time
from typing import Any

from pinnace.process.work_slices import give_way
from pinnace.schema.cel.errors import CostExceeded, ExceedsInlineBudget

UNLIMITED = 2**63 - 1
_STEP = 1_000
"""The cost between two pauses: well under a millisecond of most functions, some of the slowest."""


class CelRun:
    """The variables of one or more evaluations, and their cost so far.

    Compiled expressions add to `cost`, and call `pause` when it exceeds `pause_at`.
    """

    __slots__ = ("_deadline", "_inline_seconds", "_limit", "cost", "pause_at", "variables")

    def __init__(
        self, variables: Mapping[str, Any], limit: int = UNLIMITED, *, inline_seconds: float | None = None
    ) -> None:
        """`inline_seconds`: how much CPU time a long evaluation may take on the event loop."""
        self.variables = variables
        self.cost = 0
        self._inline_seconds = inline_seconds
        self._deadline = 0.0
        self.limit = limit

    @property
    def limit(self) -> int:
        """The largest cost, from the beginning of the run."""
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._limit = limit
        self.pause_at = min(self.cost + _STEP, limit)

    def pause(self) -> None:
        """Let other work have its turn. Raise CostExceeded or ExceedsInlineBudget."""
        if self.cost > self._limit:
            raise CostExceeded
        if self._inline_seconds is not None:
            now = thread_time()
            self._deadline = self._deadline or now + self._inline_seconds
            if now > self._deadline:
                raise ExceedsInlineBudget
        give_way()
        self.pause_at = min(self.cost + _STEP, self._limit)
