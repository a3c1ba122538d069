"""Fields without effect: a write loses those of features that are off, and warns of those that nothing acts on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from pinnace.kinds.feature_gates.gates import FeatureGates, guarded_fields
from pinnace.model.objects import Object
from pinnace.model.resources import Drop, Warn
from pinnace.schema.shape import Schema

_DEFINITION = "#/$defs/"
_NEVER_EMPTY = frozenset(("Lifecycle",))
"""The definitions whose objects Kubernetes drops when their last field was dropped."""


@dataclass(frozen=True, slots=True)
class _Labelled:
    label: str
    """The label of the field; empty if only fields below have one."""
    below: _LabelledFields
    is_map: bool
    """The value is a map, whose values have the fields below."""
    definition: str
    """The definition of the value, or of its items: PodSpec. Empty if it has none."""


_LabelledFields = Mapping[str, _Labelled]


@dataclass(frozen=True, slots=True)
class UnsupportedFields:
    """A line of unsupported_fields.txt: fields that nothing acts on, for one reason."""

    fields: tuple[str, ...]
    """Group, definition and field, in every version of the group: core.PodSpec.schedulingGroup."""
    reason: str


class InertFields:
    """The fields of one kind without effect. They are looked for at their first use: most kinds are never written."""

    def __init__(self, schema_of: Callable[[], Schema], gates: FeatureGates) -> None:
        self._schema_of = schema_of
        self._gates = gates

    @cached_property
    def drop(self) -> Drop | None:
        off = {field: gate for field, gate in guarded_fields().items() if not self._gates.is_on(gate)}
        fields = _find_labelled(self._schema_of(), off)
        return partial(_drop_disabled, fields) if fields else None

    @cached_property
    def warn(self) -> Warn | None:
        labels = {field: line.reason for line in unsupported_fields() for field in line.fields}
        fields = _find_labelled(self._schema_of(), labels)
        return partial(_warnings, fields) if fields else None


def _drop_disabled(fields: _LabelledFields, new: Object, old: Object | None) -> None:
    """Remove the fields of every feature that is off from `new`, unless `old` uses the feature already."""
    if not _has_labelled(fields, new):
        return
    used = set(_used_labels(fields, new))
    if used and old is not None:
        used -= set(_used_labels(fields, old))
    if used:
        _drop(fields, new, used)


def _drop(fields: _LabelledFields, value: Object, gates: set[str]) -> None:
    for name, field in fields.items():
        inner = value.get(name)
        if inner is None:
            continue
        if field.label in gates:
            del value[name]
        elif field.below:
            for part in _objects_below(inner, field):
                _drop(field.below, part, gates)
            if not inner and field.definition in _NEVER_EMPTY:
                del value[name]


@cache
def unsupported_fields() -> tuple[UnsupportedFields, ...]:
    text = Path(__file__).with_name("unsupported_fields.txt").read_text()
    return tuple(_parse(line) for line in text.splitlines() if not line.startswith("#"))


def _parse(line: str) -> UnsupportedFields:
    fields, _, reason = line.partition(": ")
    return UnsupportedFields(tuple(fields.split()), reason)


def _warnings(fields: _LabelledFields, new: Object) -> list[str]:
    """Return a warning for each reason, with the first field that has it."""
    if not _has_labelled(fields, new):
        return []
    return [
        f"{_first_path(fields, new, reason)}: has no effect in this cluster: {reason}"
        for reason in dict.fromkeys(_used_labels(fields, new))
    ]


def _first_path(fields: _LabelledFields, value: Object, label: str) -> str:
    """Return the path of the first field that is set and has a label; empty if there is none."""
    for name, field in fields.items():
        inner = value.get(name)
        if inner is None:
            continue
        if field.label == label:
            return name
        for place, part in _parts(inner, field) if field.below else ():
            if path := _first_path(field.below, part, label):
                return f"{name}{place}.{path}"
    return ""


def _parts(value: Any, field: _Labelled) -> Iterator[tuple[str, Object]]:
    """Yield the objects of a field, each with its place in it: [0], [key], or none."""
    if isinstance(value, list):
        yield from ((f"[{index}]", item) for index, item in enumerate(value) if isinstance(item, dict))
    elif field.is_map:
        yield from ((f"[{key}]", item) for key, item in value.items() if isinstance(item, dict))
    else:
        yield "", value


def _find_labelled(schema: Schema, labels: Mapping[str, str]) -> _LabelledFields:
    """Return the fields of a definition that have a label, and those that lead to some.

    `labels` has the label of each field by group, definition and field: "core.PodSpec.hostUsers".
    """
    return _labelled_below(schema, labels, {})


def _labelled_below(schema: Schema, labels: Mapping[str, str], known: dict[str, _LabelledFields]) -> _LabelledFields:
    if schema.name in known:
        return known[schema.name]
    known[schema.name] = {}  # A definition that contains itself has no labelled fields.
    group, name = _group_and_name(schema.name)
    fields: dict[str, _Labelled] = {}
    for field, shape in schema.raw.get("properties", {}).items():
        label = labels.get(f"{group}.{name}.{field}", "")
        reference, is_map = _reference(shape)
        below = _labelled_below(schema.resolve(reference), labels, known) if reference else {}
        if label or below:
            fields[field] = _Labelled(label, below, is_map, reference.rpartition(".")[2])
    known[schema.name] = fields
    return fields


def _group_and_name(definition: str) -> tuple[str, str]:
    """Return core and PodSpec for io.k8s.api.core.v1.PodSpec."""
    parts = definition.split(".")
    return (parts[-3], parts[-1]) if len(parts) > 3 else ("", definition)


def _reference(shape: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the definition of a field's value, or of the items of its list or map, and whether it is a map."""
    is_map = False
    while "$ref" not in shape:
        if shape.get("allOf"):
            shape = shape["allOf"][0]
        elif isinstance(inner := shape.get("items", shape.get("additionalProperties")), dict):
            is_map = is_map or "items" not in shape
            shape = inner
        else:
            return "", False
    return str(shape["$ref"]).removeprefix(_DEFINITION), is_map


def _objects_below(value: Any, field: _Labelled) -> list[Object]:
    """Return the objects of a field: its value, or those of its list or map."""
    if value.__class__ is not list:
        if not isinstance(value, dict):
            return []
        value = value.values() if field.is_map else (value,)
    return [item for item in value if isinstance(item, dict)]


def _used_labels(fields: _LabelledFields, value: Object) -> Iterator[str]:
    """Yield the label of each labelled field that is set."""
    for name, field in fields.items():
        inner = value.get(name)
        if inner is None:
            continue
        if field.label:
            yield field.label
        if field.below:
            for part in _objects_below(inner, field):
                yield from _used_labels(field.below, part)


def _has_labelled(fields: _LabelledFields, value: Object) -> bool:
    """Whether a labelled field is set. Most objects have none: look at no more than the keys that lead to some."""
    for name in fields.keys() & value.keys():
        field, inner = fields[name], value[name]
        if field.label and inner is not None:
            return True
        below = field.below
        for part in _objects_below(inner, field) if field.is_map else inner if isinstance(inner, list) else (inner,):
            if isinstance(part, dict) and not below.keys().isdisjoint(part) and _has_labelled(below, part):
                return True
    return False
