"""One evaluation of an expression."""

from __future__ import annotations

from typing import Any

from pinnace.schema.cel.errors import CostExceeded


class CelRun:
    """One evaluation: its variables, and its cost so far."""

    __slots__ = ("cost", "limit", "variables")

    def __init__(self, variables: dict[str, Any], limit: int | None) -> None:
        self.variables = variables
        self.limit = limit
        self.cost = 0

    def charge(self, cost: int) -> None:
        self.cost += cost
        if self.limit is not None and self.cost > self.limit:
            raise CostExceeded
