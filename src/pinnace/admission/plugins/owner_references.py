"""Owner references need the permissions of their effect: to delete the object, or to hold back its owner."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from pinnace.admission.chain import WRITES, Review
from pinnace.admission.sources import Permissions
from pinnace.model.objects import Kind, Object
from pinnace.model.resources import Resource
from pinnace.model.work_slices import SliceQueue

_AT_ONCE = 100
"""So many owners are checked in a slice."""


class Kinds(Protocol):
    """The resources that are served."""

    def of_kind(self, kind: Kind) -> Resource | None: ...


class OwnerReferencesPermissionEnforcement:
    interests = (("*", "*", WRITES),)

    def __init__(self, permissions: Permissions, kinds: Kinds) -> None:
        self._permissions = permissions
        self._kinds = kinds

    def validate(self, review: Review) -> Awaitable[None] | None:
        owners = review.changed["metadata"].get("ownerReferences") or []
        before = review.old["metadata"].get("ownerReferences") or [] if review.old is not None else []
        if owners == before or (review.resource.plural == "pods" and review.subresource == "status"):
            return None
        return self._check(review, owners, before)

    async def _check(self, review: Review, owners: list[Object], before: list[Object]) -> None:
        resource, user = review.resource, review.user
        if review.old is not None and await self._permissions.forbidden_error(
            user,
            "delete",
            group=resource.group,
            resource=resource.plural,
            subresource=review.subresource,
            namespace=review.namespace,
            name=review.name,
        ):
            raise review.forbidden("cannot set an ownerRef on a resource you can't delete: , <nil>")
        blocking = _find_newly_blocking(owners, before)
        if not blocking or not await self._permissions.forbidden_error(
            user, "update", group="*", resource="*", subresource="finalizers", name="*"
        ):
            return
        for number, owner in enumerate(blocking, 1):
            if number % _AT_ONCE == 0:
                await SliceQueue.of_loop().wait()
            await self._check_blocking(review, owner)

    async def _check_blocking(self, review: Review, owner: Object) -> None:
        kind = Kind.parse(owner.get("apiVersion", ""), owner.get("kind", ""))
        found = self._kinds.of_kind(kind)
        if found is None:
            raise review.forbidden(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion "
                f"{kind.api_version} Kind {kind.name}: "
                f'no matches for kind "{kind.name}" in version "{kind.api_version}"'
            )
        if await self._permissions.forbidden_error(
            review.user,
            "update",
            group=found.group,
            resource=found.plural,
            subresource="finalizers",
            namespace=review.namespace if found.namespaced else "",
            name=owner.get("name", ""),
        ):
            raise review.forbidden(
                "cannot set blockOwnerDeletion if an ownerReference refers to a resource "
                "you can't set finalizers on: , <nil>"
            )


def _find_newly_blocking(owners: list[Object], before: list[Object]) -> list[Object]:
    blocked = {one.get("uid") for one in before if one.get("blockOwnerDeletion")}
    return [one for one in owners if one.get("blockOwnerDeletion") and one.get("uid") not in blocked]
