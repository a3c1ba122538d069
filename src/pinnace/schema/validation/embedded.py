"""Validate embedded objects (x-kubernetes-embedded-resource): they too have an apiVersion, a kind and metadata."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pinnace.process.work_slices import give_way
from pinnace.schema import field_errors
from pinnace.schema.field_errors import FieldError
from pinnace.schema.shape import Raw

MetadataErrors = Callable[[dict[str, Any], str], Iterable[FieldError]]
"""Yield the errors of the metadata of an embedded object. Arguments: the metadata and its path."""

_KIND = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")
_KIND_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)


def accept_anything(obj: dict[str, Any], path: str) -> Iterable[FieldError]:
    return ()


def validate_embedded(schema: Raw, value: Any, metadata: MetadataErrors, path: str = "") -> Iterator[FieldError]:
    """Yield every error of the type and the metadata of every embedded object in this value."""
    if value.__class__ is dict:
        give_way()
        if schema.get("x-kubernetes-embedded-resource"):
            yield from validate_resource(value, path, metadata)
        additional, properties = schema.get("additionalProperties"), schema.get("properties") or {}
        for key, item in value.items():
            if key in properties:
                yield from validate_embedded(properties[key], item, metadata, below(path, key))
            elif isinstance(additional, Mapping):
                yield from validate_embedded(additional, item, metadata, f"{path}[{key}]")
    elif value.__class__ is list and isinstance(items := schema.get("items"), Mapping):
        for index, item in enumerate(value):
            yield from validate_embedded(items, item, metadata, f"{path}[{index}]")


def validate_resource(obj: dict[str, Any], path: str, metadata: MetadataErrors) -> Iterator[FieldError]:
    for field in ("apiVersion", "kind"):
        if field not in obj:
            yield field_errors.required(below(path, field))
    for field, value in obj.items():
        if field == "apiVersion":
            yield from _validate_text(value, below(path, field), _check_version)
        elif field == "kind":
            yield from _validate_text(value, below(path, field), _check_kind)
        elif field == "metadata":
            yield from metadata(obj, below(path, field))


def _validate_text(value: Any, path: str, error_for: Callable[[str], str]) -> Iterator[FieldError]:
    if value.__class__ is not str:
        yield field_errors.invalid(path, value, "must be a string")
    elif not value:
        yield field_errors.invalid(path, value, "must not be empty")
    elif err := error_for(value):
        yield field_errors.invalid(path, value, err)


def _check_version(text: str) -> str:
    return f"unexpected GroupVersion string: {text}" if text.count("/") > 1 else ""


def _check_kind(text: str) -> str:
    errs = []
    if len(text) > 63:
        errs.append("must be no more than 63 characters")
    if not _KIND.fullmatch(text.lower()):
        errs.append(_KIND_RULE)
    return "may have mixed case, but should otherwise match: " + ",".join(errs) if errs else ""


def below(path: str, field: str) -> str:
    return f"{path}.{field}" if path else field
