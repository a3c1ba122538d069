"""The resourceVersion in the body of a write: which writes need it, and what a wrong one is answered with."""

from __future__ import annotations

import orjson

from pinnace.model import errors, field_errors
from pinnace.model.objects import Object
from pinnace.server.request.call import Call

_LARGEST = (1 << 64) - 1
_MOST_DIGITS = len(str(_LARGEST))


class UnexplainedError(errors.ApiError):
    """An error of Kubernetes' storage layer, which has no reason."""

    code, reason = 500, ""


def match_revision(call: Call, metadata: Object, current: str) -> None:
    """Raise unless an object with this `metadata` may replace the one at the revision `current`.

    Raise Conflict if the client read another revision. Without a revision the kind decides whether to overwrite.
    """
    seen = metadata.get("resourceVersion", "")
    if seen == current:
        return
    if parse_revision(seen):
        raise call.conflict(errors.MODIFIED)
    if not call.resource.strategy.may_update_unconditionally:
        err = field_errors.invalid("metadata.resourceVersion", 0, "must be specified for an update")
        raise errors.Invalid([err], group=call.resource.group, kind=call.resource.plural, name=call.name)
    metadata["resourceVersion"] = current


def refuse_revision(metadata: Object) -> None:
    """Raise if an object that is created has a revision. A text that is not a number counts as none."""
    try:
        is_set = parse_revision(metadata.get("resourceVersion", "")) != 0
    except UnexplainedError:
        return
    if is_set:
        raise UnexplainedError("resourceVersion should not be set on objects to be created")


def parse_revision(text: str) -> int:
    """Return the number, 0 for an empty text. Raise UnexplainedError if it is no number."""
    digits = text.lstrip("0") or "0"
    why = ""
    if text and not (text.isascii() and text.isdigit()):
        why = "invalid syntax"
    elif len(digits) > _MOST_DIGITS or int(digits) > _LARGEST:
        why = "value out of range"
    if why:
        raise UnexplainedError(f"strconv.ParseUint: parsing {orjson.dumps(text).decode()}: {why}")
    return int(digits)
