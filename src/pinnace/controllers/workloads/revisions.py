"""ControllerRevisions: the templates that a StatefulSet or DaemonSet has had, by number."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import orjson

from pinnace.client.client import Client
from pinnace.controllers.workloads.adoption import Adoption
from pinnace.controllers.workloads.ownership import Dependents, Owned, index_owned, owned_of
from pinnace.controllers.workloads.template_hash import hash_of
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.model.selectors import LabelSelector
from pinnace.reconcile.cache import Cache
from pinnace.reconcile.owners import owner_reference
from pinnace.schema.equality import equal_ignoring_empty

REVISION = "apps/v1/ControllerRevision"
POD_LABEL = "controller-revision-hash"
"""The label of a pod that names its revision."""
_LONGEST_PREFIX = 223


class Caches(Protocol):
    """The shared informers."""

    def cache(self, kind: str) -> Cache: ...


@dataclass(frozen=True, slots=True)
class Newest:
    """The revision of an object's template, and the collisions that its name has had."""

    revision: Object
    collisions: int


class Revisions:
    """The ControllerRevisions of one kind of owner."""

    def __init__(self, caches: Caches, client: Client, *, hash_label: str) -> None:
        """`hash_label` is the label that carries the hash of a revision."""
        self._client = client
        self._hash_label = hash_label
        self._owned: Dependents[Owned] = Dependents(caches.cache(REVISION), owned_of, index_owned)

    async def claim(self, owner: Object, selector: LabelSelector) -> list[Object]:
        """Return the revisions of an owner, the oldest first. Orphans that match are adopted."""
        metadata = owner["metadata"]
        candidates = [*self._owned.of(metadata["uid"]), *self._owned.orphans(metadata["namespace"])]
        adoption = Adoption(self._client, owner, REVISION)
        claimed = await adoption.claim(candidates, lambda one: selector.matches(one.labels))
        found = [snapshot.object for one in claimed if (snapshot := self._owned.snapshot(one)) is not None]
        return sorted(found, key=_age)

    async def sync_newest(self, owner: Object, revisions: Sequence[Object], collisions: int) -> Newest:
        """Return the revision of the owner's template: the last one, an older one renumbered, or a new one."""
        data = data_of(owner)
        equal = [one for one in revisions if equal_ignoring_empty(one.get("data"), data)]
        number = revisions[-1]["revision"] + 1 if revisions else 1
        if not equal:
            return await self._create(owner, data, number, collisions)
        newest = equal[-1]
        if newest is not revisions[-1]:
            newest = await self._patch(newest, {"revision": number})
        return Newest(newest, collisions)

    async def _create(self, owner: Object, data: Object, number: int, collisions: int) -> Newest:
        """Create a revision whose name follows from its data. Count a collision where other data has the name."""
        metadata, template = owner["metadata"], owner["spec"]["template"]
        encoded = orjson.dumps(data, option=orjson.OPT_SORT_KEYS)
        while True:
            hash_value = hash_of(encoded, collisions)
            name = f"{metadata['name'][:_LONGEST_PREFIX]}-{hash_value}"
            labels = {**(template["metadata"].get("labels") or {}), self._hash_label: hash_value}
            revision_metadata: Object = {
                "name": name,
                "namespace": metadata["namespace"],
                "labels": labels,
                "ownerReferences": [owner_reference(owner)],
            }
            if metadata.get("annotations"):
                revision_metadata["annotations"] = metadata["annotations"]
            wanted: Object = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": revision_metadata}
            try:
                created = await self._client.create({**wanted, "data": data, "revision": number})
            except errors.AlreadyExists:
                present = await self._client.get(REVISION, name, namespace=metadata["namespace"])
                if equal_ignoring_empty(present.get("data"), data):
                    return Newest(present, collisions)
                collisions += 1
            else:
                return Newest(created, collisions)

    async def truncate(self, owner: Object, revisions: Sequence[Object], live: Collection[str]) -> None:
        """Delete the oldest revisions beyond `revisionHistoryLimit`; those in `live` are kept and not counted."""
        limit = owner["spec"].get("revisionHistoryLimit", 10)
        old = [one for one in revisions if one["metadata"]["name"] not in live]
        for one in old[: max(0, len(old) - limit)] if limit >= 0 else ():
            await self.delete(one)

    async def delete(self, revision: Object) -> None:
        metadata = revision["metadata"]
        try:
            await self._client.delete(REVISION, metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"])
        except (errors.NotFound, errors.Conflict):
            return  # It is gone already.

    async def _patch(self, revision: Object, patch: Object) -> Object:
        metadata = revision["metadata"]
        patch = {**patch, "metadata": {"uid": metadata["uid"]}}
        return await self._client.patch(REVISION, metadata["name"], patch, namespace=metadata["namespace"])


def data_of(owner: Object) -> Object:
    """Return the patch that a revision keeps: with it `kubectl rollout undo` restores the template.

    Keys are sorted, as Go marshals a map: clients compare the bytes of a revision with the patch that they compute.
    """
    data = {"spec": {"template": {**owner["spec"]["template"], "$patch": "replace"}}}
    ordered: Object = orjson.loads(orjson.dumps(data, option=orjson.OPT_SORT_KEYS))
    return ordered


def restored(owner: Object, revision: Object) -> Object:
    """Return the owner with the template of a revision."""
    template = {key: value for key, value in revision["data"]["spec"]["template"].items() if key != "$patch"}
    return {**owner, "spec": {**owner["spec"], "template": template}}


def name_of(revision: Object) -> str:
    name: str = revision["metadata"]["name"]
    return name


def _age(revision: Object) -> tuple[int, str, str]:
    metadata = revision["metadata"]
    return revision["revision"], metadata.get("creationTimestamp") or "", metadata["name"]
