"""Validate the defaults in a schema by the schema itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import orjson

from pinnace.schema import field_errors as errs
from pinnace.schema.crd.prune_and_default import META_FIELDS, unknown_fields
from pinnace.schema.field_errors import FieldError
from pinnace.schema.shape import Raw
from pinnace.schema.validation.embedded import MetadataErrors, accept_anything, validate_embedded, validate_resource
from pinnace.schema.validation.explain import explain

DefaultErrors = Callable[[Raw, Any, str, bool], Iterable[FieldError]]
"""The errors of a default by the CEL rules. Arguments: schema, value, path, and whether the value is a whole object."""

_Surrounding = Callable[[Any], dict[str, Any]]
"""Build the object that contains a value."""


def no_rules(schema: Raw, value: Any, path: str, is_object: bool) -> Iterable[FieldError]:
    return ()


def validate_defaults(
    schema: Raw,
    path: str,
    *,
    wants_pruned: bool = True,
    validate_metadata: MetadataErrors = accept_anything,
    validate_rule: DefaultErrors = no_rules,
) -> list[FieldError]:
    """Return every error of every default of a structural schema."""
    check = _Check(wants_pruned, validate_metadata, validate_rule)
    return list(check.errs({**schema, "x-kubernetes-embedded-resource": True}, path, _an_object, is_meta=False))


class _Check:
    def __init__(self, wants_pruned: bool, validate_metadata: MetadataErrors, validate_rule: DefaultErrors) -> None:
        self._wants_pruned = wants_pruned
        self._validate_metadata = validate_metadata
        self._validate_rule = validate_rule

    def errs(self, schema: Raw, path: str, around: _Surrounding, *, is_meta: bool) -> Iterator[FieldError]:
        is_object = bool(schema.get("x-kubernetes-embedded-resource"))
        if is_object:
            is_meta, around = False, _an_object
        if schema.get("default") is not None:
            if is_meta:
                yield from self._inside_metadata(schema, f"{path}.default", around)
            else:
                yield from self._of_value(schema, f"{path}.default", is_object=is_object)
        if isinstance(items := schema.get("items"), Mapping):
            yield from self.errs(items, f"{path}.items", lambda value: around([value]), is_meta=is_meta)
        for key, child in (schema.get("properties") or {}).items():
            below = is_meta or (is_object and key in META_FIELDS)
            inside = _field(around, key)
            yield from self.errs(child, f"{path}.properties[{key}]", inside, is_meta=below)

    def _of_value(self, schema: Raw, path: str, *, is_object: bool) -> Iterator[FieldError]:
        value = schema["default"]
        if self._wants_pruned and unknown_fields(schema, value):
            yield errs.invalid(path, value, "must not have unknown fields")
        wrong = list(validate_embedded(schema, value, self._validate_metadata, path)) or _validate_value(
            schema, value, path
        )
        yield from wrong or self._validate_rule(schema, value, path, is_object)

    def _inside_metadata(self, schema: Raw, path: str, around: _Surrounding) -> Iterator[FieldError]:
        value = schema["default"]
        wrong = [str(err) for err in validate_resource(around(_copy(value)), "", self._validate_metadata)]
        if wrong:
            joined = wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]"
            yield errs.invalid(path, value, f"must result in valid metadata: {joined}")
            return
        invalid_values = _validate_value(schema, value, path)
        yield from invalid_values or self._validate_rule(schema, value, path, False)


def _validate_value(schema: Raw, value: Any, path: str) -> list[FieldError]:
    return explain(_of_any_type(schema), value, under=path)


def _of_any_type(schema: Raw) -> Raw:
    """Drop x-kubernetes-int-or-string: Kubernetes checks it for objects, but not for the default itself."""
    same = {word: stated for word, stated in schema.items() if word != "x-kubernetes-int-or-string"}
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
