"""Refuses new objects in a missing or terminating namespace, and the deletion of the first namespaces."""

from __future__ import annotations

from collections.abc import Callable

from pinnace.admission.chain import CREATE, DELETE
from pinnace.model import errors
from pinnace.model.field_errors import FieldError
from pinnace.model.write_review import Review

LASTING = frozenset(("default", "kube-system", "kube-public"))


class NamespaceLifecycle:
    """`phase_of` returns a namespace's phase (Active, Terminating), or None if there is no such namespace."""

    interests = (("*", "*", CREATE), ("", "namespaces", DELETE))

    def __init__(self, phase_of: Callable[[str], str | None]) -> None:
        self._phase_of = phase_of

    def mutate(self, review: Review) -> None:
        resource = review.resource
        if resource.plural == "namespaces" and not resource.group:
            if review.operation == "DELETE" and review.name in LASTING:
                raise errors.Forbidden("this namespace may not be deleted", plural="namespaces", name=review.name)
            return
        if review.operation != "CREATE" or not resource.namespaced or _is_review(review):
            return
        phase = self._phase_of(review.namespace)
        if phase is None:
            raise errors.NotFound(group="", plural="namespaces", name=review.namespace)
        if phase == "Terminating":
            raise _terminating_error(review)


def _is_review(review: Review) -> bool:
    """Return whether the object is a review of access, which is never stored."""
    return review.resource.group == "authorization.k8s.io"


def _terminating_error(review: Review) -> errors.Forbidden:
    why = f"unable to create new content in namespace {review.namespace} because it is being terminated"
    error = errors.Forbidden(why, group=review.resource.group, plural=review.resource.plural, name=review.name)
    cause = FieldError(
        "metadata.namespace", "NamespaceTerminating", f"namespace {review.namespace} is being terminated"
    )
    error.details["causes"] = [{"reason": cause.reason, "message": cause.message, "field": cause.field}]
    return error
