"""The PersistentVolumeClaims of StatefulSets: created before their pods, owned as the retention policy says."""

from __future__ import annotations

from dataclasses import dataclass

from pinnace.client.client import Client
from pinnace.controllers.workloads.pod_control import FAILURES, EventSource
from pinnace.controllers.workloads.stateful_identity import claim_names
from pinnace.model import errors
from pinnace.model.objects import Key
from pinnace.model.typed_objects import OwnerReference, PersistentVolumeClaim, StatefulSet
from pinnace.reconcile.cache import Cache
from pinnace.reconcile.owners import owner_reference


class ClaimRefused(Exception):
    """A claim could not be created, or is being deleted: its pod must wait."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The pod that uses a claim."""

    name: str
    uid: str
    """Empty until the pod is created."""
    ordinal: int
    is_scaled_down: bool

    @property
    def reference(self) -> OwnerReference:
        named: OwnerReference = {"apiVersion": "v1", "kind": "Pod", "name": self.name, "uid": self.uid}
        return {**named, "controller": True, "blockOwnerDeletion": True}


class StatefulClaims:
    """Reads claims from a cache of their metadata."""

    def __init__(self, cache: Cache[PersistentVolumeClaim], client: Client, events: EventSource) -> None:
        self._cache = cache
        self._client = client
        self._events = events

    async def create_missing(self, stateful_set: StatefulSet, holder: Holder) -> None:
        """Create the claims of a pod that do not exist. Raise ClaimRefused after all have been tried."""
        reasons: list[str] = []
        names = claim_names(stateful_set, holder.ordinal)
        for template in stateful_set["spec"].get("volumeClaimTemplates") or ():
            name = names[template["metadata"]["name"]]
            present = self._find(stateful_set, name)
            if present is None:
                reasons += await self._create(stateful_set, holder, template, name)
            elif "deletionTimestamp" in present["metadata"]:
                reasons.append(f"pvc {name} is being deleted")
        if reasons:
            raise ClaimRefused("; ".join(reasons))

    async def _create(
        self, stateful_set: StatefulSet, holder: Holder, template: PersistentVolumeClaim, name: str
    ) -> list[str]:
        metadata = template["metadata"]
        labels = {**(metadata.get("labels") or {}), **(stateful_set["spec"]["selector"].get("matchLabels") or {})}
        own = {"name": name, "namespace": stateful_set["metadata"]["namespace"], "labels": labels}
        if metadata.get("annotations"):
            own["annotations"] = metadata["annotations"]
        where = f"Pod {holder.name} in StatefulSet {stateful_set['metadata']['name']}"
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": own, "spec": template["spec"]}
        try:
            await self._client.create(claim)
        except errors.AlreadyExists as error:
            return [f"failed to create PVC {name}: {error}"]  # The cache is behind: the next reconcile sees it.
        except FAILURES as error:
            self._events.warning(stateful_set, "FailedCreate", f"Create Claim {name} for {where} failed error: {error}")
            return [f"failed to create PVC {name}: {error}"]
        self._events.normal(stateful_set, "SuccessfulCreate", f"Create Claim {name} {where} success")
        return []

    def is_stale(self, stateful_set: StatefulSet, holder: Holder) -> bool:
        """Whether a claim belongs to an earlier pod of this name and is deleted with it: the new pod must wait."""
        if _policy(stateful_set)[0] == "Retain":
            return False
        claims = (self._find(stateful_set, name) for name in claim_names(stateful_set, holder.ordinal).values())
        return any(claim is not None and _has_stale_pod(_references(claim), holder) for claim in claims)

    def follow_policy(self, stateful_set: StatefulSet, holder: Holder) -> bool:
        """Whether the owners of all claims of a pod are as the retention policy wants them."""
        claims = (self._find(stateful_set, name) for name in claim_names(stateful_set, holder.ordinal).values())
        return all(claim is None or wanted_owners(claim, stateful_set, holder) is None for claim in claims)

    async def apply_policy(self, stateful_set: StatefulSet, holder: Holder) -> None:
        """Set the owners of a pod's claims as the retention policy wants them."""
        for name in claim_names(stateful_set, holder.ordinal).values():
            seen = self._find(stateful_set, name)
            if seen is None or wanted_owners(seen, stateful_set, holder) is None:
                continue
            claim = await self._client.get_or_none(
                PersistentVolumeClaim, name, namespace=stateful_set["metadata"]["namespace"]
            )
            wanted = wanted_owners(claim, stateful_set, holder) if claim is not None else None
            if claim is None or wanted is None:
                continue
            if _has_other_controller(_references(claim), stateful_set, holder):
                message = (
                    f"PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a manging controller, "
                    "the retention policy is ignored for this claim"
                )
                self._events.warning(stateful_set, "ConflictingController", message)
            await self._client.update({**claim, "metadata": {**claim["metadata"], "ownerReferences": wanted}})

    def _find(self, stateful_set: StatefulSet, name: str) -> PersistentVolumeClaim | None:
        return self._cache.get(Key(stateful_set["metadata"]["namespace"], name))


