"""Selects the objects of a stage, and reads numbers from them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pinnace.model.objects import Object
from pinnace.node.simulated.durations import parse_duration
from pinnace.node.simulated.kwok.cel import CelQuery
from pinnace.node.simulated.kwok.jq import Query


@dataclass(frozen=True, slots=True)
class StageRequirement:
    """A condition on the result of one expression."""

    query: Query | CelQuery
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, obj: Object) -> bool:
        values = self.query.run(obj)
        match self.operator:
            case "In":
                return any(_text(value) in self.values for value in values or ())
            case "NotIn":
                return not any(_text(value) in self.values for value in values or ())
            case "Exists":
                return bool(values)
            case _:
                return not values


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int) else None


@dataclass(frozen=True, slots=True)
class Selector:
    """Selects an object if labels, annotations and all requirements match."""

    labels: tuple[tuple[str, str], ...]
    annotations: tuple[tuple[str, str], ...]
    requirements: tuple[StageRequirement, ...]

    def matches(self, obj: Object) -> bool:
        metadata = obj["metadata"]
        return (
            _has(metadata.get("labels"), self.labels)
            and _has(metadata.get("annotations"), self.annotations)
            and all(requirement.matches(obj) for requirement in self.requirements)
        )


def _has(present: dict[str, str] | None, wanted: tuple[tuple[str, str], ...]) -> bool:
    return all((present or {}).get(name) == value for name, value in wanted)


@dataclass(frozen=True, slots=True)
class Amount:
    """A number that is written in the stage or read from the object."""

    stated: int | None = None
    query: Query | CelQuery | None = None

    def number(self, obj: Object) -> int | None:
        """Return a weight; None if the object's value is not a number."""
        values = (self.query.run(obj) or None) if self.query is not None else None
        if values is None:
            return self.stated
        text = str(values[0])
        return int(text) if text.removeprefix("-").isdecimal() and len(text) < 20 else None

    def seconds(self, obj: Object, now: datetime) -> float | None:
        """Return a delay, written in milliseconds, or read from the object as a duration or as a time to wait for."""
        values = (self.query.run(obj) or None) if self.query is not None else None
        if values is not None and isinstance(values[0], str):
            seconds = parse_duration(values[0])
            if seconds is not None:
                return seconds
            moment = _moment(values[0])
            if moment is not None:
                return (moment - now).total_seconds()
        return self.stated / 1000 if self.stated is not None else None


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
