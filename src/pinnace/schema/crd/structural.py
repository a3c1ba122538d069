"""Check that a schema is structural: the type of every field is stated outside of anyOf, oneOf, allOf and not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pinnace.process.work_slices import give_way
from pinnace.schema import field_errors
from pinnace.schema.field_errors import FieldError
from pinnace.schema.golang.patterns import PatternError, compile_pattern
from pinnace.schema.shape import Raw

JUNCTORS = ("anyOf", "allOf", "oneOf")
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_LEVELS = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}
_UNSUPPORTED = (
    ("id", "id"),
    ("$schema", "schema"),
    ("$ref", "$ref"),
    ("patternProperties", "patternProperties"),
    ("dependencies", "dependencies"),
    ("additionalItems", "additionalItems"),
    ("definitions", "definitions"),
)
_FORBIDDEN_INSIDE = (
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
)


class StructuralCondition(NamedTuple):
    """The condition NonStructuralSchema of a CustomResourceDefinition."""

    status: str
    reason: str
    message: str


def validate_structural(schema: Raw, path: str) -> list[FieldError]:
    """Return the errors that keep the schema from being structural, sorted by message.

    Call `find_unsupported` first: a schema that uses unsupported words is not checked.
    """
    errs = [*_invariants(schema, "root", path), *_completeness(schema, schema, path, path)]
    return sorted(errs, key=str)


def find_unsupported(schema: Raw) -> str:
    """Return a message about the first word in the schema that no structural schema may use; empty if there is none."""
    for word, keyword in _UNSUPPORTED:
        value = schema.get(word)
        if value is not None if word == "additionalItems" else value:
            return f"OpenAPIV3Schema '{keyword}' is not supported"
    if isinstance(schema.get("items"), list):
        return "OpenAPIV3Schema 'items' must be a schema, but is an array"
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        return "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"
    return next((why for child in children(schema) if (why := find_unsupported(child))), "")


def children(schema: Raw) -> Iterator[Raw]:
    """Yield the schemas directly below this one."""
    for word in ("not", "items", "additionalProperties"):
        if isinstance(child := schema.get(word), Mapping):
            yield child
    for word in JUNCTORS:
        yield from schema.get(word) or ()
    yield from (schema.get("properties") or {}).values()


def non_structural_condition(
    versions: Sequence[tuple[str, Raw | None]], *, preserves_unknown: bool
) -> StructuralCondition | None:
    """Return the condition of a definition with these versions (name, schema); None if all schemas are structural."""
    errs = []
    if preserves_unknown:
        errs.append(field_errors.invalid("spec.preserveUnknownFields", True, "must be false"))
    for index, (name, schema) in enumerate(versions):
        if schema is None:
            continue
        if why := find_unsupported(schema):
            message = f"failed to check validation schema for version {name}: {why}"
            return StructuralCondition("Unknown", "StructuralError", message)
        errs += validate_structural(schema, f"spec.versions[{index}].schema.openAPIV3Schema")
    if not errs:
        return None
    sentences = list(dict.fromkeys(map(str, errs)))
    message = sentences[0] if len(sentences) == 1 else f"[{', '.join(sentences)}]"
    return StructuralCondition("True", "Violations", message)


def _invariants(schema: Raw, level: str, path: str) -> Iterator[FieldError]:
    give_way()
    yield from _validate_children(schema, level, path)
    if schema.get("x-kubernetes-int-or-string"):
        detail = "must be false if x-kubernetes-int-or-string is true"
        for word in ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"):
            if schema.get(word):
                yield field_errors.invalid(f"{path}.{word}", True, detail)
    yield from _value_validation(schema, path, skips_any_of=_is_int_or_string(schema), skips_first=_starts_so(schema))
    yield from _validate_type(schema, level, path)
    properties: Raw = schema.get("properties") or {}
    is_embedded = bool(schema.get("x-kubernetes-embedded-resource"))
    if level == "root" or is_embedded:
        for key, wanted in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
            if key in properties and (stated := properties[key].get("type") or "") != wanted:
                yield field_errors.invalid(f"{path}.properties[{key}].type", stated, f"must be {wanted}")
    if level == "root" and "metadata" in properties and not _is_plain_metadata(properties["metadata"]):
        detail = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        yield field_errors.forbidden(f"{path}.properties[metadata]", detail)
    if is_embedded and not schema.get("x-kubernetes-preserve-unknown-fields") and not properties:
        detail = (
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        )
        yield field_errors.required(f"{path}.properties", detail)


def _validate_children(schema: Raw, level: str, path: str) -> Iterator[FieldError]:
    items, additional = schema.get("items"), schema.get("additionalProperties")
    if items is None and schema.get("type") == "array":
        yield field_errors.required(f"{path}.items", "must be specified")
    if isinstance(items, Mapping):
        yield from _invariants(items, "item", f"{path}.items")
    for key, child in (schema.get("properties") or {}).items():
        yield from _invariants(child, "field", f"{path}.properties[{key}]")
    if additional is not None and level == "root":
        yield field_errors.forbidden(f"{path}.additionalProperties", "must not be used at the root")
    if isinstance(additional, Mapping):
        yield from _invariants(additional, "field", f"{path}.additionalProperties")


def _validate_type(schema: Raw, level: str, path: str) -> Iterator[FieldError]:
    type = schema.get("type") or ""
    needs_no_type = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    is_embedded = bool(schema.get("x-kubernetes-embedded-resource"))
    if is_embedded and type != "object":
        detail = "must be object if x-kubernetes-embedded-resource is true"
        yield (
            field_errors.invalid(f"{path}.type", type, detail)
            if type
            else field_errors.required(f"{path}.type", detail)
        )
    elif not type and not needs_no_type:
        yield field_errors.required(f"{path}.type", _LEVELS[level])
    if is_embedded and schema.get("additionalProperties") is not None:
        detail = "must not be used if x-kubernetes-embedded-resource is set"
        yield field_errors.forbidden(f"{path}.additionalProperties", detail)
    if level == "root" and type and type != "object":
        yield field_errors.invalid(f"{path}.type", type, "must be object at the root")


def _is_plain_metadata(schema: Raw) -> bool:
    used = {word for word, value in schema.items() if value or word == "additionalProperties"} - {"type", "default"}
    properties = set(schema.get("properties") or ())
    return used <= {"properties"} and properties <= {"name", "generateName"}


def _stated_words(schema: Raw) -> dict[str, Any]:
    return {word: value for word, value in schema.items() if value}


def _is_int_or_string(schema: Raw) -> bool:
    return [_stated_words(option) for option in schema.get("anyOf") or ()] == _INT_OR_STRING


def _starts_so(schema: Raw) -> bool:
    return any(_is_int_or_string(option) for option in (schema.get("allOf") or ())[:1])


def _value_validation(
    schema: Raw, path: str, *, skips_any_of: bool = False, skips_first: bool = False
) -> Iterator[FieldError]:
    for word in JUNCTORS:
        if word == "anyOf" and skips_any_of:
            continue
        for index, option in enumerate(schema.get(word) or ()):
            is_pair = word == "allOf" and index == 0 and skips_first
            yield from _check_nested(option, f"{path}.{word}[{index}]", skips_any_of=is_pair)
    if (refused := schema.get("not")) is not None:
        yield from _check_nested(refused, f"{path}.not")
    if pattern := schema.get("pattern"):
        try:
            compile_pattern(pattern)
        except PatternError as err:
            detail = f"must be a valid regular expression, but isn't: {err}"
            yield field_errors.invalid(f"{path}.pattern", pattern, detail)


def _check_nested(schema: Raw, path: str, *, skips_any_of: bool = False) -> Iterator[FieldError]:
    """Inside anyOf, oneOf, allOf and not, only value validation is allowed: no types, defaults, list or map types."""
    yield from _value_validation(schema, path, skips_any_of=skips_any_of)
    if isinstance(items := schema.get("items"), Mapping):
        yield from _check_nested(items, f"{path}.items")
    properties: Raw = schema.get("properties") or {}
    for key, child in properties.items():
        yield from _check_nested(child, f"{path}.properties[{key}]")
    if schema.get("type"):
        yield field_errors.forbidden(f"{path}.type", "must be empty to be structural")
    if schema.get("additionalProperties") not in (None, False):
        yield field_errors.forbidden(f"{path}.additionalProperties", "must be undefined to be structural")
    for word, detail in _FORBIDDEN_INSIDE:
        value = schema.get(word)
        if value or (value is not None and word in ("default", "x-kubernetes-list-type", "x-kubernetes-map-type")):
            yield field_errors.forbidden(f"{path}.{word}", detail)
    if "metadata" in properties:
        yield field_errors.forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")


def _completeness(rules: Raw, schema: Raw, schema_path: str, path: str) -> Iterator[FieldError]:
    """Check that fields that are validated inside anyOf and the like are declared in the schema itself, with a type."""
    if (refused := rules.get("not")) is not None:
        yield from _is_specified(refused, schema, schema_path, f"{path}.not")
    for word in ("allOf", "anyOf", "oneOf"):
        for index, option in enumerate(rules.get(word) or ()):
            yield from _is_specified(option, schema, schema_path, f"{path}.{word}[{index}]")


def _is_specified(rules: Raw, schema: Raw | None, schema_path: str, path: str) -> Iterator[FieldError]:
    if schema is None:
        yield field_errors.required(schema_path, f"because it is defined in {path}")
        return
    yield from _completeness(rules, schema, schema_path, path)
    if isinstance(items := rules.get("items"), Mapping):
        known = schema.get("items")
        specified = known if isinstance(known, Mapping) else None
        yield from _is_specified(items, specified, f"{schema_path}.items", f"{path}.items")
    properties: Raw = schema.get("properties") or {}
    for key, child in (rules.get("properties") or {}).items():
        there, here = f"{schema_path}.properties[{key}]", f"{path}.properties[{key}]"
        yield from _is_specified(child, properties.get(key), there, here)
