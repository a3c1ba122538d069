"""Field errors of typed objects, whose values Kubernetes prints in the order of their Go fields.

Values of custom resources are maps, which Go prints by key: those errors come from `schema/field_errors.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pinnace.process.work_slices import give_way
from pinnace.schema.field_errors import FieldError, forbidden, go_json, required, too_long, too_many
from pinnace.schema.golang.text import quote

__all__ = [
    "IMMUTABLE",
    "FieldError",
    "duplicate",
    "forbidden",
    "invalid",
    "not_found",
    "not_supported",
    "required",
    "too_long",
    "too_many",
    "wrong_type",
]

IMMUTABLE = "field is immutable"


def invalid(field: str, value: Any, detail: str) -> FieldError:
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {_render(value)}: {detail}")


def duplicate(field: str, value: Any) -> FieldError:
    return FieldError(field, "FieldValueDuplicate", f"Duplicate value: {_render(value)}")


def not_supported(field: str, value: Any, supported: Iterable[str]) -> FieldError:
    values = ", ".join(f'"{item}"' for item in supported)
    detail = f": supported values: {values}" if values else ""
    return FieldError(field, "FieldValueNotSupported", f"Unsupported value: {_render(value)}{detail}")


def not_found(field: str, value: Any) -> FieldError:
    return FieldError(field, "FieldValueNotFound", f"Not found: {_render(value)}")


def wrong_type(field: str, value: Any, detail: str) -> FieldError:
    return FieldError(field, "FieldValueTypeInvalid", f"Invalid value: {_render(value)}: {detail}")


def _render(value: Any) -> str:
    """Return a value as Kubernetes prints it in an error: strings quoted, the rest as JSON."""
    give_way()
    return quote(value) if value.__class__ is str else go_json(value, sorts=False)
