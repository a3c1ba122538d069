"""Prints the Tables that a server answers with, as kubectl prints them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pinnace.cli.kubectl.alignment import Rows
from pinnace.cli.kubectl.resource_types import qualified
from pinnace.client.mapping import ServedKind
from pinnace.model.objects import Object

ACCEPT = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """How much of a Table is shown."""

    wide: bool = False
    headers: bool = True
    namespaces: bool = False
    kinds: bool = False
    labels: bool = False
    label_columns: tuple[str, ...] = ()


@dataclass(slots=True)
class TablePrinter:
    """Prints the rows of one kind below each other, the titles once."""

    served: ServedKind
    options: TableOptions
    write: Callable[[str], object]
    _rows: Rows = field(default_factory=Rows)
    _columns: list[Object] = field(default_factory=list)
    _has_titles: bool = False

    def print(self, *tables: Object, event: str = "") -> None:
        """Print Tables, or the row of a watch event, which repeats no column definitions."""
        lines = [line for table in tables for line in self._lines(table, event)]
        if lines:
            self.write(self._rows.format(lines))

    def _lines(self, table: Object, event: str) -> list[list[str]]:
        if table.get("kind") != "Table":
            table = _plain_table(table)
        columns = table.get("columnDefinitions") or self._columns
        if columns != self._columns:
            self._columns, self._has_titles = columns, False
        rows = table.get("rows") or ()
        if not rows:
            return []
        visible = [place for place, column in enumerate(columns) if self.options.wide or not column.get("priority")]
        lines = []
        if self.options.headers and not self._has_titles:
            lines.append(self._titles([columns[place]["name"].upper() for place in visible], event))
            self._has_titles = True
        return lines + [self._line(row, visible, event) for row in rows]

    def _titles(self, titles: list[str], event: str) -> list[str]:
        before = [*(["EVENT"] if event else []), *(["NAMESPACE"] if self.options.namespaces else [])]
        after = [label.rpartition("/")[2].upper() for label in self.options.label_columns]
        return [*before, *titles, *after, *(["LABELS"] if self.options.labels else [])]

    def _line(self, row: Object, visible: list[int], event: str) -> list[str]:
        metadata = (row.get("object") or {}).get("metadata") or {}
        labels = metadata.get("labels") or {}
        cells = row.get("cells") or ()
        line = [_cell(cells[place]) if place < len(cells) else "" for place in visible]
        if self.options.kinds:
            named = next((place for place, number in enumerate(visible) if _is_name(self._columns[number])), None)
            if named is not None:
                line[named] = f"{qualified(self.served)}/{line[named]}"
        if self.options.namespaces:
            line.insert(0, metadata.get("namespace") or "")
        if event:
            line.insert(0, event)
        line += [labels.get(label, "") for label in self.options.label_columns]
        if self.options.labels:
            line.append(",".join(f"{key}={labels[key]}" for key in sorted(labels)) or "<none>")
        return line


def _is_name(column: Object) -> bool:
    return column.get("format") == "name" and column.get("type") == "string"


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case str():
            first = value
            for ending in "\f\n\r":
                first = first.partition(ending)[0]
            return _harmless(first) + ("..." if len(first) < len(value) else "")
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(int(value)) if value == int(value) else str(value)
    return json.dumps(value)


def _harmless(text: str) -> str:
    """Remove control characters, which terminals would execute."""
    return text.replace("\x1b", "^[").replace("\r", "\\r")


def _plain_table(obj: Object) -> Object:
    """Return a Table of names and ages, for servers that have no Table."""
    items: Iterable[Object] = obj.get("items", [obj])
    columns = [
        {"name": "Name", "type": "string", "format": "name", "priority": 0},
        {"name": "Age", "type": "string", "priority": 0},
    ]
    rows = [
        {"cells": [item["metadata"]["name"], item["metadata"].get("creationTimestamp", "<unknown>")], "object": item}
        for item in items
    ]
    return {"kind": "Table", "columnDefinitions": columns, "rows": rows}
