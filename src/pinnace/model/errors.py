"""Every error that a client can receive, as a small tree. The type says what happened; `status` is sent on the wire.

ApiError
├── BadRequest 400          ├── Unauthorized 401        ├── Forbidden 403
├── NotFound 404            ├── MethodNotAllowed 405    ├── NotAcceptable 406
├── AlreadyExists 409       ├── Conflict 409            ├── Gone 410
├── Expired 410             │   └── ApplyConflict       ├── TooLarge 413
├── UnsupportedMediaType 415├── Invalid 422             ├── TooManyRequests 429
├── InternalError 500       ├── StorageReadError 500    ├── Unavailable 503
└── Timeout 504
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar

from pinnace.model.field_errors import FieldError
from pinnace.model.objects import Kind, Object
from pinnace.schema.golang.text import quote

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
"""The message of Conflict for an update of an older version."""


def qualified(group: str, name: str) -> str:
    """Format a resource or kind as Kubernetes does in messages: deployments.apps, or plain pods."""
    return f"{name}.{group}" if group else name


class ApiError(Exception):
    """An error with its Kubernetes Status."""

    code: ClassVar[int] = 500
    reason: ClassVar[str] = "InternalError"
    always_shows_details: ClassVar[bool] = False

    def __init__(self, message: str, *, details: dict[str, Any] | None = None, retry_after: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.details = dict(details or {})
        self.retry_after = retry_after
        self.list_metadata: dict[str, Any] = {}
        if retry_after:
            self.details["retryAfterSeconds"] = retry_after

    @property
    def status(self) -> Object:
        body: Object = {"kind": "Status", "apiVersion": "v1", "metadata": self.list_metadata, "status": "Failure"}
        body["message"] = self.message
        if self.reason:
            body["reason"] = self.reason
        if self.details or self.always_shows_details:
            body["details"] = self.details
        body["code"] = self.code
        return body


class BadRequest(ApiError):
    code, reason = 400, "BadRequest"


class Unauthorized(ApiError):
    code, reason = 401, "Unauthorized"

    def __init__(self, message: str = "Unauthorized") -> None:
        super().__init__(message)


class _AboutResource(ApiError):
    """An error about a resource, and usually about one object."""

    def __init__(self, message: str, *, group: str, plural: str, name: str = "", retry_after: int = 0) -> None:
        details = {"name": name, "group": group, "kind": plural}
        super().__init__(message, details={k: v for k, v in details.items() if v}, retry_after=retry_after)


class Forbidden(_AboutResource):
    code, reason = 403, "Forbidden"
    always_shows_details = True

    def __init__(self, why: str, *, group: str = "", plural: str = "", name: str = "") -> None:
        what = qualified(group, plural) + (f' "{name}"' if name else "")
        message = f"{what} is forbidden: {why}" if plural else f"forbidden: {why}"
        super().__init__(message, group=group, plural=plural, name=name)


class NotFound(_AboutResource):
    code, reason = 404, "NotFound"

    def __init__(self, *, group: str, plural: str, name: str) -> None:
        super().__init__(f'{qualified(group, plural)} "{name}" not found', group=group, plural=plural, name=name)


class NoSuchPath(ApiError):
    """Nothing is served at this URL: no such group, version or resource."""

    code, reason = 404, "NotFound"
    always_shows_details = True

    def __init__(self, message: str = "the server could not find the requested resource") -> None:
        super().__init__(message)


class MethodNotAllowed(_AboutResource):
    code, reason = 405, "MethodNotAllowed"

    def __init__(self, verb: str, *, group: str, plural: str) -> None:
        what = qualified(group, plural)
        super().__init__(f'{verb} is not supported on resources of kind "{what}"', group=group, plural=plural)


class BadMethod(ApiError):
    """The path is served, but not with this HTTP method."""

    code, reason = 405, "MethodNotAllowed"
    always_shows_details = True

    def __init__(self) -> None:
        super().__init__("the server does not allow this method on the requested resource")


class NotAcceptable(ApiError):
    code, reason = 406, "NotAcceptable"
    always_shows_details = True

    def __init__(self, offered: Sequence[str]) -> None:
        super().__init__(f"406: Not Acceptable\n\nAvailable representations: {', '.join(offered)}")


class NotShownSo(ApiError):
    """The media type is known, but this response has no such representation: a review has no table."""

    code, reason = 406, "NotAcceptable"

    def __init__(self, offered: Sequence[str]) -> None:
        super().__init__(f"only the following media types are accepted: {', '.join(offered)}")


class WrongView(ApiError):
    """A representation of one object was requested for a list, or the other way round."""

    code, reason = 406, "NotAcceptable"


class AlreadyExists(_AboutResource):
    code, reason = 409, "AlreadyExists"

    def __init__(self, *, group: str, plural: str, name: str, is_leaving: bool = False) -> None:
        message = f'{qualified(group, plural)} "{name}" already exists'
        if is_leaving:
            message = f"object is being deleted: {message}"
        super().__init__(message, group=group, plural=plural, name=name)


class Conflict(_AboutResource):
    code, reason = 409, "Conflict"

    def __init__(self, why: str, *, group: str, plural: str, name: str) -> None:
        message = f'Operation cannot be fulfilled on {qualified(group, plural)} "{name}": {why}'
        super().__init__(message, group=group, plural=plural, name=name)


class ApplyConflict(Conflict):
    """Server-side apply: other managers own fields that would change. Retrying does not help."""

    def __init__(self, message: str, causes: Sequence[FieldError]) -> None:
        # The message names the fields, not the object, unlike that of its parent.
        ApiError.__init__(self, message, details={"causes": [_cause_on_the_wire(cause) for cause in causes]})


class Gone(ApiError):
    code, reason = 410, "Gone"


class Expired(ApiError):
    code, reason = 410, "Expired"


class TooLarge(ApiError):
    code, reason = 413, "RequestEntityTooLarge"

    def __init__(self, message: str) -> None:
        super().__init__(f"Request entity too large: {message}")


class UnsupportedMediaType(ApiError):
    code, reason = 415, "UnsupportedMediaType"

    def __init__(self, accepted: Sequence[str]) -> None:
        super().__init__(
            f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
        )


class Invalid(ApiError):
    """The object is invalid; the message has every error with its field."""

    code, reason = 422, "Invalid"

    def __init__(self, causes: Sequence[FieldError], *, group: str, kind: str, name: str) -> None:
        messages = list(dict.fromkeys(str(cause) for cause in causes))
        errs = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
        details = {"name": name, "group": group, "kind": kind, "causes": [_cause_on_the_wire(c) for c in causes]}
        super().__init__(
            f"{qualified(group, kind)} {quote(name)} is invalid: {errs}",
            details={key: value for key, value in details.items() if value},
        )
        self.causes = tuple(causes)
        self._about = (group, kind, name)

    def after(self, causes: Sequence[FieldError]) -> Invalid:
        """Return the same error, with these errors listed before its own."""
        group, kind, name = self._about
        return Invalid([*causes, *self.causes], group=group, kind=kind, name=name)


class TooManyRequests(ApiError):
    code, reason = 429, "TooManyRequests"


class InternalError(ApiError):
    code, reason = 500, "InternalError"

    def __init__(self, why: str) -> None:
        super().__init__(f"Internal error occurred: {why}", details={"causes": [{"message": why}]})


class UnknownError(ApiError):
    """An error without a reason, as Kubernetes answers where an admission plug-in fails without refusing."""

    code, reason = 500, ""


class StorageReadError(ApiError):
    """Some objects of a list cannot be decrypted. It has the reason for each key in the store."""

    code, reason = 500, "StorageReadError"

    def __init__(self, resource: str, verb: str, reasons: Mapping[str, str]) -> None:
        causes = [
            {"reason": "UnexpectedServerResponse", "message": corrupt_object(key, reason), "field": key}
            for key, reason in islice(reasons.items(), _MOST_CAUSES)
        ]
        first = causes[0]["message"]
        details = {"name": verb, "kind": resource, "causes": causes}
        super().__init__(f"failed to read one or more {resource} from the storage: {first}", details=details)


_MOST_CAUSES = 100


def corrupt_object(key: str, reason: str) -> str:
    """Return Kubernetes' words for an object that is stored but cannot be decrypted."""
    return (
        f"StorageError: corrupt object, Code: 7, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: data from the "
        f"storage is not transformable revision=0: {reason}"
    )


