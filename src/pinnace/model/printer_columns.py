"""The cells of printer columns: the first value that a JSONPath finds, by the type of the column.

The columns of a row share a number of steps. A path may find any number of values, and a definition may have any number
of columns; a row must not take longer than some milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from pinnace.model.jsonpath import CHARACTERS_PER_STEP, JsonPathError, Steps, compile_path, text_of
from pinnace.model.objects import Object
from pinnace.schema.golang.times import canonical_time

Cell = Callable[[Object, datetime], Any]
Since = Callable[[str, datetime], str]
"""Format the time since a moment, as kubectl does: 5m."""

MOST_STEPS_OF_ROW = 20_000
LONGEST_COLUMN_PATH = 1024
"""A column with a longer path is empty: it is not compiled."""
_STEPS_OF_CELL = 20
_SEARCHING = 5
_MULTIPLYING = 10_000


class RowSteps:
    """The steps of one row, which its columns share. The first column of a row begins it."""

    def __init__(self) -> None:
        self.steps = Steps(MOST_STEPS_OF_ROW)

    def begin(self) -> None:
        self.steps = Steps(MOST_STEPS_OF_ROW)


def column(path: str, type: str, *, since: Since, row: RowSteps | None = None) -> Cell:
    """Return a reader of a printer column of this type; it returns None for an empty cell.

    The path is compiled on first use. A row without steps left has only empty cells.
    """

    def cell(obj: Object, now: datetime) -> Any:
        steps = row.steps if row is not None else Steps(MOST_STEPS_OF_ROW)
        try:
            steps.spend(_STEPS_OF_CELL + len(path))
            values = compile_path(path)(obj, steps)
        except JsonPathError:
            return None
        value = _cell(type, values[0], now, since) if values else None
        if value.__class__ is str:
            steps.left -= len(value) // CHARACTERS_PER_STEP  # Printed already: it shortens the rest of the row.
        return value

    return cell if len(path) <= LONGEST_COLUMN_PATH else _empty


def _empty(obj: Object, now: datetime) -> None:
    return None


def column_weight(path: str) -> int:
    """Return how many fields a column passes in an object of usual size, roughly."""
    if ".." in path or "," in path:
        return _MULTIPLYING  # Each of them multiplies the values that the path has found before.
    return _SEARCHING if any(sign in path for sign in ("*", ":", "?")) else 1


def _cell(type: str, value: Any, now: datetime, since: Since) -> Any:
    match type:
        case "string":
            return "<no value>" if value is None else text_of(value)
        case "integer" if value.__class__ in (int, float):
            return int(value)
        case "number" if value.__class__ in (int, float):
            return int(value) if value.__class__ is float and value.is_integer() else value
        case "boolean" if value.__class__ is bool:
            return value
        case "date" if value.__class__ is str:
            try:
                return since("" if value == "null" else value and canonical_time(value), now)
            except ValueError:
                return "<invalid>"
    return None
