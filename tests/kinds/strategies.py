"""The strategy of each built-in kind, by the name of the kind."""

from __future__ import annotations

from pinnace.kinds.catalog import ROWS
from pinnace.model.resources import Strategy

STRATEGIES: dict[str, Strategy] = {row.name: row.strategy for row in ROWS}
