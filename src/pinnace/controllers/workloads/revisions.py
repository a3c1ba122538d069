"""ControllerRevisions: the templates that a StatefulSet or DaemonSet has had, by number."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import cast

import orjson

from pinnace.client.client import Client
from pinnace.controllers.workloads.adoption import Adoption
from pinnace.controllers.workloads.ownership import Dependents, Owned, index_owned, owned_of
from pinnace.model import errors
from pinnace.model.objects import AnyObject, Object, SameType
from pinnace.model.selectors import LabelSelector
from pinnace.model.typed_objects import ControllerRevision, ObjectMeta, PodTemplateSpec
from pinnace.reconcile.manager import Manager
from pinnace.reconcile.owners import owner_reference
from pinnace.schema.equality import equal_ignoring_empty

POD_LABEL = "controller-revision-hash"
"""The label of a pod that names its revision."""
_LONGEST_PREFIX = 223


@dataclass(frozen=True, slots=True)
class Newest:
    """The revision of an object's template, and the collisions that its name has had."""

    revision: ControllerRevision
    collisions: int


class Revisions:
    """The ControllerRevisions of one kind of owner."""

    def __init__(self, caches: Manager, client: Client, *, hash_label: str) -> None:
        """`hash_label` is the label that carries the hash of a revision."""
        self._client = client
        self._hash_label = hash_label
        self._owned: Dependents[Owned, ControllerRevision] = Dependents(
            caches.cache(ControllerRevision), owned_of, index_owned
        )

    async def claim(self, owner: AnyObject, selector: LabelSelector) -> list[ControllerRevision]:
        """Return the revisions of an owner, the oldest first. Orphans that match are adopted."""
        metadata = owner["metadata"]
        candidates = [*await self._owned.of(metadata["uid"]), *await self._owned.orphans(metadata["namespace"])]
        adoption = Adoption(self._client, owner, ControllerRevision)
        claimed = await adoption.claim(candidates, lambda owned: selector.matches(owned.labels))
        revisions = [snapshot.object for owned in claimed if (snapshot := self._owned.snapshot(owned)) is not None]
        return sorted(revisions, key=_age)

    async def sync_newest(self, owner: AnyObject, revisions: Sequence[ControllerRevision], collisions: int) -> Newest:
        """Return the revision of the owner's template: the last one, an older one renumbered, or a new one."""
        data = data_of(owner)
        equal = [revision for revision in revisions if equal_ignoring_empty(revision.get("data"), data)]
        number = revisions[-1]["revision"] + 1 if revisions else 1
        if not equal:
            return await self._create(owner, data, number, collisions)
        newest = equal[-1]
        if newest is not revisions[-1]:
            newest = await self._patch(newest, {"revision": number})
        return Newest(newest, collisions)

    async def _create(self, owner: AnyObject, data: Object, number: int, collisions: int) -> Newest:
        """Create a revision whose name follows from its data. Count a collision where other data has the name."""
        metadata, template = owner["metadata"], owner["spec"]["template"]
        encoded = orjson.dumps(data, option=orjson.OPT_SORT_KEYS)
        while True:
            hash_value = hash_of(encoded, collisions)
            name = f"{metadata['name'][:_LONGEST_PREFIX]}-{hash_value}"
            labels = {**(template["metadata"].get("labels") or {}), self._hash_label: hash_value}
            revision_metadata: ObjectMeta = {
                "name": name,
                "namespace": metadata["namespace"],
                "labels": labels,
                "ownerReferences": [owner_reference(owner)],
            }
            if metadata.get("annotations"):
                revision_metadata["annotations"] = metadata["annotations"]
            wanted: ControllerRevision = {
                "apiVersion": "apps/v1",
                "kind": "ControllerRevision",
                "metadata": revision_metadata,
                "data": data,
                "revision": number,
            }
            try:
                created = await self._client.create(wanted)
            except errors.AlreadyExists:
                present = await self._client.get(ControllerRevision, name, namespace=metadata["namespace"])
                if equal_ignoring_empty(present.get("data"), data):
                    return Newest(present, collisions)
                collisions += 1
            else:
                return Newest(created, collisions)

    async def truncate(self, owner: AnyObject, revisions: Sequence[ControllerRevision], live: Collection[str]) -> None:
        """Delete the oldest revisions beyond `revisionHistoryLimit`; those in `live` are kept and not counted."""
        limit = owner["spec"].get("revisionHistoryLimit", 10)
        old = [revision for revision in revisions if revision["metadata"]["name"] not in live]
        for revision in old[: max(0, len(old) - limit)] if limit >= 0 else ():
            await self.delete(revision)

    async def delete(self, revision: ControllerRevision) -> None:
        metadata = revision["metadata"]
        try:
            await self._client.delete(
                ControllerRevision, metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"]
            )
        except (errors.NotFound, errors.Conflict):
            return  # It is gone already.

    async def _patch(self, revision: ControllerRevision, patch: Object) -> ControllerRevision:
        metadata = revision["metadata"]
        patch = {**patch, "metadata": {"uid": metadata["uid"]}}
        return await self._client.patch(ControllerRevision, metadata["name"], patch, namespace=metadata["namespace"])


def data_of(owner: AnyObject) -> Object:
    """Return the patch that a revision keeps: with it `kubectl rollout undo` restores the template.

    Keys are sorted, as Go marshals a map: clients compare the bytes of a revision with the patch that they compute.
    """
    data = {"spec": {"template": {**owner["spec"]["template"], "$patch": "replace"}}}
    ordered: Object = orjson.loads(orjson.dumps(data, option=orjson.OPT_SORT_KEYS))
    return ordered


def restored(owner: SameType, revision: ControllerRevision) -> SameType:
    """Return the owner with the template of a revision."""
    template = {key: value for key, value in revision["data"]["spec"]["template"].items() if key != "$patch"}
    return cast("SameType", {**owner, "spec": {**owner["spec"], "template": template}})


def name_of(revision: ControllerRevision) -> str:
    return revision["metadata"]["name"]


def _age(revision: ControllerRevision) -> tuple[int, str, str]:
    metadata = revision["metadata"]
    return revision["revision"], metadata.get("creationTimestamp") or "", metadata["name"]


_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' safe alphabet: no vowels, so no words; no characters that look alike."""


def template_hash(template: PodTemplateSpec, collisions: int | None = None) -> str:
    """Return the hash of a template. A collision count gives the same template another hash."""
    encoded = orjson.dumps(template, option=orjson.OPT_SORT_KEYS)
    return hash_of(encoded, collisions)


def hash_of(data: bytes, collisions: int | None = None) -> str:
    """Return 32 bits of `data` and the collision count, as a number in the safe alphabet."""
    digest = hashlib.blake2b(data, digest_size=4)
    if collisions is not None:
        digest.update(collisions.to_bytes(8, "little"))
    number = int.from_bytes(digest.digest(), "little")
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(number))
