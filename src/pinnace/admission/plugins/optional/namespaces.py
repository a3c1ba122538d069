"""Plug-ins for namespaces that do not exist: one refuses all writes in them, the other creates them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pinnace.admission.chain import CREATE, DELETE, WRITES, AdmissionPlugin
from pinnace.model import errors
from pinnace.model.resources import Resource
from pinnace.model.write_review import Review
from pinnace.process.eager_coroutines import NowOrLater


class NamespaceExists(AdmissionPlugin):
    """Refuses writes, deletions and access reviews in a namespace that does not exist."""

    interests = (("*", "*", WRITES | DELETE),)

    def __init__(self, phase_of: Callable[[str], str | None]) -> None:
        self._phase_of = phase_of

    def reviews_unstored(self, resource: Resource) -> bool:
        return resource.namespaced

    def validate(self, review: Review) -> None:
        if _is_missing(review, self._phase_of):
            raise errors.NotFound(group="", plural="namespaces", name=review.namespace)


class NamespaceAutoProvision(AdmissionPlugin):
    """Creates the namespace of a new object. `create` does nothing for a namespace that exists; it raises ApiError."""

    interests = (("*", "*", CREATE),)

    def __init__(self, phase_of: Callable[[str], str | None], create: Callable[[str], Awaitable[None]]) -> None:
        self._phase_of = phase_of
        self._create = create

    def reviews_unstored(self, resource: Resource) -> bool:
        return resource.namespaced

    def mutate(self, review: Review) -> NowOrLater[None]:
        if review.is_dry_run or not _is_missing(review, self._phase_of):
            return None
        return self._provide(review)

    async def _provide(self, review: Review) -> None:
        try:
            await self._create(review.namespace)
        except errors.ApiError as error:
            raise review.forbidden(error.message) from None


def _is_missing(review: Review, phase_of: Callable[[str], str | None]) -> bool:
    return review.resource.namespaced and bool(review.namespace) and phase_of(review.namespace) is None
