"""Validation of the versions of a custom resource definition: schemas, columns, scale and selectable fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from pinnace.model import names
from pinnace.model.field_errors import FieldError, duplicate, invalid, required, too_many
from pinnace.model.objects import NOTHING
from pinnace.model.typed_objects import (
    CustomResourceColumnDefinition,
    CustomResourceDefinition,
    CustomResourceDefinitionSpec,
    CustomResourceDefinitionVersion,
    CustomResourceSubresourceScale,
)
from pinnace.schema.crd.definition import Strictness, all_schemas, strictness_after, validate_schema
from pinnace.schema.crd.field_paths import place_of
from pinnace.schema.crd.internal_form import internal_form
from pinnace.schema.crd.structural import find_unsupported
from pinnace.schema.shape import Schema

READ_AS = "pinnace.dev/read-as"
"""An annotation of definitions that were written as this older version: its looser rules hold for them."""
MOST_SELECTABLE = 8
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_SHARED = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")
_ADDED_STRUCTURE = (
    "x-kubernetes-embedded-resource",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-validations",
)

Raw = Mapping[str, Any]


def is_old(definition: CustomResourceDefinition) -> bool:
    """Return whether the definition was written as v1beta1, whose schema rules are looser."""
    return READ_AS in (definition["metadata"].get("annotations") or {})


def schema_of(version: CustomResourceDefinitionVersion) -> Raw | None:
    """Return the schema of a version; None where it has none."""
    schema: Raw | None = (version.get("schema") or {}).get("openAPIV3Schema")
    return schema


def validate_versions(
    definition: CustomResourceDefinition,
    versions: Sequence[CustomResourceDefinitionVersion],
    before: CustomResourceDefinitionSpec | None,
) -> Iterator[FieldError]:
    shared = {
        field
        for field in _SHARED
        if versions and all(version.get(field) == versions[0].get(field) for version in versions)
    }
    strictness = _strictness(definition, before)
    for i, version in enumerate(versions):
        path = f"spec.versions[{i}]"
        if errs := names.dns1035_label(version.get("name", "")):
            yield invalid(f"{path}.name", version.get("name", ""), ",".join(errs))
        yield from _validate_deprecation(version, path)
        yield from _validate_version(version, path, set(_SHARED) - shared, strictness, before)
    version_names = [version.get("name", "") for version in versions]
    if len(set(version_names)) != len(version_names):
        yield _invalid_versions(versions, shared, "must contain unique version names")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        why = "must have exactly one version marked as storage version"
        is_missing = not versions and definition.get("spec", {}).get("versions") is None
        yield invalid("spec.versions", None, why) if is_missing else _invalid_versions(versions, shared, why)
    if versions and versions[0].get("name") and (errs := names.dns1035_label(versions[0]["name"])):
        yield invalid("spec.version", versions[0]["name"], ",".join(errs))
    if versions:
        # Kubernetes moves a value that all versions share to the top of the definition, and names that path.
        yield from _validate_version(versions[0], "spec", shared, strictness, before, at_top=True)


def _invalid_versions(versions: Sequence[CustomResourceDefinitionVersion], shared: set[str], detail: str) -> FieldError:
    """Return an error that prints the versions as Kubernetes does: without the fields that all share."""
    invalid_columns = []
    for version in versions:
        schema = None if "schema" in shared else schema_of(version)
        apart = {name: None if name in shared else version.get(name) for name in _SHARED[1:]}
        invalid_columns.append(
            {
                "Name": version.get("name", ""),
                "Served": bool(version.get("served")),
                "Storage": bool(version.get("storage")),
                "Deprecated": bool(version.get("deprecated")),
                "DeprecationWarning": version.get("deprecationWarning"),
                "Schema": None if schema is None else {"OpenAPIV3Schema": internal_form(schema)},
                "Subresources": apart["subresources"],
                "AdditionalPrinterColumns": apart["additionalPrinterColumns"],
                "SelectableFields": apart["selectableFields"],
            }
        )
    return invalid("spec.versions", invalid_columns, detail)


def _strictness(definition: CustomResourceDefinition, before: CustomResourceDefinitionSpec | None) -> Strictness:
    stored = [
        schema for version in (before or NOTHING).get("versions") or () if (schema := schema_of(version)) is not None
    ]
    strictness = strictness_after(stored) if stored else Strictness()
    spec = definition["spec"]
    if not spec.get("preserveUnknownFields"):
        return Strictness(**{**_fields(strictness), "wants_structure": True})
    if is_old(definition) and not any(
        word in node
        for version in spec.get("versions") or ()
        if (schema := schema_of(version)) is not None
        for node in all_schemas(schema)
        for word in (*_ADDED_STRUCTURE, "default")
    ):
        return Strictness(**{**_fields(strictness), "wants_structure": False})
    return strictness


def _fields(strictness: Strictness) -> dict[str, bool]:
    return {name: getattr(strictness, name) for name in Strictness.__dataclass_fields__}


def _validate_version(
    version: CustomResourceDefinitionVersion,
    path: str,
    fields: set[str],
    strictness: Strictness,
    before: CustomResourceDefinitionSpec | None,
    *,
    at_top: bool = False,
) -> Iterator[FieldError]:
    subresources = version.get("subresources") or {}
    if "schema" in fields and (schema := schema_of(version)) is not None and not was_stored(before, version, schema):
        where = f"{path}.{'validation' if at_top else 'schema'}.openAPIV3Schema"
        has_status = subresources.get("status") is not None
        schema_errs = validate_schema(
            schema, where, has_status=has_status, strictness=strictness, validate_rule=_errors_of_default
        )
        if not schema_errs and strictness.wants_structure and mentions(schema, b'"x-kubernetes-validations"'):
            from pinnace.schema.cel.rules.checks import validate_rule  # noqa: PLC0415 - few schemas have rules.

            schema_errs = validate_rule(Schema(schema), where)
        yield from schema_errs
    if "subresources" in fields:
        yield from _validate_scale(subresources.get("scale"), f"{path}.subresources")
    if "additionalPrinterColumns" in fields:
        for i, column in enumerate(version.get("additionalPrinterColumns") or ()):
            yield from _validate_column(column, f"{path}.additionalPrinterColumns[{i}]")
    if "selectableFields" in fields and version.get("selectableFields"):
        yield from _validate_selectable(
            version, path, schema_of(version) if "schema" in fields else None, at_top=at_top
        )


def mentions(schema: Raw, word: bytes) -> bool:
    """Return whether a word may occur in a schema. Faster than walking a large schema."""
    return word in orjson.dumps(schema)


def _errors_of_default(schema: Raw, value: Any, path: str, is_object: bool) -> Iterator[FieldError]:
    from pinnace.schema.cel.rules.rules import rules_of  # noqa: PLC0415 - few schemas have rules.

    rules = rules_of(Schema(schema), is_root=is_object)
    if rules is not None:
        yield from rules.errs(value, path=path)


def was_stored(
    before: CustomResourceDefinitionSpec | None, version: CustomResourceDefinitionVersion, schema: Raw
) -> bool:
    """Return whether the same schema was stored before, and so needs no validation."""
    known = (before or NOTHING).get("versions") or ()
    return any(stored.get("name") == version.get("name") and schema_of(stored) == schema for stored in known)


def _validate_deprecation(version: CustomResourceDefinitionVersion, path: str) -> Iterator[FieldError]:
    warning, where = version.get("deprecationWarning"), f"{path}.deprecationWarning"
    if warning is None:
        return
    if not version.get("deprecated"):
        yield invalid(where, warning, "can only be set for deprecated versions")
        return
    if len(warning.encode()) > 256:
        yield invalid(where, warning, "must be <= 256 characters long")
    if not warning:
        yield invalid(where, warning, "must not be an empty string")
    at = 0
    for character in warning:
        if not character.isprintable():
            detail = f"must only contain printable UTF-8 characters; non-printable character found at index {at}"
            yield invalid(where, warning, detail)
            break
        at += len(character.encode())


def _validate_scale(scale: CustomResourceSubresourceScale | None, path: str) -> Iterator[FieldError]:
    if scale is None:
        return
    for field, value, starts, parents in (
        ("specReplicasPath", scale.get("specReplicasPath"), (".spec.",), ".spec"),
        ("statusReplicasPath", scale.get("statusReplicasPath"), (".status.",), ".status"),
        ("labelSelectorPath", scale.get("labelSelectorPath"), (".spec.", ".status."), "either .spec or .status"),
    ):
        where = f"{path}.scale.{field}"
        if not value:
            if field != "labelSelectorPath":
                yield required(where)
        elif not value.startswith("."):
            yield invalid(where, value, "must be a simple json path starting with .")
        elif not value.startswith(starts):
            yield invalid(where, value, f"should be a json path under {parents}")


def _validate_column(column: CustomResourceColumnDefinition, path: str) -> Iterator[FieldError]:
    if not column.get("name"):
        yield required(f"{path}.name")
    types = f"must be one of {','.join(_COLUMN_TYPES)}"
    if not column.get("type"):
        yield required(f"{path}.type", types)
    elif column["type"] not in _COLUMN_TYPES:
        yield invalid(f"{path}.type", column["type"], types)
    if column.get("format") and column["format"] not in _COLUMN_FORMATS:
        yield invalid(f"{path}.format", column["format"], f"must be one of {','.join(_COLUMN_FORMATS)}")
    if not column.get("jsonPath"):
        yield required(f"{path}.JSONPath")
    elif not column["jsonPath"].startswith("."):
        yield invalid(f"{path}.JSONPath", column["jsonPath"], "must be a simple json path starting with .")


def _validate_selectable(
    version: CustomResourceDefinitionVersion, path: str, schema: Raw | None, *, at_top: bool
) -> Iterator[FieldError]:
    where = f"{path}.selectableFields"
    if schema is None:
        missing = "validations.schema is included" if at_top else "`version.schema.openAPIV3Schema` is not included"
        yield invalid(where, "", f"may only be set when {missing}")
        return
    if why := find_unsupported(schema):
        yield invalid(f"{path}.schema.openAPIV3Schema", "", why)
    seen: set[str] = set()
    for i, field in enumerate(version["selectableFields"]):
        json_path, here = field.get("jsonPath") or "", f"{where}[{i}].jsonPath"
        if not json_path:
            yield required(here)
            continue
        try:
            place = place_of(json_path, schema, allows_brackets=False)
        except ValueError as why_not:
            yield invalid(here, json_path, f"is an invalid path: {why_not}")
            continue
        if place.fields[:1] == ("metadata",):
            yield invalid(here, json_path, "must not point to fields in metadata")
        if (place.schema or {}).get("type") not in ("string", "boolean", "integer"):
            detail = (
                "must point to a field of type string, boolean or integer. Enum string fields and strings with "
                "formats are allowed."
            )
            yield invalid(here, json_path, detail)
        if place.path in seen:
            yield duplicate(here, json_path)
        seen.add(place.path)
    if len(seen) > MOST_SELECTABLE:
        yield too_many(where, len(seen), MOST_SELECTABLE)
