"""Is every default in a schema a value that the schema itself would let in?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import orjson

from pinnace.schema import field_errors as faults
from pinnace.schema.field_errors import Fault
from pinnace.schema.shape import Raw
from pinnace.schema.validation.embedded import MetadataFaults, embedded_faults, nothing_wrong, resource_faults
from pinnace.schema.validation.explain import explain
from pinnace.schema.validation.prune_and_default import META_FIELDS, unknown_fields

DefaultFaults = Callable[[Raw, Any, str, bool], Iterable[tuple[str, str, str]]]
"""What the CEL rules say about a default: the schema, the value, where it stands, and whether it is a whole object."""

_Surrounding = Callable[[Any], dict[str, Any]]
"""Builds the object in which a value would stand."""


def no_rules(schema: Raw, value: Any, path: str, is_object: bool) -> Iterable[Fault]:
    return ()


def default_faults(
    schema: Raw,
    path: str,
    *,
    wants_pruned: bool = True,
    metadata_faults: MetadataFaults = nothing_wrong,
    rule_faults: DefaultFaults = no_rules,
) -> list[Fault]:
    """Every fault of every default of a structural schema."""
    check = _Check(wants_pruned, metadata_faults, rule_faults)
    return list(check.faults({**schema, "x-kubernetes-embedded-resource": True}, path, _an_object, is_meta=False))


class _Check:
    def __init__(self, wants_pruned: bool, metadata_faults: MetadataFaults, rule_faults: DefaultFaults) -> None:
        self._wants_pruned = wants_pruned
        self._metadata_faults = metadata_faults
        self._rule_faults = rule_faults

    def faults(self, schema: Raw, path: str, around: _Surrounding, *, is_meta: bool) -> Iterator[Fault]:
        is_object = bool(schema.get("x-kubernetes-embedded-resource"))
        if is_object:
            is_meta, around = False, _an_object
        if schema.get("default") is not None:
            if is_meta:
                yield from self._inside_metadata(schema, f"{path}.default", around)
            else:
                yield from self._of_value(schema, f"{path}.default", is_object=is_object)
        if isinstance(items := schema.get("items"), Mapping):
            yield from self.faults(items, f"{path}.items", lambda value: around([value]), is_meta=is_meta)
        for key, child in (schema.get("properties") or {}).items():
            below = is_meta or (is_object and key in META_FIELDS)
            inside = _field(around, key)
            yield from self.faults(child, f"{path}.properties[{key}]", inside, is_meta=below)

    def _of_value(self, schema: Raw, path: str, *, is_object: bool) -> Iterator[Fault]:
        value = schema["default"]
        if self._wants_pruned and unknown_fields(schema, value):
            yield faults.invalid(path, value, "must not have unknown fields")
        wrong = list(embedded_faults(schema, value, self._metadata_faults, path)) or _value_faults(schema, value, path)
        yield from wrong or (Fault(*fault) for fault in self._rule_faults(schema, value, path, is_object))

    def _inside_metadata(self, schema: Raw, path: str, around: _Surrounding) -> Iterator[Fault]:
        value = schema["default"]
        wrong = [str(fault) for fault in resource_faults(around(_copy(value)), "", self._metadata_faults)]
        if wrong:
            told = wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]"
            yield faults.invalid(path, value, f"must result in valid metadata: {told}")
            return
        found = _value_faults(schema, value, path)
        yield from found or (Fault(*fault) for fault in self._rule_faults(schema, value, path, False))


def _value_faults(schema: Raw, value: Any, path: str) -> list[Fault]:
    return explain(_of_any_type(schema), value, under=path)


def _of_any_type(schema: Raw) -> Raw:
    """Kubernetes does not hold a default to x-kubernetes-int-or-string; it does the objects that get the default."""
    same = {word: said for word, said in schema.items() if word != "x-kubernetes-int-or-string"}
    for word in ("items", "additionalProperties"):
        if isinstance(child := schema.get(word), Mapping):
            same[word] = _of_any_type(child)
    if properties := schema.get("properties"):
        same["properties"] = {key: _of_any_type(child) for key, child in properties.items()}
    return same


def _an_object(value: Any) -> dict[str, Any]:
    return {"apiVersion": "validation/v1", "kind": "Validation", **value}


def _field(around: _Surrounding, key: str) -> _Surrounding:
    return lambda value: around({key: value})


def _copy(value: Any) -> Any:
    return orjson.loads(orjson.dumps(value))
