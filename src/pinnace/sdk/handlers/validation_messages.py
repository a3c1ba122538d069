"""The errors of pydantic in the words of a user who wrote an object, not of the operator's author."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

_LONGEST = 80


def validation_message(error: Exception) -> str:
    """Return the errors of an object, one after the other, as `spec.gitRepo: ...`; other errors as they are."""
    if not isinstance(error, ValidationError):
        return str(error)
    messages = [_message_of(detail) for detail in error.errors(include_url=False)]
    return "; ".join(dict.fromkeys(messages))


def _message_of(detail: ErrorDetails) -> str:
    where = ""
    for part in detail["loc"]:
        where += f"[{part}]" if isinstance(part, int) else f".{part}"
    message = detail["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if detail["type"] == "missing":
        return f"{where.removeprefix('.')}: Required value"
    message = message[:1].lower() + message[1:]
    return f"{where.removeprefix('.')}: Invalid value: {_shorten(detail['input'])}: {message}".removeprefix(": ")


def _shorten(value: Any) -> str:
    text = f'"{value}"' if isinstance(value, str) else "null" if value is None else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
