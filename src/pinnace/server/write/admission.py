"""The review of a call: one write as admission plug-ins see it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pinnace.admission.chain import Review
from pinnace.model.objects import Object
from pinnace.server.request.call import Call

Check = Callable[[Object], Awaitable[None] | None]
"""Raises if a message cannot be admitted."""


def review_of(call: Call, new: Object | None, old: Object | None, options: Object | None) -> Review:
    """Return the review of a write. `options` are those of the body, else those of the query."""
    operation = "DELETE" if new is None else "CREATE" if old is None else "UPDATE"
    review = Review(
        operation,
        call.resource,
        call.subresource,
        call.namespace,
        call.name,
        new,
        old,
        call.user,
        call.verb,
        call.is_dry_run,
        options or _options(call),
        call.warnings,
    )
    if call.request.notes is not None:
        call.request.notes.admission[call.key] = review.audit
    return review


def _options(call: Call) -> Object:
    """Return the options in the query, as admission plug-ins see them."""
    if not call.request.raw_query:
        return {}
    query = call.request.query
    given: Object = {name: query[name][0] for name in ("fieldManager", "fieldValidation") if query.get(name)}
    return {"dryRun": list(query["dryRun"]), **given} if query.get("dryRun") else given
