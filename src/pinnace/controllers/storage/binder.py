"""Binds claims to volumes, sets the status of both, and reclaims volumes whose claim is gone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.controllers.pods import POD, pod_of
from pinnace.controllers.storage import volumes as rules
from pinnace.controllers.storage.reclaim import reclaim_failure
from pinnace.controllers.storage.volume_metrics import add_volume_metrics
from pinnace.controllers.storage.volumes import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    CLAIM,
    CLASS,
    OLD_PROVISIONER,
    PROVISIONED_BY,
    PROVISIONER,
    SELECTED_NODE,
    VOLUME,
    annotations_of,
    class_of,
)
from pinnace.model.objects import Key, Object
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.events import EventType
from pinnace.reconcile.manager import Manager

_COMPONENT = "persistentvolume-controller"
BY_CLAIM = "claim"
_FREE = "free"
_PENDING = "pending"


class VolumeBinder:
    """One worker for claims, one for volumes: no two claims are ever bound to the same volume."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._recorder = manager.recorder
        self._claims = manager.cache(CLAIM)
        self._volumes = manager.cache(VOLUME)
        self._classes = manager.cache(CLASS)
        self._pods = manager.cache(POD)
        add_volume_metrics(manager.metrics, self._volumes, self._claims)
        self._volumes.add_index(BY_CLAIM, claim_of_volume)
        self._volumes.add_index(_FREE, _class_if_free)
        self._claims.add_index(_PENDING, _class_if_pending)
        self._pods.add_encoded_index(BY_CLAIM, index_by_claim)
        self.claim_controller = Controller("persistentvolume-binder-claims", self._reconcile_claim)
        self.claim_controller.for_(CLAIM)
        self.claim_controller.watches(VOLUME, self._claims_for)
        self.claim_controller.watches(CLASS, self._claims_in)
        self.volume_controller = Controller("persistentvolume-binder-volumes", self._reconcile_volume)
        self.volume_controller.for_(VOLUME)
        self.volume_controller.watches(CLAIM, self._volumes_of)
        self.controllers = (self.claim_controller, self.volume_controller)

    # Changes

    def _claims_for(self, volume: Object) -> Iterable[Key]:
        """Return the claim of a volume; for a free one the claims that wait for such a volume, or name it."""
        reference = volume["spec"].get("claimRef")
        if reference is not None:
            return (Key(reference["namespace"], reference["name"]),)
        waiting = self._claims.keys_by_index(_PENDING, class_of(volume))
        return waiting | self._claims.keys_by_index(_PENDING, f"volume {volume['metadata']['name']}")

    def _claims_in(self, storage_class: Object) -> Iterable[Key]:
        name = storage_class["metadata"]["name"]
        return self._claims.keys_by_index(_PENDING, name) | self._claims.keys_by_index(_PENDING, "")

    def _volumes_of(self, claim: Object) -> Iterable[Key]:
        key = Key(claim["metadata"]["namespace"], claim["metadata"]["name"])
        found = self._volumes.keys_by_index(BY_CLAIM, str(key))
        name = claim["spec"].get("volumeName")
        return found | ({Key("", name)} if name else set())

    # Claims

    async def _reconcile_claim(self, key: Key) -> None:
        claim = self._claims.get(key)
        if claim is None:
            return
        if BIND_COMPLETED in annotations_of(claim):
            await self._check_bound(claim)
        elif claim["spec"].get("volumeName"):
            await self._bind_named(claim)
        else:
            await self._bind_any(claim)

    async def _bind_any(self, claim: Object) -> None:
        storage_class = self._classes.get(Key("", class_of(claim))) if class_of(claim) else None
        waits = rules.waits_for_consumer(storage_class)
        volume = rules.best_match(claim, self._candidates(claim), only_prebound=waits)
        if volume is not None:
            await self._bind(volume, claim)
            return
        if not rules.has_class(claim):
            default = rules.default_class(self._classes.list())
            if default is not None:
                claim["spec"]["storageClassName"] = default["metadata"]["name"]
                await self._client.update(claim)
                return
        if waits and SELECTED_NODE not in annotations_of(claim):
            self._tell(claim, "Normal", *self._waiting_for(claim))
        elif class_of(claim):
            await self._provision(claim, storage_class)
            return
        else:
            text = "no persistent volumes available for this claim and no storage class is set"
            self._tell(claim, "Normal", "FailedBinding", text)
        await self._set_claim(claim, "Pending", None)

    def _candidates(self, claim: Object) -> Iterator[Object]:
        key = Key(claim["metadata"]["namespace"], claim["metadata"]["name"])
        yield from self._volumes.by_index(BY_CLAIM, str(key))
        yield from self._volumes.by_index(_FREE, class_of(claim))

    def _waiting_for(self, claim: Object) -> tuple[str, str]:
        """Return the reason and the message of the Event that says for which pods a claim waits."""
        key = Key(claim["metadata"]["namespace"], claim["metadata"]["name"])
        names = [
            pod.name
            for pod in sorted(self._pods.keys_by_index(BY_CLAIM, str(key)))
            if (seen := self._pods.snapshot(pod)) is not None and not _is_scheduled(seen)
        ]
        if not names:
            return "WaitForFirstConsumer", "waiting for first consumer to be created before binding"
        noun = "pods" if len(names) > 1 else "pod"
        return "WaitForPodScheduled", f"waiting for {noun} {','.join(names)} to be scheduled"

    async def _provision(self, claim: Object, storage_class: Object | None) -> None:
        """Ask the provisioner of the class for a volume, through the annotation that it reads."""
        if storage_class is None:
            text = f'storageclass.storage.k8s.io "{class_of(claim)}" not found'
            self._tell(claim, "Warning", "ProvisioningFailed", text)
            await self._set_claim(claim, "Pending", None)
            return
        provisioner = storage_class["provisioner"]
        if provisioner.startswith("kubernetes.io/"):
            if provisioner != "kubernetes.io/no-provisioner":
                text = f"no volume plugin matched name: {provisioner}"
                self._tell(claim, "Warning", "ProvisioningFailed", text)
            await self._set_claim(claim, "Pending", None)
            return
        if annotations_of(claim).get(PROVISIONER) != provisioner:
            rules.annotate(claim, **{PROVISIONER: provisioner, OLD_PROVISIONER: provisioner})
            claim = await self._client.update(claim)
        text = (
            f"Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the "
            "system administrator. If volume creation is delayed, please verify that the provisioner is running and "
            "correctly registered."
        )
        self._tell(claim, "Normal", "ExternalProvisioning", text)
        await self._set_claim(claim, "Pending", None)

    async def _bind_named(self, claim: Object) -> None:
        name = claim["spec"]["volumeName"]
        volume = self._volumes.get(Key("", name))
        if volume is None:
            await self._set_claim(claim, "Pending", None)
        elif volume["spec"].get("claimRef") is None:
            why = rules.mismatch(volume, claim)
            if why:
                self._tell(claim, "Warning", "VolumeMismatch", f'Cannot bind to requested volume "{name}": {why}')
                await self._set_claim(claim, "Pending", None)
            else:
                await self._bind(volume, claim)
        elif rules.is_bound_to(volume, claim):
            await self._bind(volume, claim)
        else:
            text = f'volume "{name}" already bound to a different claim.'
            self._tell(claim, "Warning", "FailedBinding", text)
            await self._set_claim(claim, "Pending", None)

    async def _check_bound(self, claim: Object) -> None:
        name = claim["spec"].get("volumeName")
        volume = self._volumes.get(Key("", name)) if name else None
        lost, reason, text = True, "ClaimLost", ""
        if not name:
            text = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"
        elif volume is None:
            text = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
        elif (volume["spec"].get("claimRef") or {}).get("uid", claim["metadata"]["uid"]) != claim["metadata"]["uid"]:
            reason = "ClaimMisbound"
            text = "Two claims are bound to the same volume, this one is bound incorrectly"
        else:
            lost = False
        if not lost and volume is not None:
            await self._bind(volume, claim)
        elif await self._set_claim(claim, "Lost", None):
            self._tell(claim, "Warning", reason, text)

    async def _bind(self, volume: Object, claim: Object) -> None:
        """Bind a claim to a volume in at most four writes. After a restart, the next reconcile continues."""
        reference = volume["spec"].get("claimRef")
        if reference is None or reference.get("uid") != claim["metadata"]["uid"]:
            if reference is None:
                rules.annotate(volume, **{BOUND_BY_CONTROLLER: "yes"})
            volume["spec"]["claimRef"] = (reference or {}) | rules.reference_to(claim)
            volume = await self._client.update(volume)
        volume = await self._set_volume(volume, "Bound", "")
        name = volume["metadata"]["name"]
        if claim["spec"].get("volumeName") != name:
            claim["spec"]["volumeName"] = name
            rules.annotate(claim, **{BOUND_BY_CONTROLLER: "yes", BIND_COMPLETED: "yes"})
            claim = await self._client.update(claim)
        elif BIND_COMPLETED not in annotations_of(claim):
            rules.annotate(claim, **{BIND_COMPLETED: "yes"})
            claim = await self._client.update(claim)
        await self._set_claim(claim, "Bound", volume)

    async def _set_claim(self, claim: Object, phase: str, volume: Object | None) -> bool:
        """Write the status of a claim if it differs; return whether its phase did."""
        before = claim.get("status") or {}
        after = {**before, "phase": phase}
        if volume is None:
            for name in ("accessModes", "capacity", "currentVolumeAttributesClassName"):
                after.pop(name, None)
        else:
            after["accessModes"] = volume["spec"].get("accessModes") or []
            if before.get("phase") != phase:
                # Later, a difference may be intended: the volume has grown and its file system has not.
                after["capacity"] = {**(before.get("capacity") or {}), "storage": volume["spec"]["capacity"]["storage"]}
            attributes = volume["spec"].get("volumeAttributesClassName")
            if attributes and before.get("phase") != phase:
                after["currentVolumeAttributesClassName"] = attributes
        if after != before:
            await self._client.update_status({**claim, "status": after})
        return bool(before.get("phase") != phase)

    # Volumes

    async def _reconcile_volume(self, key: Key) -> None:
        volume = self._volumes.get(key)
        if volume is None:
            return
        reference = volume["spec"].get("claimRef")
        if reference is None or not reference.get("uid"):
            await self._set_volume(volume, "Available", "")
            return
        claim = await self._claim_of(reference)
        if claim is None:
            await self._release(volume)
        elif not claim["spec"].get("volumeName"):
            if rules.volume_mode(claim) != rules.volume_mode(volume):
                self._tell_modes(volume, claim)
            # The claim's own reconcile binds it.
        elif claim["spec"]["volumeName"] == key.name:
            await self._set_volume(volume, "Bound", "")
        elif PROVISIONED_BY in annotations_of(volume) and _policy(volume) == "Delete":
            await self._release(volume)
        else:
            await self._unbind(volume)

    async def _claim_of(self, reference: Object) -> Object | None:
        """Return the claim of a volume. Before a volume is released, the claim is read from the server."""
        key = Key(reference["namespace"], reference["name"])
        claim = self._claims.get(key)
        if claim is None or claim["metadata"]["uid"] != reference["uid"]:
            claim = await self._client.get_or_none(CLAIM, key.name, namespace=key.namespace)
        return claim if claim is not None and claim["metadata"]["uid"] == reference["uid"] else None

    async def _release(self, volume: Object) -> None:
        phase = (volume.get("status") or {}).get("phase")
        if phase not in ("Released", "Failed"):
            volume = await self._set_volume(volume, "Released", "")
        failure = reclaim_failure(volume) if phase != "Failed" else None
        if failure is not None:
            await self._set_volume(volume, "Failed", failure[1])
            self._tell(volume, "Warning", *failure)

    async def _unbind(self, volume: Object) -> None:
        """Unbind a volume from a claim that has another one; a user's own binding stays, without the uid."""
        if BOUND_BY_CONTROLLER in annotations_of(volume):
            volume["spec"]["claimRef"] = None
            del volume["metadata"]["annotations"][BOUND_BY_CONTROLLER]
        else:
            volume["spec"]["claimRef"].pop("uid", None)
        await self._set_volume(await self._client.update(volume), "Available", "")

    async def _set_volume(self, volume: Object, phase: str, message: str) -> Object:
        status = volume.get("status") or {}
        if status.get("phase") == phase:
            return volume
        after = {**status, "phase": phase, "message": message}
        if not message:
            del after["message"]
        return await self._client.update_status({**volume, "status": after})

    def _tell_modes(self, volume: Object, claim: Object) -> None:
        names = (claim["metadata"]["name"], volume["metadata"]["name"])
        start, end = "Cannot bind PersistentVolume", "due to incompatible volumeMode."
        text = f'{start} to requested PersistentVolumeClaim "{names[0]}" {end}'
        self._tell(volume, "Warning", "VolumeMismatch", text)
        text = f'{start} "{names[1]}" to requested PersistentVolumeClaim {end}'
        self._tell(claim, "Warning", "VolumeMismatch", text)

    def _tell(self, about: Object, type: EventType, reason: str, message: str) -> None:
        self._recorder.record(about, type, reason, message, component=_COMPONENT)


