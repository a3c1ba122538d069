"""Finds how many pods the controller of a pod wants: from caches for the usual kinds, from /scale for all others."""

from __future__ import annotations

from pinnace.client.client import Client
from pinnace.client.mapping import NoSuchKind
from pinnace.controllers.pods import PodOwner
from pinnace.model import errors
from pinnace.model.objects import Key, Kind, Object
from pinnace.reconcile.manager import Manager
from pinnace.reconcile.owners import controller_of

_CACHED = {
    ("", "ReplicationController"): "v1/ReplicationController",
    ("apps", "ReplicaSet"): "apps/v1/ReplicaSet",
    ("extensions", "ReplicaSet"): "apps/v1/ReplicaSet",
    ("apps", "StatefulSet"): "apps/v1/StatefulSet",
}
_DEPLOYMENT = "apps/v1/Deployment"


class ScaleUnknown(Exception):
    """The number of pods that the controller of a pod wants is unknown; the message says why."""


class ControllerScales:
    """Finds the scale behind an owner reference: the uid of the controller that decides, and the replicas it wants."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._caches = {kind: manager.cache(kind) for kind in {*_CACHED.values(), _DEPLOYMENT}}

    async def of(self, owner: PodOwner, namespace: str) -> tuple[str, int] | None:
        """Return the scale behind an owner reference; None if the owner is gone. Raise ScaleUnknown."""
        kind = Kind.parse(owner.apiVersion, owner.kind)
        cached = _CACHED.get((kind.group, kind.name))
        if cached is None:
            return await self._custom(kind, owner, namespace)
        found = self._find(cached, namespace, owner.name, owner.uid)
        if found is None:
            return None
        above = controller_of(found) if kind.name == "ReplicaSet" else None
        if above is not None and above.get("kind") == "Deployment":
            found = self._find(_DEPLOYMENT, namespace, above["name"], above["uid"])
        return (found["metadata"]["uid"], found["spec"].get("replicas", 1)) if found is not None else None

    def _find(self, kind: str, namespace: str, name: str, uid: str) -> Object | None:
        found = self._caches[kind].get(Key(namespace, name))
        return found if found is not None and found["metadata"]["uid"] == uid else None

    async def _custom(self, kind: Kind, owner: PodOwner, namespace: str) -> tuple[str, int] | None:
        try:
            served = await self._client.kinds.find(kind)
            if "scale" not in served.subresources:
                self._client.kinds.forget(kind)  # A newer definition may have it.
                resource = errors.qualified(kind.group, served.plural)
                raise ScaleUnknown(f"{resource} does not implement the scale subresource")
            scale = await self._client.get(kind, owner.name, namespace=namespace, subresource="scale")
        except NoSuchKind:
            raise ScaleUnknown(f'no matches for kind "{kind.name}" in version "{kind.api_version}"') from None
        except errors.NotFound:
            return None
        if scale["metadata"].get("uid") != owner.uid:
            return None
        return owner.uid, (scale.get("spec") or {}).get("replicas", 0)
