"""The parts of all descriptions: indented lines, labels, annotations, events."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from pinnace.cli.kubectl.alignment import align_columns
from pinnace.cli.kubectl.formats import format_value
from pinnace.kinds.cells import format_duration
from pinnace.model.objects import Object
from pinnace.model.patches.last_applied import LAST_APPLIED

NONE, UNSET = "<none>", "<unset>"
_LONG_ANNOTATION = 140
_ACRONYMS = frozenset(("API", "URL", "UID", "GUID"))
_RUNS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|-+|[^A-Za-z-]+|[A-Z]")


class Description:
    """Text that grows line by line. A tab ends a cell; cells below each other are aligned."""

    def __init__(self) -> None:
        self._text: list[str] = []

    def line(self, text: str = "", level: int = 0) -> None:
        self._text.append("  " * level + text + "\n")

    def pair(self, title: str, value: object, level: int = 0) -> None:
        self.line(f"{title}:\t{value}", level)

    def pairs(self, *pairs: tuple[str, object], level: int = 0) -> None:
        """Write the pairs that have a value."""
        for title, value in pairs:
            if value is not None:
                self.pair(title, value if isinstance(value, str) else format_value(value), level)

    def table(
        self, titles: Iterable[str], rows: Iterable[Iterable[object]], *, level: int = 1, rule: Iterable[str] = ()
    ) -> None:
        """Write underlined titles, and rows below them."""
        titles = list(titles)
        self.line("\t".join(titles), level)
        self.line("\t".join(rule or ("-" * len(title) for title in titles)), level)
        for row in rows:
            self.line("\t".join(map(str, row)), level)

    def listed(self, title: str, values: Iterable[str], *, indent: str = "") -> None:
        """Write a title and values below each other, or <none>."""
        lines = list(values) or [NONE]
        self.line(f"{indent}{title}:\t{lines[0]}")
        for value in lines[1:]:
            self.line(f"{indent}\t{value}")

    def labels(self, title: str, labels: Mapping[str, str] | None, *, indent: str = "") -> None:
        self.listed(title, (f"{key}={(labels or {})[key]}" for key in sorted(labels or {})), indent=indent)

    def annotations(self, title: str, annotations: Mapping[str, str] | None) -> None:
        lines: list[str] = []
        for key in sorted(annotations or {}):
            if key == LAST_APPLIED:
                continue
            value = (annotations or {})[key].removesuffix("\n")
            if len(value) + len(key) + 2 > _LONG_ANNOTATION or "\n" in value:
                lines += [f"{key}:", *(f"  {_shorten(line)}" for line in value.split("\n"))]
            else:
                lines.append(f"{key}: {value}")
        self.listed(title, lines)

    def events(self, events: list[Object] | None) -> None:
        if events is None:
            return
        if not events:
            self.pair("Events", NONE)
            return
        self.line("Events:")
        rule = ("----", "------", "----", "----", "-------")  # kubectl writes one too many below Age.
        rows = [_event_row(event) for event in sorted(events, key=_last_seen)]
        self.table(("Type", "Reason", "Age", "From", "Message"), rows, rule=rule)

    def __str__(self) -> str:
        return align_columns("".join(self._text), min_width=0, padding=2)


def heading(page: Description, obj: Object, *, namespaced: bool = True) -> None:
    """Write the lines with which most descriptions begin."""
    metadata = obj["metadata"]
    page.pair("Name", metadata["name"])
    if namespaced:
        page.pair("Namespace", metadata.get("namespace", ""))


def describe_labels(page: Description, obj: Object) -> None:
    page.labels("Labels", obj["metadata"].get("labels"))
    page.annotations("Annotations", obj["metadata"].get("annotations"))


def heading_with_labels(page: Description, obj: Object, *, namespaced: bool = True) -> None:
    heading(page, obj, namespaced=namespaced)
    describe_labels(page, obj)


def timed_conditions(page: Description, conditions: list[Object], first_time: str) -> None:
    """Write conditions with two times each; `first_time` is the title of the one before the last transition."""
    field = first_time[0].lower() + first_time[1:]
    rows = [
        (
            f"{condition['type']} ",
            f"{condition['status']} ",
            f"{long_time(condition.get(field))} ",
            f"{long_time(condition.get('lastTransitionTime'))} ",
            f"{condition.get('reason', '')} ",
            condition.get("message", ""),
        )
        for condition in conditions
    ]
    page.line("Conditions:")
    titles = ("Type", "Status", first_time, "LastTransitionTime", "Reason", "Message")
    page.table(titles, rows, rule=("----", "------", "-" * 17, "-" * 18, "------", "-------"))


def long_time(moment: str | None) -> str:
    """Return a time as in mail headers: Mon, 02 Jan 2006 15:04:05 +0000."""
    at = _moment(moment)
    return at.astimezone().strftime("%a, %d %b %Y %H:%M:%S %z") if at is not None else "Mon, 01 Jan 0001 00:00:00 +0000"


def created(obj: Object) -> str:
    """Return the creation time in Go's format: 2006-01-02 15:04:05 +0000 UTC."""
    at = _moment(obj["metadata"].get("creationTimestamp"))
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S %z %Z") if at is not None else "<nil>"