class ServerTimeout(_AboutResource):
    code, reason = 500, "ServerTimeout"


class Unavailable(ApiError):
    code, reason = 503, "ServiceUnavailable"


class Timeout(ApiError):
    code, reason = 504, "Timeout"

    def __init__(self, message: str, *, retry_after: int = 0) -> None:
        super().__init__(f"Timeout: {message}", retry_after=retry_after)


def _cause_on_the_wire(cause: FieldError) -> Object:
    wire = {"reason": cause.reason, "message": cause.message, "field": cause.field}
    return {key: value for key, value in wire.items() if value}


REDACTED = "<secret contents redacted>"
SECRET = Kind("", "v1", "Secret")


def without_values(errs: list[str]) -> list[str]:
    """Return the errors of a secret's fields with the expected value, without the actual one."""
    return [f"{expected}, got {REDACTED}" if got else expected for expected, got, _ in map(_parts, errs)]


def _parts(err: str) -> tuple[str, str, str]:
    return err.partition(", got ")


_LARGEST_NUMBER = 1 << 31
_BY_REASON: dict[str, type[ApiError]] = {
    kind.reason: kind
    for kind in (
        BadRequest,
        Unauthorized,
        Forbidden,
        MethodNotAllowed,
        NotAcceptable,
        AlreadyExists,
        Conflict,
        Gone,
        Expired,
        TooLarge,
        UnsupportedMediaType,
        Invalid,
        TooManyRequests,
        InternalError,
        ServerTimeout,
        Unavailable,
        Timeout,
    )
}
_BY_CODE: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NoSuchPath,
    405: BadMethod,
    406: NotAcceptable,
    409: Conflict,
    410: Gone,
    413: TooLarge,
    415: UnsupportedMediaType,
    422: Invalid,
    429: TooManyRequests,
    502: Unavailable,
    503: Unavailable,
    504: Timeout,
}


def error_of_status(status: Object, *, code: int = 0) -> ApiError:
    """Return the error for a Status, which may also be the last event of a watch."""
    details = _sanitize(status.get("details"))
    code = code or _number(status.get("code")) or 500
    kind = _kind_of(str(status.get("reason") or ""), code, details)
    # Built without the subclass' constructor, which would format the message again.
    error = kind.__new__(kind)
    ApiError.__init__(error, str(status.get("message") or f"the server answered {code}"), details=details)
    error.retry_after = _number(details.get("retryAfterSeconds"))
    if isinstance(error, Invalid):
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


def _kind_of(reason: str, code: int, details: Object) -> type[ApiError]:
    if reason == NotFound.reason:
        return NotFound if details.get("name") else NoSuchPath
    if reason == Conflict.reason and any(
        cause.get("reason") == "FieldManagerConflict" for cause in details.get("causes") or ()
    ):
        return ApplyConflict
    known = _BY_REASON.get(reason) or _BY_CODE.get(code)
    return known or (InternalError if code >= 500 else BadRequest)
