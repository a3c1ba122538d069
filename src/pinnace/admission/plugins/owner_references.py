"""Owner references need the permissions of their effect: to delete the object, or to hold back its owner."""

from __future__ import annotations

from pinnace.admission.chain import WRITES
from pinnace.admission.permissions import Permissions
from pinnace.model.objects import Kind
from pinnace.model.resources import Registry
from pinnace.model.typed_objects import OwnerReference
from pinnace.model.write_review import Review
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.process.work_slices import SliceQueue

_AT_ONCE = 100
"""The number of owners that are checked in a slice."""


class OwnerReferencesPermissionEnforcement:
    interests = (("*", "*", WRITES),)

    def __init__(self, permissions: Permissions, kinds: Registry) -> None:
        self._permissions = permissions
        self._kinds = kinds

    def validate(self, review: Review) -> NowOrLater[None]:
        owners = review.changed["metadata"].get("ownerReferences") or []
        before = review.old["metadata"].get("ownerReferences") or [] if review.old is not None else []
        if owners == before or (review.resource.plural == "pods" and review.subresource == "status"):
            return None
        return self._check(review, owners, before)

    async def _check(self, review: Review, owners: list[OwnerReference], before: list[OwnerReference]) -> None:
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

    async def _check_blocking(self, review: Review, owner: OwnerReference) -> None:
        kind = Kind.parse(owner.get("apiVersion", ""), owner.get("kind", ""))
        resource = self._kinds.of_kind(kind)
        if resource is None:
            raise review.forbidden(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion "
                f"{kind.api_version} Kind {kind.name}: "
                f'no matches for kind "{kind.name}" in version "{kind.api_version}"'
            )
        if await self._permissions.forbidden_error(
            review.user,
            "update",
            group=resource.group,
            resource=resource.plural,
            subresource="finalizers",
            namespace=review.namespace if resource.namespaced else "",
            name=owner.get("name", ""),
        ):
            raise review.forbidden(
                "cannot set blockOwnerDeletion if an ownerReference refers to a resource "
                "you can't set finalizers on: , <nil>"
            )


def _find_newly_blocking(owners: list[OwnerReference], before: list[OwnerReference]) -> list[OwnerReference]:
    blocked = {owner.get("uid") for owner in before if owner.get("blockOwnerDeletion")}
    return [owner for owner in owners if owner.get("blockOwnerDeletion") and owner.get("uid") not in blocked]
