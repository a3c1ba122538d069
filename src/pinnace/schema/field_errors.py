"""One bad field: its path, a machine-readable reason, and the message that Kubernetes' clients match on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import orjson

from pinnace.schema.golang.text import quote

_FOR_HTML = ((b"&", rb"\u0026"), (b"<", rb"\u003c"), (b">", rb"\u003e"))


class FieldError(NamedTuple):
    """One bad field: its path, the reason (a machine word) and the message for people."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


def required(field: str, detail: str = "") -> FieldError:
    return FieldError(field, "FieldValueRequired", _with("Required value", detail))


def invalid(field: str, value: Any, detail: str) -> FieldError:
    return FieldError(field, "FieldValueInvalid", _with(f"Invalid value: {format_bad_value(value)}", detail))


def wrong_type(field: str, value: Any, detail: str) -> FieldError:
    return FieldError(field, "FieldValueTypeInvalid", _with(f"Invalid value: {format_bad_value(value)}", detail))


def forbidden(field: str, detail: str = "") -> FieldError:
    return FieldError(field, "FieldValueForbidden", _with("Forbidden", detail))


def duplicate(field: str, value: Any) -> FieldError:
    return FieldError(field, "FieldValueDuplicate", f"Duplicate value: {format_bad_value(value)}")


def not_supported(field: str, value: Any, supported: Iterable[str]) -> FieldError:
    listed = ", ".join(map(quote, supported))
    detail = f"supported values: {listed}" if listed else ""
    return FieldError(field, "FieldValueNotSupported", _with(f"Unsupported value: {format_bad_value(value)}", detail))


def too_long(field: str, limit: int) -> FieldError:
    unit = "byte" if limit == 1 else "bytes"
    return FieldError(field, "FieldValueTooLong", f"Too long: may not be more than {limit} {unit}")


def too_many(field: str, count: int, limit: int) -> FieldError:
    unit = "item" if limit == 1 else "items"
    return FieldError(field, "FieldValueTooMany", f"Too many: {count}: must have at most {limit} {unit}")


def _with(message: str, detail: str) -> str:
    return f"{message}: {detail}" if detail else message


def format_bad_value(value: Any) -> str:
    """Format a value for an error as Go does: strings quoted, numbers plain, the rest as JSON."""
    if value.__class__ is str:
        return quote(value)
    if value.__class__ is float:
        return go_float(value)
    return go_json(value)


def go_json(value: Any, *, sorts: bool = True) -> str:
    """Return JSON as Go writes it: keys sorted, and the characters <, > and & escaped."""
    text = orjson.dumps(_with_go_numbers(value), option=orjson.OPT_SORT_KEYS if sorts else 0)
    for character, escaped in _FOR_HTML:
        text = text.replace(character, escaped)
    return text.decode()


def _with_go_numbers(value: Any) -> Any:
    """Return the value with whole floats as integers: Go writes them without a point."""
    if isinstance(value, dict):
        return {key: _with_go_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_go_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**63 else value


def go_float(value: float) -> str:
    """Format a float as Go's %v: the shortest digits, with an exponent from a million on."""
    digits, _, exponent = f"{abs(value)!r}".partition("e")
    if not value or (1e-4 <= abs(value) < 1e6 and not exponent):
        return repr(value).removesuffix(".0")
    power = int(exponent or 0)
    whole, _, fraction = digits.partition(".")
    significant = (whole + fraction).lstrip("0")
    power += len(whole) - 1 if whole != "0" else len(significant) - len(fraction) - 1
    significant = significant.rstrip("0")
    rest = f".{significant[1:]}" if significant[1:] else ""
    return f"{'-' if value < 0 else ''}{significant[0]}{rest}e{'-' if power < 0 else '+'}{abs(power):02d}"
