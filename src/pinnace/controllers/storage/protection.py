"""Protects claims, volumes, their classes, and groups of pods from deletion while they are in use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.client.typed import Stored
from pinnace.kinds.scheduling import POD_GROUP_PROTECTION
from pinnace.model.objects import AnyObject, Key, key_of
from pinnace.model.typed_objects import (
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodGroup,
    StoredObject,
    VolumeAttributesClass,
)
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.manager import Manager


class Protection(Generic[Stored]):
    """Manages the finalizer of one kind: removed when the object is being deleted and is no longer used.

    Only metadata is watched. Objects are read when one of them is being deleted, which is rare.
    """

    def __init__(
        self,
        manager: Manager,
        client: Client,
        *,
        kind: type[Stored],
        finalizer: str,
        is_used: Callable[[Stored], Awaitable[bool]],
        users: Sequence[type[StoredObject]] = (),
        is_added: bool = True,
    ) -> None:
        """`users` are the kinds whose objects use the protected ones, in their own namespace if they are namespaced.

        `is_added`: add the finalizer where it is missing. Otherwise only the admission plug-in does.
        """
        self._is_added = is_added
        self._client = client
        self._kind = kind
        self._finalizer = finalizer
        self._is_used = is_used
        self._leaving = f"leaving without {finalizer}"
        self._objects = manager.cache(kind)
        self._objects.add_index(self._leaving, _leaving_from)
        self.controller = Controller(f"{kind.__name__.lower()}-protection", self._reconcile)
        self.controller.for_(kind)
        for user in users:
            self.controller.watches_encoded(user, self._concerned)

    def _concerned(self, user: Snapshot[Any]) -> Iterable[Key]:
        """Return the objects that may no longer be in use."""
        namespace = user.key.namespace if self._kind in (PersistentVolumeClaim, PodGroup) else ""
        return self._objects.keys_by_index(self._leaving, namespace)

    async def _reconcile(self, key: Key) -> None:
        seen = self._objects.get(key)
        if seen is None or self._is_right(seen):
            return
        obj = await self._client.get_or_none(self._kind, key.name, namespace=key.namespace)
        if obj is None or self._is_right(obj):
            return
        finalizers = obj["metadata"].get("finalizers") or []
        if "deletionTimestamp" not in obj["metadata"]:
            obj["metadata"]["finalizers"] = [*finalizers, self._finalizer]
        elif await self._is_used(obj):
            return
        else:
            obj["metadata"]["finalizers"] = [finalizer for finalizer in finalizers if finalizer != self._finalizer]
        await self._client.update(obj)

    def _is_right(self, obj: AnyObject) -> bool:
        is_leaving = "deletionTimestamp" in obj["metadata"]
        if not is_leaving and not self._is_added:
            return True
        return is_leaving != (self._finalizer in (obj["metadata"].get("finalizers") or ()))


def protect_claims(manager: Manager, client: Client) -> Protection[PersistentVolumeClaim]:
    """Protect claims from deletion while a scheduled pod uses them."""

    async def is_used(claim: PersistentVolumeClaim) -> bool:
        pods = await client.list(Pod, namespace=claim["metadata"]["namespace"])
        return any(_mounts(pod, claim) for pod in pods)

    return Protection(
        manager,
        client,
        kind=PersistentVolumeClaim,
        finalizer="kubernetes.io/pvc-protection",
        users=(Pod,),
        is_used=is_used,
    )


def protect_volumes(manager: Manager, client: Client) -> Protection[PersistentVolume]:
    """Protect volumes from deletion while they are bound to a claim."""

    async def is_used(volume: PersistentVolume) -> bool:
        return (volume.get("status") or {}).get("phase") == "Bound"

    return Protection(
        manager,
        client,
        kind=PersistentVolume,
        finalizer="kubernetes.io/pv-protection",
        is_used=is_used,
    )


def protect_classes(manager: Manager, client: Client) -> Protection[VolumeAttributesClass]:
    """Protect VolumeAttributesClasses from deletion while a claim or a volume names them."""

    async def is_used(named: VolumeAttributesClass) -> bool:
        name = named["metadata"]["name"]
        claims = await client.list(PersistentVolumeClaim)
        return any(name in _classes_of(claim) for claim in claims) or any(
            name in _classes_of(volume) for volume in await client.list(PersistentVolume)
        )

    return Protection(
        manager,
        client,
        kind=VolumeAttributesClass,
        finalizer="kubernetes.io/vac-protection",
        users=(PersistentVolumeClaim, PersistentVolume),
        is_used=is_used,
    )


def protect_pod_groups(manager: Manager, client: Client) -> Protection[PodGroup]:
    """Protect PodGroups from deletion while a pod that has not ended belongs to them."""

    async def is_used(group: PodGroup) -> bool:
        metadata = group["metadata"]
        pods = await client.list(Pod, namespace=metadata["namespace"])
        return any(_is_active_member(pod, metadata["name"]) for pod in pods)

    return Protection(
        manager,
        client,
        kind=PodGroup,
        finalizer=POD_GROUP_PROTECTION,
        users=(Pod,),
        is_used=is_used,
        is_added=False,
    )


def _is_active_member(pod: Pod, group: str) -> bool:
    named = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    return named == group and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def _leaving_from(obj: AnyObject) -> Iterable[str]:
    metadata = obj["metadata"]
    return (metadata.get("namespace", ""),) if "deletionTimestamp" in metadata else ()


def _mounts(pod: Pod, claim: PersistentVolumeClaim) -> bool:
    """Whether a pod uses the claim. Only scheduled pods count: no node starts a pod whose claim is being deleted."""
    spec, name = pod.get("spec") or {}, claim["metadata"]["name"]
    if not spec.get("nodeName"):
        return False
    for volume in spec.get("volumes") or ():
        if (volume.get("persistentVolumeClaim") or {}).get("claimName") == name:
            return True
        is_own = "ephemeral" in volume and f"{key_of(pod).name}-{volume.get('name', '')}" == name
        if is_own and _is_owned(claim, pod) and not _is_shut_down(pod):
            return True
    return False


def _is_owned(claim: PersistentVolumeClaim, pod: Pod) -> bool:
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("uid") == pod["metadata"].get("uid") for owner in owners)


def _is_shut_down(pod: Pod) -> bool:
    """Whether no container of it runs any more; only finalizers may hold it."""
    metadata = pod["metadata"]
    return "deletionTimestamp" in metadata and metadata.get("deletionGracePeriodSeconds") == 0


def _classes_of(user: AnyObject) -> set[str]:
    """Return the classes that a claim or a volume names: requested, current, or being applied."""
    status = user.get("status") or {}
    named = (
        (user.get("spec") or {}).get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName"),
    )
    return {name for name in named if name}
