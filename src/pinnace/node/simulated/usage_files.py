"""Files with the recorded usage of simulated pods: rows of a time, a label selector and amounts."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pinnace.model import errors, quantity, selectors
from pinnace.model.selectors import LabelSelector
from pinnace.node.simulated.stages import InvalidUsage

_COLUMNS = ("time", "pods", "namespace", "container", "cpu", "memory")
RESOURCES = ("cpu", "memory")
SHARED = "/pods"
"""Ends an amount that the selected pods share: 12/pods."""


@dataclass(frozen=True, slots=True)
class UsageRow:
    """From `at` on, each container with this name (all if empty) of the selected pods uses these amounts."""

    at: float | datetime
    pods: LabelSelector
    namespace: str
    container: str
    amounts: Mapping[str, str]
    """By resource: an amount (250m), a share of the request (80%), or an amount for all pods together (12/pods)."""

    @property
    def series(self) -> tuple[str, str, str]:
        """Rows of one series follow each other; the last one before now counts."""
        return str(self.pods), self.namespace, self.container

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return self.namespace in ("", namespace) and self.pods.matches(labels)


def read_usage(path: Path) -> list[UsageRow]:
    """Return the rows of a CSV file with a heading. Raise InvalidUsage."""
    try:
        with path.open(newline="") as file:
            rows = csv.DictReader(file, skipinitialspace=True)
            names = rows.fieldnames or []
            if not {"time", "pods"} <= set(names) or not set(names) <= set(_COLUMNS):
                expected, line = ", ".join(_COLUMNS[2:]), ",".join(names)
                raise InvalidUsage(
                    f"{path}: expected a first line with time, pods and any of {expected}, found {line!r}"
                )
            parsed = [_row(f"{path}:{rows.line_num}", row) for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidUsage(f"{path} cannot be read: {error}") from None
    if not parsed:
        raise InvalidUsage(f"{path} has no rows; write a time, a label selector of pods, and cpu or memory in each")
    return parsed


def _row(place: str, row: Mapping[str, str]) -> UsageRow:
    texts = {name: (text or "").strip() for name, text in row.items() if name is not None}
    if None in row:
        raise InvalidUsage(f"{place}: more values than columns; quote a selector that has a comma")
    try:
        at = _moment(texts["time"])
    except ValueError:
        given = texts["time"]
        raise InvalidUsage(
            f"{place}: expected seconds or a time such as 2026-01-31T12:00:00Z, found {given!r}"
        ) from None
    try:
        pods = selectors.label_selector(texts["pods"])
    except errors.BadRequest as error:
        raise InvalidUsage(f"{place}: pods is no label selector: {error}") from None
    amounts = {name: texts[name] for name in RESOURCES if texts.get(name)}
    for name, text in amounts.items():
        try:
            quantity.parse(text.removesuffix(SHARED).removesuffix("%"))
        except quantity.InvalidQuantity:
            raise InvalidUsage(f"{place}: expected {name} such as 250m, 80% or 12/pods, found {text!r}") from None
    return UsageRow(at, pods, texts.get("namespace", ""), texts.get("container", ""), amounts)


def _moment(text: str) -> float | datetime:
    try:
        return float(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
