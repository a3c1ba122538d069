"""Validate the schema of a CustomResourceDefinition. All errors are reported, with Kubernetes' paths and messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pinnace.process.work_slices import give_way
from pinnace.schema import field_errors
from pinnace.schema.crd.default_validation import DefaultErrors, no_rules, validate_defaults
from pinnace.schema.crd.field_paths import place_of
from pinnace.schema.crd.internal_form import internal_form
from pinnace.schema.crd.prune_and_default import META_FIELDS
from pinnace.schema.crd.structural import find_unsupported, validate_structural
from pinnace.schema.field_errors import FieldError, go_json
from pinnace.schema.shape import Raw
from pinnace.schema.validation.embedded import MetadataErrors, accept_anything
from pinnace.schema.validation.formats import effective_format

TYPES = ("array", "boolean", "integer", "number", "object", "string")
REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")

_AT_A_ROOT_WITH_STATUS = (
    *("description", "type", "format", "title", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum"),
    *("maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "multipleOf", "required", "items"),
    *("properties", "externalDocs", "example", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations"),
)
_BEFORE_THE_TYPE = frozenset(("id", "$schema", "$ref"))
_NOT_SUPPORTED = ("patternProperties", "definitions", "dependencies", "$ref")
_NEW_LINE = re.compile(r"[\n\r]")


@dataclass(frozen=True, kw_only=True)
class Strictness:
    """The rules that apply. An update may break a rule that the stored definition breaks: see `strictness_after`."""

    wants_structure: bool = True
    wants_known_types: bool = True
    wants_pruned_defaults: bool = True
    wants_atomic_sets: bool = True
    wants_sound_keys: bool = True


class _Around(NamedTuple):
    """The context of a schema: the schemas around it."""

    strictness: Strictness
    no_default_why: str = ""
    is_inside_meta: bool = False


def validate_schema(
    schema: Raw,
    path: str,
    *,
    has_status: bool = False,
    strictness: Strictness = Strictness(),
    validate_metadata: MetadataErrors = accept_anything,
    validate_rule: DefaultErrors = no_rules,
) -> list[FieldError]:
    """Return every error of a version's schema at `path`: spec.versions[0].schema.openAPIV3Schema.

    `has_status`: the version has the status subresource. `validate_rule` checks a default by its CEL rules. Of the
    rules themselves only the form is checked here.
    """
    errs: list[FieldError] = []
    if has_status:
        errs += _validate_root(schema, path)
    if schema.get("nullable"):
        errs.append(field_errors.forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    refused = ""
    if strictness.wants_structure:
        refused = find_unsupported(schema)
        if not refused:
            wants_pruned = strictness.wants_pruned_defaults
            errs += validate_structural(schema, path) or validate_defaults(
                schema,
                path,
                wants_pruned=wants_pruned,
                validate_metadata=validate_metadata,
                validate_rule=validate_rule,
            )
    errs += _errs(schema, path, _Around(strictness), is_root=True)
    if not errs and refused:
        errs.append(field_errors.invalid(path, "", refused))
    return errs


def strictness_after(old_schemas: list[Raw]) -> Strictness:
    """Return the rules that apply to an update of a definition whose stored versions have these schemas."""
    return Strictness(
        wants_structure=not any(find_unsupported(schema) or validate_structural(schema, "") for schema in old_schemas),
        wants_known_types=not _any(old_schemas, lambda node: (node.get("type") or "object") not in TYPES),
        wants_pruned_defaults=not any(_has_unpruned_defaults(schema) for schema in old_schemas),
        wants_atomic_sets=not _any(old_schemas, lambda node: any(True for _ in _validate_set(node, ""))),
        wants_sound_keys=not _any(old_schemas, lambda node: any(True for _ in _validate_key(node, ""))),
    )


def unknown_formats(schema: Raw) -> list[str]:
    """Yield the formats that Kubernetes does not check, each once, for a warning."""
    formats = (
        format
        for node in all_schemas(schema)
        if (format := node.get("format")) and not effective_format(node.get("type") or "", format)
    )
    return list(dict.fromkeys(formats))


def all_schemas(schema: Raw) -> Iterator[Raw]:
    """Yield the schema and all schemas below it."""
    yield schema
    for word in ("items", "not", "additionalProperties", "additionalItems"):
        if isinstance(child := schema.get(word), Mapping):
            yield from all_schemas(child)
    for word in ("allOf", "anyOf", "oneOf", "items"):
        if isinstance(options := schema.get(word), list):
            for option in options:
                yield from all_schemas(option)
    for word in ("properties", "patternProperties", "definitions", "dependencies"):
        for child in (schema.get(word) or {}).values():
            if isinstance(child, Mapping):
                yield from all_schemas(child)


def _any(schemas: list[Raw], is_so: Callable[[Raw], bool]) -> bool:
    return any(is_so(node) for schema in schemas for node in all_schemas(schema))


def _has_unpruned_defaults(schema: Raw) -> bool:
    if find_unsupported(schema) or validate_structural(schema, ""):
        return False
    pruned = "must not have unknown fields"
    return any(err.message.endswith(pruned) for err in validate_defaults(schema, "", wants_pruned=True))


def _validate_root(schema: Raw, path: str) -> Iterator[FieldError]:
    """With the status subresource, the root may only use words that hold for spec and status alike."""
    used = {word for word, value in schema.items() if value or (value is False and word.startswith("additional"))}
    wrong = used - set(_AT_A_ROOT_WITH_STATUS)
    type = schema.get("type")
    if type and type != "object" and not wrong & _BEFORE_THE_TYPE:
        detail = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
        yield field_errors.invalid(f"{path}.type", type, detail)
    elif wrong:
        allowed = " ".join(_go_name(word) for word in _AT_A_ROOT_WITH_STATUS)
        detail = f"only [{allowed}] fields are allowed at the root of the schema if the status subresource is enabled"
        yield _invalid_form(path, internal_form(schema), detail)


def _invalid_form(path: str, form: Any, detail: str) -> FieldError:
    return FieldError(path, "FieldValueInvalid", f"Invalid value: {go_json(form, sorts=False)}: {detail}")


def _go_name(word: str) -> str:
    parts = word.removeprefix("x-kubernetes-").split("-")
    name = "".join(part[0].upper() + part[1:] for part in parts)
    return f"X{name}" if word.startswith("x-kubernetes-") else name


def _errs(schema: Raw, path: str, around: _Around, *, is_root: bool = False) -> Iterator[FieldError]:
    give_way()
    yield from _validate_word(schema, path, around)
    if schema.get("uniqueItems"):
        detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield field_errors.forbidden(f"{path}.uniqueItems", detail)
    yield from _validate_inside(schema, path, around, is_root=is_root)
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        detail = "must be true or undefined"
        yield field_errors.invalid(f"{path}.x-kubernetes-preserve-unknown-fields", False, detail)
    yield from _validate_map_type(schema, path)
    yield from _validate_list_type(schema, path, around)
    if around.strictness.wants_sound_keys:
        yield from _validate_key(schema, path)
    for index, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        yield from _validate_rule(rule, schema, f"{path}.x-kubernetes-validations[{index}]")


def _validate_word(schema: Raw, path: str, around: _Around) -> Iterator[FieldError]:
    type, items = schema.get("type"), schema.get("items")
    if around.strictness.wants_known_types and type and type not in TYPES:
        yield field_errors.not_supported(f"{path}.type", type, TYPES)
    if schema.get("default") is not None and around.no_default_why:
        yield field_errors.forbidden(f"{path}.default", f"must not be set {around.no_default_why}")
    if schema.get("id"):
        yield field_errors.forbidden(f"{path}.id", "id is not supported")
    if schema.get("additionalItems") is not None:
        yield field_errors.forbidden(f"{path}.additionalItems", "additionalItems is not supported")
    for word in _NOT_SUPPORTED:
        value = schema.get(word)
        if value if word in ("patternProperties", "definitions") else value is not None:
            yield field_errors.forbidden(f"{path}.{word}", f"{word} is not supported")
    if type == "null":
        detail = "type cannot be set to null, use nullable as an alternative"
        yield field_errors.forbidden(f"{path}.type", detail)
    if isinstance(items, list) and items:
        yield field_errors.forbidden(f"{path}.items", "items must be a schema object and not an array")
    if around.is_inside_meta and schema.get("x-kubernetes-embedded-resource"):
        detail = "must not be used inside of resource meta"
        yield field_errors.forbidden(f"{path}.x-kubernetes-embedded-resource", detail)


def _validate_inside(schema: Raw, path: str, around: _Around, *, is_root: bool) -> Iterator[FieldError]:
    yield from _validate_additional(schema, path, around)
    is_object = is_root or bool(schema.get("x-kubernetes-embedded-resource"))
    for key, child in (schema.get("properties") or {}).items():
        below = around
        if is_object and key in META_FIELDS:
            why = f"in top-level {key}" if is_root else around.no_default_why
            below = around._replace(is_inside_meta=True, no_default_why=why)
        yield from _errs(child, f"{path}.properties[{key}]", below)
    for where, child in _other_children(schema):
        yield from _errs(child, f"{path}.{where}", around)


def _validate_additional(schema: Raw, path: str, around: _Around) -> Iterator[FieldError]:
    additional = schema.get("additionalProperties")
    if additional is None:
        return
    if schema.get("properties") and additional is not True:
        detail = "additionalProperties and properties are mutual exclusive"
        yield field_errors.forbidden(f"{path}.additionalProperties", detail)
    if isinstance(additional, Mapping):
        if around.is_inside_meta:
            around = around._replace(no_default_why="inside additionalProperties applying to object metadata")
        yield from _errs(additional, f"{path}.additionalProperties", around)


def _other_children(schema: Raw) -> Iterator[tuple[str, Raw]]:
    """Yield the schemas below this one that are no fields, each with its place, in Kubernetes' order."""
    if (refused := schema.get("not")) is not None:
        yield "not", refused
    for word in ("allOf", "oneOf", "anyOf"):
        for index, option in enumerate(schema.get(word) or ()):
            yield f"{word}[{index}]", option
    for key, child in (schema.get("definitions") or {}).items():
        yield f"definitions[{key}]", child
    items = schema.get("items")
    if isinstance(items, Mapping):
        yield "items", items
    for index, child in enumerate(items if isinstance(items, list) else ()):
        yield f"items[{index}]", child
    for key, child in (schema.get("dependencies") or {}).items():
        if isinstance(child, Mapping):
            yield f"dependencies[{key}]", child


