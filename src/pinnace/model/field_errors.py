"""What is wrong with one field of an object, in the words that Kubernetes' clients match on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import orjson

IMMUTABLE = "field is immutable"


class Cause(NamedTuple):
    """One fault: which field, what sort of fault (a machine word), and the sentence for people."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


def _shown(value: Any) -> str:
    """A value as Kubernetes prints it in a fault: strings quoted, the rest as JSON."""
    if value is None:
        return "null"
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()


def required(field: str, detail: str = "") -> Cause:
    return Cause(field, "FieldValueRequired", "Required value" + (f": {detail}" if detail else ""))


def invalid(field: str, value: Any, detail: str) -> Cause:
    return Cause(field, "FieldValueInvalid", f"Invalid value: {_shown(value)}: {detail}")


def duplicate(field: str, value: Any) -> Cause:
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {_shown(value)}")


def not_supported(field: str, value: Any, supported: Iterable[str]) -> Cause:
    values = ", ".join(f'"{item}"' for item in supported)
    detail = f": supported values: {values}" if values else ""
    return Cause(field, "FieldValueNotSupported", f"Unsupported value: {_shown(value)}{detail}")


def not_found(field: str, value: Any) -> Cause:
    return Cause(field, "FieldValueNotFound", f"Not found: {_shown(value)}")


def forbidden(field: str, detail: str) -> Cause:
    return Cause(field, "FieldValueForbidden", f"Forbidden: {detail}")


def too_long(field: str, limit: int) -> Cause:
    return Cause(field, "FieldValueTooLong", f"Too long: may not be more than {limit} byte{'' if limit == 1 else 's'}")


def too_many(field: str, found: int, limit: int) -> Cause:
    items = "item" if limit == 1 else "items"
    return Cause(field, "FieldValueTooMany", f"Too many: {found}: must have at most {limit} {items}")


def wrong_type(field: str, value: Any, detail: str) -> Cause:
    return Cause(field, "FieldValueTypeInvalid", f"Invalid value: {_shown(value)}: {detail}")
