"""Parses and validates the options of lists and watches, with Kubernetes' error messages."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from pinnace.model import errors, field_errors
from pinnace.serving.read.continue_tokens import Continuation
from pinnace.serving.read.selection import check_syntax, selection_of
from pinnace.serving.request.call import Call, parse_revision

_MATCHES = ("Exact", "NotOlderThan")


@dataclass(frozen=True, slots=True)
class ListOptions:
    limit: int
    continuation: Continuation | None
    revision: int
    is_exact: bool

    def is_of_now(self, revision: int) -> bool:
        """Whether the first page of the newest state is requested, which is at this revision."""
        return self.continuation is None and not self.is_exact and self.revision <= revision


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """Where a watch begins (with the current state or after a revision), and whether it gets bookmarks."""

    since: int | None
    """None: begin with the current state."""
    initial_events: bool
    bookmarks: bool
    marks_end_of_initial: bool = False
    least: int = 0
    """The revision that the current state must have reached."""


_ALL_OF_NOW = ListOptions(0, None, 0, is_exact=False)


def list_options(call: Call) -> ListOptions:
    if not call.request.raw_query:
        return _ALL_OF_NOW
    call.number("timeoutSeconds")  # A list needs no timeout, but the value must be a number.
    limit = max(0, call.number("limit") or 0)
    token, wanted, match = call.text("continue"), call.text("resourceVersion"), call.text("resourceVersionMatch")
    _refuse(call, _errors_of_a_list(call, wanted, match))
    if token or wanted:
        call.selection = selection_of(call)  # A malformed selector is reported before a malformed token or revision.
    if wanted == "0":
        limit = 0  # Any state will do: Kubernetes answers from its watch cache, without pages.
    if token:
        continuation = Continuation.decode(token)
        if wanted and wanted != "0":
            raise errors.BadRequest("specifying resource version is not allowed when using continue")
        return ListOptions(limit, continuation, 0, is_exact=False)
    revision = revision_of(wanted, BadRevision) if wanted else 0
    is_exact = match == "Exact" or (not match and limit > 0 and revision > 0 and not _names_one(call))
    return ListOptions(limit, None, revision, is_exact=is_exact)


def check_list_options(call: Call) -> None:
    """Raise for the wrong options of a list that can be found without reading it."""
    if call.request.raw_query:
        call.number("timeoutSeconds")
        call.number("limit")
        _refuse(call, _errors_of_a_list(call, call.text("resourceVersion"), call.text("resourceVersionMatch")))
        call.selection = selection_of(call)


def _names_one(call: Call) -> bool:
    """Whether the selection names one object: such a list has no pages."""
    chosen = selection_of(call)
    return bool(chosen.name) and (bool(chosen.namespace) or not call.resource.namespaced)


def _errors_of_a_list(call: Call, wanted: str, match: str) -> list[field_errors.FieldError]:
    errs = []
    if match:
        if not wanted:
            errs.append(
                field_errors.forbidden(
                    "resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"
                )
            )
        if call.text("continue"):
            errs.append(_no_match_with_continue())
        if match not in _MATCHES:
            errs.append(field_errors.not_supported("resourceVersionMatch", match, [*_MATCHES, ""]))
        if match == "Exact" and wanted == "0":
            errs.append(
                field_errors.forbidden(
                    "resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
                )
            )
    if call.request.parameter("sendInitialEvents") is not None:
        errs.append(field_errors.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return errs


def watch_options(call: Call) -> WatchOptions:
    call.number("limit")  # A watch has no pages, but the value must be a number.
    call.number("timeoutSeconds")
    wanted, match = call.text("resourceVersion"), call.text("resourceVersionMatch")
    is_set = call.request.parameter("sendInitialEvents") is not None
    sends_initial = call.flag("sendInitialEvents")
    if not call.flag("watch"):  # Only the path makes it a watch: its options are checked as those of a list.
        _refuse(call, _errors_of_a_list(call, wanted, match))
    else:
        if not is_set and not match and wanted in ("", "0"):
            # Without a start, the watch begins with all objects and marks the end of them.
            is_set, sends_initial, match = True, True, "NotOlderThan"
        _refuse(call, _errors_of_a_watch(call, match, is_set=is_set))
    if wanted:
        call.selection = selection_of(call)  # A malformed selector is reported before a malformed revision.
    revision = revision_of(wanted, UnreadableRevision) if wanted else 0
    bookmarks = call.flag("allowWatchBookmarks")
    if sends_initial:
        return WatchOptions(
            None, initial_events=True, least=revision, marks_end_of_initial=bookmarks, bookmarks=bookmarks
        )
    return WatchOptions(revision or None, initial_events=not is_set and revision == 0, bookmarks=bookmarks)


def _errors_of_a_watch(call: Call, match: str, *, is_set: bool) -> list[field_errors.FieldError]:
    errs = []
    if is_set and match != "NotOlderThan":
        errs.append(
            field_errors.forbidden(
                "resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            )
        )
    if match and not is_set:
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        errs.append(field_errors.forbidden("resourceVersionMatch", why))
    if match and match != "NotOlderThan":
        errs.append(field_errors.not_supported("resourceVersionMatch", match, ["NotOlderThan"]))
    if match and call.text("continue"):
        errs.append(_no_match_with_continue())
    return errs


def _no_match_with_continue() -> field_errors.FieldError:
    return field_errors.forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided")


def too_large_revision(wanted: int, current: int) -> errors.Timeout:
    error = errors.Timeout(f"Too large resource version: {wanted}, current: {current}", retry_after=1)
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    error.details = {"causes": [cause], "retryAfterSeconds": 1}
    return error


def _refuse(call: Call, errs: list[field_errors.FieldError]) -> None:
    if errs:
        check_syntax(call)  # A malformed selector is reported before other options.
        raise errors.Invalid(errs, group="meta.k8s.io", kind="ListOptions", name="")


def single_revision(call: Call) -> str:
    """Return the resourceVersion of a get. Raise for `export`, which Kubernetes removed."""
    if call.flag("export"):
        raise errors.BadRequest("the export parameter, deprecated since v1.14, is no longer supported")
    return call.text("resourceVersion")


class BadRevision(errors.BadRequest):
    def __init__(self, err: str) -> None:
        super().__init__(f"invalid resource version: {err}")


class UnreadableRevision(errors.ApiError):
    """The same error outside of lists, where Kubernetes answers 500."""

    code, reason = 500, ""


def revision_of(text: str, error: type[BadRevision] | type[UnreadableRevision]) -> int:
    """Parse a resourceVersion. Raise `error` if it is not a number."""
    try:
        return parse_revision(text)
    except ValueError as why:
        raise error(f"resourceVersion: Invalid value: {orjson.dumps(text).decode()}: {why}") from None