def _validate_map_type(schema: Raw, path: str) -> Iterator[FieldError]:
    map_type = schema.get("x-kubernetes-map-type")
    if map_type is None:
        return
    yield from _validate_type(schema, path, "object", "x-kubernetes-map-type")
    if map_type not in ("atomic", "granular"):
        yield field_errors.not_supported(f"{path}.x-kubernetes-map-type", map_type, ("atomic", "granular"))


def _validate_type(schema: Raw, path: str, wanted: str, word: str) -> Iterator[FieldError]:
    type = schema.get("type") or ""
    if type != wanted:
        detail = f"must be {wanted} if {word} is specified"
        yield (
            field_errors.invalid(f"{path}.type", type, detail)
            if type
            else field_errors.required(f"{path}.type", detail)
        )


def _validate_list_type(schema: Raw, path: str, around: _Around) -> Iterator[FieldError]:
    list_type, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys") or []
    if list_type is not None and (schema.get("type") or "") != "array":
        yield from _validate_type(schema, path, "array", "x-kubernetes-list-type")
    elif around.strictness.wants_atomic_sets:
        yield from _validate_set(schema, path)
    if list_type is not None and list_type not in ("atomic", "set", "map"):
        yield field_errors.not_supported(f"{path}.x-kubernetes-list-type", list_type, ("atomic", "set", "map"))
    if keys and list_type != "map":
        detail = "must be map if x-kubernetes-list-map-keys is non-empty"
        where = f"{path}.x-kubernetes-list-type"
        yield (
            field_errors.required(where, detail)
            if list_type is None
            else field_errors.invalid(where, list_type, detail)
        )
    if list_type == "map":
        yield from _validate_map_list(schema, keys, path)


