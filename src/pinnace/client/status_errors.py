"""Turn the Status of a failed request back into the error that the server raised."""

from __future__ import annotations

from typing import Any

import orjson

from pinnace.client.transport import Answer
from pinnace.model import errors
from pinnace.model.errors import ApiError
from pinnace.model.field_errors import FieldError
from pinnace.model.objects import Object

_LARGEST_NUMBER = 1 << 31
_MOST_DIGITS = 10
_BY_REASON: dict[str, type[ApiError]] = {
    kind.reason: kind
    for kind in (
        errors.BadRequest,
        errors.Unauthorized,
        errors.Forbidden,
        errors.MethodNotAllowed,
        errors.NotAcceptable,
        errors.AlreadyExists,
        errors.Conflict,
        errors.Gone,
        errors.Expired,
        errors.TooLarge,
        errors.UnsupportedMediaType,
        errors.Invalid,
        errors.TooManyRequests,
        errors.InternalError,
        errors.ServerTimeout,
        errors.Unavailable,
        errors.Timeout,
    )
}
_BY_CODE: dict[int, type[ApiError]] = {
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NoSuchPath,
    405: errors.BadMethod,
    406: errors.NotAcceptable,
    409: errors.Conflict,
    410: errors.Gone,
    413: errors.TooLarge,
    415: errors.UnsupportedMediaType,
    422: errors.Invalid,
    429: errors.TooManyRequests,
    502: errors.Unavailable,
    503: errors.Unavailable,
    504: errors.Timeout,
}


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


def error_of_status(status: Object, *, code: int = 0) -> ApiError:
    """Return the error for a Status, which may also be the last event of a watch."""
    details = _sanitize(status.get("details"))
    code = code or _number(status.get("code")) or 500
    kind = _kind_of(str(status.get("reason") or ""), code, details)
    # Built without the subclass' constructor, which would format the message again.
    error = kind.__new__(kind)
    ApiError.__init__(error, str(status.get("message") or f"the server answered {code}"), details=details)
    error.retry_after = _number(details.get("retryAfterSeconds"))
    if isinstance(error, errors.Invalid):
        error.causes = tuple(
            FieldError(*(str(cause.get(name) or "") for name in ("field", "reason", "message")))
            for cause in details.get("causes") or ()
        )
    return error


def _sanitize(details: Any) -> Object:
    """Return the details of a Status, whose causes are objects. An aggregated server may answer with anything."""
    if not isinstance(details, dict):
        return {}
    causes = details.get("causes")
    if causes is None:
        return details
    listed = causes if isinstance(causes, list) else []
    return {**details, "causes": [cause for cause in listed if isinstance(cause, dict)]}


def _number(value: Any) -> int:
    return value if isinstance(value, int) and 0 < value < _LARGEST_NUMBER else 0


def retry_after_of(answer: Answer) -> int:
    """Return the seconds to wait before the next attempt, as the server requests; 0 if it does not."""
    text = answer.headers.get("retry-after", "")
    return int(text) if len(text) < _MOST_DIGITS and text.isascii() and text.isdigit() else 0


def _kind_of(reason: str, code: int, details: Object) -> type[ApiError]:
    if reason == errors.NotFound.reason:
        return errors.NotFound if details.get("name") else errors.NoSuchPath
    if reason == errors.Conflict.reason and any(
        cause.get("reason") == "FieldManagerConflict" for cause in details.get("causes") or ()
    ):
        return errors.ApplyConflict
    known = _BY_REASON.get(reason) or _BY_CODE.get(code)
    return known or (errors.InternalError if code >= 500 else errors.BadRequest)