def since(moment: str | None) -> str:
    at = _moment(moment)
    return format_duration((datetime.now(UTC) - at).total_seconds()) if at is not None else "<unknown>"


def controller_of(obj: Object) -> Object | None:
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            controller: Object = owner
            return controller
    return None


def describe_controller(page: Description, obj: Object) -> None:
    owner = controller_of(obj)
    if owner is not None:
        page.pair("Controlled By", f"{owner['kind']}/{owner['name']}")


def generic(obj: Object, events: list[Object] | None) -> str:
    """Describe an object of any kind: every field, with a title made from its name."""
    page = Description()
    heading_with_labels(page, obj)
    metadata = {
        key: value
        for key, value in obj["metadata"].items()
        if key not in ("name", "namespace", "labels", "annotations", "managedFields")
    }
    _fields(page, {**obj, "metadata": metadata}, 0)
    page.events(events)
    return str(page)


def _fields(page: Description, content: Object, level: int) -> None:
    for name in sorted(content):
        value, title = content[name], title_of(name)
        if isinstance(value, dict):
            page.line(f"{title}:", level)
            _fields(page, value, level + 1)
        elif isinstance(value, list):
            page.line(f"{title}:", level)
            for item in value:
                if isinstance(item, dict):
                    _fields(page, item, level + 1)
                else:
                    page.line(format_value(item), level + 1)
        else:
            page.line(f"{title}:\t{format_value(value)}", level)


def title_of(field: str) -> str:
    """Return the words of a field's name: apiVersion becomes API Version."""
    if not all(character.isalpha() or character == "-" for character in field):
        return field
    parts: list[str] = []
    runs: list[str] = _RUNS.findall(field)
    while runs:
        run = runs.pop(0)
        if len(run) > 1 and run.isupper() and runs and runs[0][:1].isupper():
            run += runs.pop(0)
        if run.upper() in _ACRONYMS:
            run = run.upper()
        elif run.islower():
            run = run.capitalize()
        parts.append(run)
    return " ".join(parts)


def _event_row(event: Object) -> tuple[str, ...]:
    first = since(event.get("eventTime") or event.get("firstTimestamp"))
    series = event.get("series")
    if series:
        age = f"{since(series.get('lastObservedTime'))} (x{series.get('count', 0)} over {first})"
    elif (event.get("count") or 0) > 1:
        age = f"{since(event.get('lastTimestamp'))} (x{event['count']} over {first})"
    else:
        age = first
    source = (event.get("source") or {}).get("component") or event.get("reportingComponent") or ""
    message = (event.get("message") or "").strip()
    at = (event.get("involvedObject") or {}).get("fieldPath")
    text = f"{at}: {message}" if at else message
    return event.get("type", ""), event.get("reason", ""), age, source, text


def _last_seen(event: Object) -> str:
    series = event.get("series") or {}
    seen = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or ""
    return str(seen)


def _moment(moment: str | None) -> datetime | None:
    return datetime.fromisoformat(moment) if moment else None


def _shorten(text: str) -> str:
    return text if len(text) <= _LONG_ANNOTATION - 2 else text[: _LONG_ANNOTATION - 2] + "..."


def yes(value: Any) -> str:
    return "True" if value else "False"