def _validate_set(schema: Raw, path: str) -> Iterator[FieldError]:
    items = schema.get("items")
    if schema.get("x-kubernetes-list-type") != "set" or not isinstance(items, Mapping):
        return
    detail = "must be atomic as item of a list with x-kubernetes-list-type=set"
    list_type = items.get("x-kubernetes-list-type")
    if items.get("type") == "array" and list_type not in (None, "atomic"):
        yield field_errors.invalid(f"{path}.items.x-kubernetes-list-type", list_type, detail)
    if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        yield field_errors.invalid(f"{path}.items.x-kubernetes-map-type", list_type, detail)


def _validate_map_list(schema: Raw, keys: list[str], path: str) -> Iterator[FieldError]:
    items, here = schema.get("items"), f"{path}.x-kubernetes-list-map-keys"
    if not keys:
        yield field_errors.required(here, "must not be empty if x-kubernetes-list-type is map")
    if items is None:
        yield field_errors.required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
    elif not isinstance(items, Mapping):
        detail = "must only have a single schema if x-kubernetes-list-type is map"
        yield _invalid_form(f"{path}.items", internal_form(schema)["Items"], detail)
    elif (item_type := items.get("type") or "") != "object":
        detail = "must be object if parent array's x-kubernetes-list-type is map"
        yield field_errors.invalid(f"{path}.items.type", item_type, detail)
    else:
        properties: Raw = items.get("properties") or {}
        for index, key in enumerate(keys):
            if key not in properties:
                yield field_errors.invalid(here, keys, "entries must all be names of item properties")
            elif properties[key].get("type") in ("array", "object"):
                detail = "must be a scalar type if parent array's x-kubernetes-list-type is map"
                yield field_errors.invalid(f"{path}.items.properties[{key}].type", "object", detail)
            if key in keys[:index]:
                yield field_errors.invalid(here, keys, "must not contain duplicate entries")


