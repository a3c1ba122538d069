"""Turn the failed answer of a server back into the error that the server raised."""

from __future__ import annotations

import orjson

from pinnace.client.transport import Answer
from pinnace.model import errors
from pinnace.model.errors import ApiError, error_of_status

_MOST_DIGITS = 10


def is_namespace_terminating(error: Exception) -> bool:
    """Return whether a create was denied because the namespace is being deleted: a retry cannot help."""
    if not isinstance(error, errors.Forbidden):
        return False
    return any(cause.get("reason") == "NamespaceTerminating" for cause in error.details.get("causes") or ())


def error_of(answer: Answer) -> ApiError:
    """Return the error for a failed request. Proxies answer without a Status: their text is the message."""
    try:
        status = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        text = answer.body.decode("utf-8", "replace").strip()
        status = {"message": f"the server answered {answer.status}" + (f": {text[:500]}" if text else "")}
    error = error_of_status(status, code=answer.status)
    error.retry_after = error.retry_after or retry_after_of(answer)
    return error


def retry_after_of(answer: Answer) -> int:
    """Return the seconds to wait before the next attempt, as the server requests; 0 if it does not."""
    text = answer.headers.get("retry-after", "")
    return int(text) if len(text) < _MOST_DIGITS and text.isascii() and text.isdigit() else 0