def wanted_owners(
    claim: PersistentVolumeClaim, stateful_set: StatefulSet, holder: Holder
) -> list[OwnerReference] | None:
    """Return the owner references that the retention policy wants for a claim; None if it has them.

    The set owns claims that go with it; a pod that was scaled down owns claims that go with scaling.
    """
    references = _references(claim)
    if _has_stale_set(references, stateful_set) or _has_stale_pod(references, holder):
        return None  # Owned by an earlier set of the name: the garbage collector decides.
    others = [
        reference
        for reference in references
        if not _is_of_set(reference, stateful_set) and not _is_of_pod(reference, holder)
    ]
    when_scaled, when_deleted = _policy(stateful_set)
    wanted = list(others)
    if not _has_other_controller(references, stateful_set, holder):
        goes_with_pod = when_scaled == "Delete" and holder.is_scaled_down
        if goes_with_pod and holder.uid:
            wanted.append(holder.reference)
        if when_deleted == "Delete" and not goes_with_pod:
            wanted.append(owner_reference(stateful_set))
    own_now = {(reference["uid"], bool(reference.get("controller"))) for reference in references}
    return (
        None if own_now == {(reference["uid"], bool(reference.get("controller"))) for reference in wanted} else wanted
    )


def _references(claim: PersistentVolumeClaim) -> list[OwnerReference]:
    return claim["metadata"].get("ownerReferences") or []


def _policy(stateful_set: StatefulSet) -> tuple[str, str]:
    """Return the retention policy: when scaled, when deleted."""
    policy = stateful_set["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    return policy.get("whenScaled", "Retain"), policy.get("whenDeleted", "Retain")


def _is_of_set(reference: OwnerReference, stateful_set: StatefulSet) -> bool:
    named = (reference.get("apiVersion"), reference.get("kind"), reference.get("name"))
    return named == ("apps/v1", "StatefulSet", stateful_set["metadata"]["name"])


def _is_of_pod(reference: OwnerReference, holder: Holder) -> bool:
    return (reference.get("apiVersion"), reference.get("kind"), reference.get("name")) == ("v1", "Pod", holder.name)


def _has_stale_set(references: list[OwnerReference], stateful_set: StatefulSet) -> bool:
    uid = stateful_set["metadata"]["uid"]
    return any(_is_of_set(reference, stateful_set) and reference.get("uid") != uid for reference in references)


def _has_stale_pod(references: list[OwnerReference], holder: Holder) -> bool:
    return any(_is_of_pod(reference, holder) and reference.get("uid") != holder.uid for reference in references)


def _has_other_controller(references: list[OwnerReference], stateful_set: StatefulSet, holder: Holder) -> bool:
    """Whether another object controls a claim; False where claims are retained anyway."""
    if _policy(stateful_set) == ("Retain", "Retain"):
        return False
    return any(
        reference.get("controller") and not _is_of_set(reference, stateful_set) and not _is_of_pod(reference, holder)
        for reference in references
    )