def _validate_key(schema: Raw, path: str) -> Iterator[FieldError]:
    """Items of a set or map must not be nullable; the keys of a map's items must be required or have a default."""
    items, list_type = schema.get("items"), schema.get("x-kubernetes-list-type")
    if not isinstance(items, Mapping) or list_type not in ("set", "map"):
        return
    if items.get("nullable"):
        detail = f"cannot be nullable when x-kubernetes-list-type is {list_type}"
        yield field_errors.forbidden(f"{path}.items.nullable", detail)
    if list_type == "set":
        return
    properties: Raw = items.get("properties") or {}
    is_required = frozenset(items.get("required") or ())
    for key in schema.get("x-kubernetes-list-map-keys") or ():
        if key not in properties:
            continue
        here, known = f"{path}.items.properties[{key}]", "this property is in x-kubernetes-list-map-keys, so it"
        if key not in is_required and properties[key].get("default") is None:
            yield field_errors.required(f"{here}.default", f"{known} must have a default or be a required property")
        if properties[key].get("nullable"):
            yield field_errors.forbidden(f"{here}.nullable", f"{known} cannot be nullable")


def _validate_rule(rule: Raw, schema: Raw, path: str) -> Iterator[FieldError]:
    """Check the form of a CEL rule. The CEL compiler checks its expressions."""
    text, message = (rule.get("rule") or "").strip(), rule.get("message") or ""
    if not text:
        yield field_errors.required(f"{path}.rule", "rule is not specified")
    elif message and not message.strip():
        yield field_errors.invalid(f"{path}.message", message, "must be non-empty if specified")
    elif _NEW_LINE.search(message.strip()):
        yield field_errors.invalid(f"{path}.message", message, "must not contain line breaks")
    elif _NEW_LINE.search(text) and not message:
        yield field_errors.required(f"{path}.message", "message must be specified if rule contains line breaks")
    expression = rule.get("messageExpression") or ""
    if expression and not expression.strip():
        detail = "messageExpression must be non-empty if specified"
        yield field_errors.required(f"{path}.messageExpression", detail)
    if (reason := rule.get("reason")) is not None and reason not in REASONS:
        yield field_errors.not_supported(f"{path}.reason", reason, REASONS)
    field = rule.get("fieldPath") or ""
    if field and not field.strip():
        yield field_errors.invalid(f"{path}.fieldPath", field, "must be non-empty if specified")
    if _NEW_LINE.search(field):
        yield field_errors.invalid(f"{path}.fieldPath", field, "must not contain line breaks")
    if field and not find_unsupported(schema):
        try:
            place_of(field, schema)
        except ValueError:
            yield field_errors.invalid(f"{path}.fieldPath", field, "must be a valid path")
