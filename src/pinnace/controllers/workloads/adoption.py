"""Brings owner references in line with a selector: adopts orphans that match, releases objects that no longer do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from pinnace.client.client import Client
from pinnace.client.mapping import KindLike
from pinnace.controllers.workloads.ownership import Owned
from pinnace.model import errors
from pinnace.model.objects import AnyObject, Object, kind_of
from pinnace.process.work_slices import in_turns
from pinnace.reconcile.finalizers import is_being_deleted
from pinnace.reconcile.owners import owner_reference

Facts = TypeVar("Facts", bound=Owned)


class OwnerGone(Exception):
    """The owner was deleted, or another object has its name now: nothing may be adopted for it."""


class Adoption:
    """Claims the objects of one kind for one owner, within one reconcile."""

    def __init__(self, client: Client, owner: AnyObject, kind: KindLike, *, finalizers: Sequence[str] = ()) -> None:
        """`kind` is that of the claimed objects. `finalizers` are added at adoption and removed at release."""
        self._client = client
        self._owner = owner
        self._kind = kind
        self._finalizers = list(finalizers)
        self._uid = owner["metadata"]["uid"]
        self._is_rechecked = False

    async def claim(self, candidates: Iterable[Facts], matches: Callable[[Facts], bool]) -> list[Facts]:
        """Return the candidates that the owner controls now. Raise the first failure after all have been tried."""
        claimed: list[Facts] = []
        failure: Exception | None = None
        async for some in in_turns(candidates):
            for candidate in some:
                try:
                    if await self._is_claimed(candidate, matches):
                        claimed.append(candidate)
                except (errors.ApiError, OwnerGone) as error:
                    failure = failure or error
        if failure is not None:
            raise failure
        return claimed

    async def _is_claimed(self, candidate: Facts, matches: Callable[[Facts], bool]) -> bool:
        if candidate.controller is not None:
            if candidate.controller.uid != self._uid:
                return False
            if matches(candidate):
                return True
            if not is_being_deleted(self._owner):
                await self._release(candidate)
            return False
        if is_being_deleted(self._owner) or candidate.is_deleting or not matches(candidate):
            return False
        return await self._adopt(candidate)

    async def _adopt(self, candidate: Owned) -> bool:
        await self._recheck_owner()
        # With the UID: a new object of the same name is not adopted. The server refuses a second controller.
        metadata: Object = {"ownerReferences": [owner_reference(self._owner)], "uid": candidate.uid}
        if self._finalizers:
            metadata["finalizers"] = self._finalizers
        try:
            await self._patch(candidate, metadata)
        except errors.NotFound:
            return False
        return True

    async def _release(self, owned: Owned) -> None:
        metadata: Object = {"ownerReferences": [{"$patch": "delete", "uid": self._uid}], "uid": owned.uid}
        if self._finalizers:
            metadata["$deleteFromPrimitiveList/finalizers"] = self._finalizers
        try:
            await self._patch(owned, metadata)
        except (errors.NotFound, errors.Invalid):
            return  # Gone, or replaced by another object of this name: nothing is left to release.

    async def _patch(self, owned: Owned, metadata: Object) -> None:
        key = owned.key
        await self._client.patch(
            self._kind, key.name, {"metadata": metadata}, namespace=key.namespace, form="strategic"
        )

    async def _recheck_owner(self) -> None:
        """Read the owner again before the first adoption: the cache may not know yet that it was deleted."""
        if self._is_rechecked:
            return
        metadata = self._owner["metadata"]
        kind = kind_of(self._owner)
        fresh = await self._client.get_or_none(kind, metadata["name"], namespace=metadata.get("namespace", ""))
        where = f"{kind.name} {metadata.get('namespace', '')}/{metadata['name']}"
        if fresh is None or fresh["metadata"]["uid"] != self._uid:
            raise OwnerGone(f"original {where} is gone: expected uid {self._uid}; nothing was adopted for it")
        if is_being_deleted(fresh):
            raise OwnerGone(f"{where} has just been deleted at {fresh['metadata']['deletionTimestamp']}")
        self._is_rechecked = True
