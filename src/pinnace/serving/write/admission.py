"""Admission as the pipeline sees it, and the review of a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pinnace.model.field_errors import FieldError
from pinnace.model.objects import Object
from pinnace.model.resources import Resource
from pinnace.model.write_review import Review
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.serving.request.call import Call

Check = Callable[[Object], NowOrLater[None]]
"""Raises if a message cannot be admitted."""


class Admission(Protocol):
    """Changes writes, then allows or refuses them."""

    def mutate(self, review: Review) -> NowOrLater[None]:
        """Change the object under review, or raise an ApiError. Return an awaitable only if it has to wait."""

    def validate(self, review: Review) -> NowOrLater[None]:
        """Raise an ApiError for a write that is refused. Return an awaitable only if it has to wait."""

    async def errs(self, review: Review) -> list[FieldError]:
        """Return the field errors that come with those of the object's validation."""

    def reviews_unstored(self, resource: Resource) -> bool:
        """Whether it reviews this resource although it is never stored."""


class NoAdmission:
    """Allows every write as it is."""

    def mutate(self, review: Review) -> None:
        return None

    def validate(self, review: Review) -> None:
        return None

    async def errs(self, review: Review) -> list[FieldError]:
        return []

    def reviews_unstored(self, resource: Resource) -> bool:
        return False


def review_of(call: Call, new: Object | None, old: Object | None, options: Object | None) -> Review:
    """Return the review of a write. `options` are those of the body, else those of the query."""
    operation = "DELETE" if new is None else "CREATE" if old is None else "UPDATE"
    options = options or (_options(call) if call.request.raw_query else {})
    place = (call.resource, call.subresource, call.namespace, call.name)
    review = Review(operation, *place, new, old, call.user, call.verb, call.is_dry_run, options, call.warnings)
    if call.request.notes is not None:
        call.request.notes.admission[call.key] = review.audit
    return review


def _options(call: Call) -> Object:
    """Return the options in the query, as admission plug-ins see them."""
    query = call.request.query
    given: Object = {name: query[name][0] for name in ("fieldManager", "fieldValidation") if query.get(name)}
    return {"dryRun": list(query["dryRun"]), **given} if query.get("dryRun") else given
