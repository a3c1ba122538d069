"""Node labels as columns of codes: one integer per node and key, so that a requirement is a lookup table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pinnace.scheduler.state.arrays import At, Codes, Mask, grow
from pinnace.schema.golang.numbers import parse_int

_MOST_TABLES = 256


class LabelColumn:
    """The values of one label on all nodes. Nodes without the label have the code -1."""

    def __init__(self, capacity: int) -> None:
        self._codes: Codes = np.full(capacity, -1, dtype=np.int32)
        self.values: list[str] = []
        self._code_of: dict[str, int] = {}
        self._tables: dict[tuple[str, tuple[str, ...]], Mask] = {}

    def put(self, slot: int, value: str | None) -> None:
        if slot >= len(self._codes):
            self._codes = grow(self._codes, max(slot + 1, 2 * len(self._codes)), -1)
        self._codes[slot] = -1 if value is None else self._intern(value)

    def _intern(self, value: str) -> int:
        code = self._code_of.get(value)
        if code is None:
            code = self._code_of[value] = len(self.values)
            self.values.append(value)
        return code

    def codes(self, size: int) -> Codes:
        """Return the codes of the first `size` slots."""
        if size > len(self._codes):
            self._codes = grow(self._codes, size, -1)
        return self._codes[:size]

    def code_of(self, value: str) -> int:
        """Return the code of a value; -1 if no node has had it."""
        return self._code_of.get(value, -1)

    def table(self, operator: str, values: tuple[str, ...]) -> Mask:
        """Return whether each code meets a requirement. The last element is the answer for nodes without the label."""
        known = self._tables.get((operator, values))
        if known is not None and len(known) == len(self.values) + 1:
            return known
        if len(self._tables) >= _MOST_TABLES:
            self._tables.clear()
        made = self._tables[operator, values] = self._make(operator, values)
        return made

    def _make(self, operator: str, values: tuple[str, ...]) -> Mask:
        size = len(self.values)
        table = np.zeros(size + 1, dtype=np.bool_)
        match operator:
            case "In" | "NotIn":
                table[[code for value in values if (code := self.code_of(value)) >= 0]] = True
                return ~table if operator == "NotIn" else table
            case "Exists":
                table[:size] = True
            case "DoesNotExist":
                table[size] = True
            case "Gt" | "Lt":
                limit = parse_int(values[0]) if len(values) == 1 else None
                if limit is not None:
                    numbers = (parse_int(value) for value in self.values)
                    table[:size] = [
                        number is not None and (number > limit if operator == "Gt" else number < limit)
                        for number in numbers
                    ]
            case _:
                pass  # An unknown operator matches no node.
        return table


class LabelColumns:
    """The labels of all nodes. A column is built when its key is used first, and kept up to date from then on.

    Pods may name any number of keys: only those that a node has had are kept.
    """

    def __init__(self) -> None:
        self._labels: list[Mapping[str, str]] = []
        self._keys: set[str] = set()
        self._columns: dict[str, LabelColumn] = {}

    def put(self, slot: int, labels: Mapping[str, str]) -> None:
        while len(self._labels) <= slot:
            self._labels.append({})
        self._labels[slot] = labels
        self._keys.update(labels)
        for key, column in self._columns.items():
            column.put(slot, labels.get(key))

    def of(self, slot: int) -> Mapping[str, str]:
        return self._labels[slot]

    def column(self, key: str) -> LabelColumn:
        column = self._columns.get(key)
        if column is None:
            column = LabelColumn(max(16, len(self._labels)))
            if key not in self._keys:
                return column
            self._columns[key] = column
            for slot, labels in enumerate(self._labels):
                value = labels.get(key)
                if value is not None:
                    column.put(slot, value)
        return column

    def codes(self, key: str) -> Codes:
        return self.column(key).codes(len(self._labels))

    def match(self, key: str, operator: str, values: Sequence[str], at: At) -> Mask:
        """Return which of the nodes meet one requirement of a node selector."""
        column = self.column(key)
        table = column.table(operator, tuple(values))
        return table[column.codes(len(self._labels))[at]]

    def match_labels(self, labels: Mapping[str, str], at: At, size: int) -> Mask:
        """Return which of the nodes have all these labels."""
        matched = np.ones(size if isinstance(at, slice) else len(at), dtype=np.bool_)
        for key, value in labels.items():
            matched &= self.match(key, "In", (value,), at)
        return matched