def claim_of_volume(volume: Object) -> Iterator[str]:
    reference = volume["spec"].get("claimRef")
    if reference is not None:
        yield f"{reference.get('namespace', '')}/{reference.get('name', '')}"


def claims_of_pod(pod: Object) -> Iterator[str]:
    """Return the claims that a pod mounts, those of its ephemeral volumes included."""
    namespace = pod["metadata"]["namespace"]
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        claim = volume.get("persistentVolumeClaim")
        if claim is not None:
            yield f"{namespace}/{claim['claimName']}"
        elif volume.get("ephemeral") is not None:
            yield f"{namespace}/{pod['metadata']['name']}-{volume['name']}"


def index_by_claim(snapshot: Snapshot) -> Iterable[str]:
    """Index pods by the claims that they mount. Most mount none, which a search of the bytes shows."""
    is_mounting = b'"persistentVolumeClaim"' in snapshot.body or b'"ephemeral"' in snapshot.body
    return claims_of_pod(snapshot.object) if is_mounting else ()


def _class_if_free(volume: Object) -> Iterator[str]:
    if volume["spec"].get("claimRef") is None:
        yield class_of(volume)


def _class_if_pending(claim: Object) -> Iterator[str]:
    if (claim.get("status") or {}).get("phase", "Pending") == "Pending":
        yield class_of(claim)
        if claim["spec"].get("volumeName"):
            yield f"volume {claim['spec']['volumeName']}"


def _is_scheduled(snapshot: Snapshot) -> bool:
    pod = pod_of(snapshot)
    return bool(pod.spec.nodeName) or pod.is_finished


def _policy(volume: Object) -> str:
    return str(volume["spec"].get("persistentVolumeReclaimPolicy") or "Retain")
