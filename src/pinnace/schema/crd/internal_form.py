"""A schema in the form of Kubernetes' Go types. Two of its error messages contain that form instead of JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pinnace.schema.shape import Raw

_TEXTS = ("id", "$schema", "description", "type", "format", "title", "pattern")
_FLAGS = ("nullable", "exclusiveMaximum", "exclusiveMinimum", "uniqueItems")
_GO_NAMES = {"id": "ID", "$schema": "Schema", "$ref": "Ref"}


def internal_form(schema: Raw) -> dict[str, Any]:
    """Return every field of the schema, set or not, by its name in Go."""
    form: dict[str, Any] = {}
    for word in (*_TEXTS, *_FLAGS):
        form[_go_name(word)] = schema.get(word) or ("" if word in _TEXTS else False)
    for word in ("$ref", "default", "maximum", "minimum", "maxLength", "minLength", "maxItems", "minItems"):
        form[_go_name(word)] = schema.get(word)
    for word in ("multipleOf", "enum", "maxProperties", "minProperties", "required", "example"):
        form[_go_name(word)] = schema.get(word)
    for word in ("allOf", "oneOf", "anyOf"):
        form[_go_name(word)] = _each(schema.get(word))
    form["Not"] = _optional(schema.get("not"), internal_form)
    form["Items"] = _optional(schema.get("items"), _or_array)
    for word in ("properties", "patternProperties", "definitions"):
        form[_go_name(word)] = _optional(schema.get(word), _by_name)
    for word in ("additionalProperties", "additionalItems"):
        form[_go_name(word)] = _optional(schema.get(word), _or_bool)
    form["Dependencies"] = schema.get("dependencies")
    form["ExternalDocs"] = _optional(schema.get("externalDocs"), _documents)
    extensions = (
        "preserve-unknown-fields",
        "list-type",
        "map-type",
        "list-map-keys",
        "embedded-resource",
        "int-or-string",
    )
    names = ("XPreserveUnknownFields", "XListType", "XMapType", "XListMapKeys", "XEmbeddedResource", "XIntOrString")
    for word, name in zip(extensions, names, strict=True):
        is_flag = name in ("XEmbeddedResource", "XIntOrString")
        form[name] = schema.get(f"x-kubernetes-{word}", False if is_flag else None)
    form["XValidations"] = _optional(
        schema.get("x-kubernetes-validations"), lambda rules: [rule_form(rule) for rule in rules]
    )
    return {name: form[name] for name in _ORDER}


_ORDER = (
    *("ID", "Schema", "Ref", "Description", "Type", "Nullable", "Format", "Title", "Default", "Maximum"),
    *("ExclusiveMaximum", "Minimum", "ExclusiveMinimum", "MaxLength", "MinLength", "Pattern", "MaxItems", "MinItems"),
    *("UniqueItems", "MultipleOf", "Enum", "MaxProperties", "MinProperties", "Required", "Items", "AllOf", "OneOf"),
    *("AnyOf", "Not", "Properties", "AdditionalProperties", "PatternProperties", "Dependencies", "AdditionalItems"),
    *("Definitions", "ExternalDocs", "Example", "XPreserveUnknownFields", "XEmbeddedResource", "XIntOrString"),
    *("XListMapKeys", "XListType", "XMapType", "XValidations"),
)


def _go_name(word: str) -> str:
    return _GO_NAMES.get(word) or word[0].upper() + word[1:]


def _optional(value: Any, form: Callable[[Any], Any]) -> Any:
    return None if value is None else form(value)


def _each(schemas: Any) -> Any:
    return None if schemas is None else [internal_form(schema) for schema in schemas]


def _by_name(schemas: Raw) -> dict[str, Any]:
    return {name: internal_form(schema) for name, schema in sorted(schemas.items())}


def _or_array(items: Any) -> dict[str, Any]:
    if isinstance(items, Mapping):
        return {"Schema": internal_form(items), "JSONSchemas": None}
    return {"Schema": None, "JSONSchemas": _each(items)}


def _or_bool(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {"Allows": True, "Schema": internal_form(value)}
    return {"Allows": bool(value), "Schema": None}


def _documents(documents: Raw) -> dict[str, Any]:
    return {"Description": documents.get("description", ""), "URL": documents.get("url", "")}


def rule_form(rule: Raw) -> dict[str, Any]:
    """Return a rule of x-kubernetes-validations in the form of its Go type."""
    return {
        "Rule": rule.get("rule", ""),
        "Message": rule.get("message", ""),
        "MessageExpression": rule.get("messageExpression", ""),
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath", ""),
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }
