"""Events of both APIs: their conversion, defaults and validation, loose in the core group, strict in events.k8s.io/v1.

They are the same objects with different field names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from pinnace.kinds import older_schemas
from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.validation.fields import validate_immutable, validate_name
from pinnace.kinds.volumes.sources import OBJECT_REFERENCE
from pinnace.model import names
from pinnace.model.field_errors import FieldError, invalid, required
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy
from pinnace.schema.shape import Schema

CORE_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
    "reportingController": "reportingComponent",
}
NEW_NAMES = {core: new for new, core in CORE_NAMES.items()}


def to_core(event: Object) -> Object:
    core = {CORE_NAMES.get(name, name): value for name, value in event.items()}
    # A core event always has these.
    core.setdefault("involvedObject", {})
    core.setdefault("reportingComponent", "")
    core.setdefault("reportingInstance", "")
    core.setdefault("source", {})
    core.setdefault("firstTimestamp", None)
    core.setdefault("lastTimestamp", None)
    core.setdefault("eventTime", None)
    return core


def from_core(event: Object) -> Object:
    new = {NEW_NAMES.get(name, name): value for name, value in event.items()}
    new.setdefault("eventTime", None)
    for name in ("reportingController", "reportingInstance"):
        if not new.get(name):
            new.pop(name, None)
    return new


def new_shape(schema: Schema) -> Schema:
    """Return the schema of a beta event, from the core one."""
    for new, core in CORE_NAMES.items():
        schema = older_schemas.at(schema, "", older_schemas.renamed(new, core))
    return older_schemas.at(schema, "", older_schemas.optional("regarding"))


STRICT_VERSION = "events.k8s.io/v1"
MISPLACED = "does not match event.namespace"
MOST_NOTE_BYTES = 1024
MOST_WORD_BYTES = 128

_SOURCE = GoStruct("Component='' Host=''")
_ALWAYS_THERE: tuple[tuple[str, object], ...] = (
    ("involvedObject", {}),
    ("source", {}),
    ("firstTimestamp", None),
    ("lastTimestamp", None),
    ("eventTime", None),
    ("reportingComponent", ""),
    ("reportingInstance", ""),
)


class _Event:
    """The fields of an event by their core names, through either API."""

    def __init__(self, event: Object) -> None:
        self._event = event
        self.namespace: str = event.get("metadata", {}).get("namespace", "")

    def text(self, field: str) -> str:
        return str(self.part(field) or "")

    def part(self, field: str) -> object:
        value = self._event.get(field)
        return value if value is not None else self._event.get(NEW_NAMES.get(field, field))

    def structure(self, field: str) -> Object:
        value = self.part(field)
        return value if isinstance(value, dict) else {}


def _validate_event(new: Object, old: Object | None) -> Iterator[FieldError]:
    """Validate an event. Its `apiVersion` decides how strictly."""
    event = _Event(new)
    version = new.get("apiVersion", "v1")
    yield from _validate_loose(event, controller="reportingComponent" if version == "v1" else "reportingController")
    if version == STRICT_VERSION:
        if old is None and (name := new["metadata"].get("name")):
            yield from validate_name(name, names.dns_subdomain, "metadata.name")
        yield from _validate_strict(event) if old is None else _validate_strict_update(event, _Event(old))


def _validate_loose(event: _Event, *, controller: str) -> Iterator[FieldError]:
    about = event.structure("involvedObject").get("namespace", "")
    if not event.part("eventTime"):
        if (not about and event.namespace not in ("", "default")) or (about and about != event.namespace):
            yield invalid("involvedObject.namespace", about, MISPLACED)
    else:
        if not about and event.namespace not in ("default", "kube-system"):
            yield invalid("involvedObject.namespace", about, MISPLACED)
        if not event.text("reportingComponent"):
            yield required(controller)
        yield from validate_name(event.text("reportingComponent"), names.qualified_name, controller)
        for field in ("reportingInstance", "action", "reason"):
            if not event.text(field):
                yield required(field)
            if len(event.text(field).encode()) > MOST_WORD_BYTES:
                yield invalid(field, "", f"can have at most {MOST_WORD_BYTES} characters")
        if len(event.text("message").encode()) > MOST_NOTE_BYTES:
            yield invalid("message", "", f"can have at most {MOST_NOTE_BYTES} characters")
    yield from validate_name(event.namespace, names.dns_subdomain, "namespace")


def _validate_strict(event: _Event) -> Iterator[FieldError]:
    yield from _validate_series(event)
    if not event.part("eventTime"):
        yield required("eventTime")
    if event.text("type") not in ("Normal", "Warning"):
        yield invalid("type", "", f"has invalid value: {event.text('type')}")
    for field in ("firstTimestamp", "lastTimestamp", "count"):
        if event.part(field):
            yield invalid(field, "", "needs to be unset")
    if any(event.structure("source").values()):
        yield invalid("source", "", "needs to be unset")


def _validate_series(event: _Event) -> Iterator[FieldError]:
    if event.part("series") is not None:
        series = event.structure("series")
        if series.get("count", 0) < 2:
            yield invalid("series.count", "", "should be at least 2")
        if not series.get("lastObservedTime"):
            yield required("series.lastObservedTime")


def _validate_strict_update(event: _Event, old: _Event) -> Iterator[FieldError]:
    if event.part("series") != old.part("series"):
        yield from _validate_series(event)
    yield from validate_immutable(
        event.structure("involvedObject"),
        old.structure("involvedObject"),
        "involvedObject",
        view_of=OBJECT_REFERENCE.view,
    )
    for field in ("reason", "message"):
        yield from validate_immutable(event.text(field), old.text(field), field)
    yield from validate_immutable(event.structure("source"), old.structure("source"), "source", view_of=_SOURCE.view)
    for field in ("firstTimestamp", "lastTimestamp"):
        yield from validate_immutable(event.part(field) or None, old.part(field) or None, field)
    yield from validate_immutable(event.part("count") or 0, old.part("count") or 0, "count")
    for field in ("reason", "type"):
        yield from validate_immutable(event.text(field), old.text(field), field)
    if _moment(event.text("eventTime")) != _moment(old.text("eventTime")):
        yield from validate_immutable(event.text("eventTime"), old.text("eventTime"), "eventTime")
    yield from validate_immutable(event.text("action"), old.text("action"), "action")
    yield from validate_immutable(
        event.part("related"), old.part("related"), "related", view_of=OBJECT_REFERENCE.view_or_none
    )
    yield from validate_immutable(
        event.text("reportingComponent"), old.text("reportingComponent"), "reportingController"
    )
    yield from validate_immutable(event.text("reportingInstance"), old.text("reportingInstance"), "reportingInstance")


def _moment(text: str) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _default_event(event: Object) -> None:
    """Set the fields that Kubernetes always writes."""
    is_core = event.get("apiVersion", "v1") == "v1" or "involvedObject" in event
    names_here: Mapping[str, str] = {} if is_core else NEW_NAMES
    for field, empty in _ALWAYS_THERE:
        event.setdefault(names_here.get(field, field), {} if empty == {} else empty)


EVENT = Strategy(
    default=_default_event,
    validate=_validate_event,
    qualified_finalizers=False,
    name_rule=names.path_segment,
    may_create_on_update=True,
    dependents="none",
)
