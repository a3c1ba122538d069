"""Binds claims to volumes, sets the status of both, and reclaims volumes whose claim is gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.controllers.metric_names import (
    BOUND_CLAIMS,
    BOUND_VOLUMES,
    TOTAL_VOLUMES,
    UNBOUND_CLAIMS,
    UNBOUND_VOLUMES,
)
from pinnace.controllers.pods import pod_of
from pinnace.controllers.storage import volumes as rules
from pinnace.controllers.storage.volumes import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    OLD_PROVISIONER,
    PROVISIONED_BY,
    PROVISIONER,
    SELECTED_NODE,
    annotations_of,
    class_of,
)
from pinnace.kinds.core.persistent_volumes import source_of
from pinnace.model.objects import AnyObject, Key
from pinnace.model.typed_objects import (
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeStatus,
    Pod,
    StorageClass,
)
from pinnace.process.exposition import Labels, Sample
from pinnace.reconcile.cache import Cache
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.events import EventType
from pinnace.reconcile.manager import Manager
from pinnace.reconcile.metrics import Metrics

_COMPONENT = "persistentvolume-controller"
BY_CLAIM = "claim"
_FREE = "free"
_PENDING = "pending"


class VolumeBinder:
    """One worker for claims, one for volumes: no two claims are ever bound to the same volume."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._recorder = manager.recorder
        self._claims = manager.cache(PersistentVolumeClaim)
        self._volumes = manager.cache(PersistentVolume)
        self._classes = manager.cache(StorageClass)
        self._pods = manager.cache(Pod)
        add_volume_metrics(manager.metrics, self._volumes, self._claims)
        self._volumes.add_index(BY_CLAIM, claim_of_volume)
        self._volumes.add_index(_FREE, _class_if_free)
        self._claims.add_index(_PENDING, _class_if_pending)
        self._pods.add_encoded_index(BY_CLAIM, index_by_claim)
        self.claim_controller = Controller("persistentvolume-binder-claims", self._reconcile_claim)
        self.claim_controller.for_(PersistentVolumeClaim)
        self.claim_controller.watches(PersistentVolume, self._claims_for)
        self.claim_controller.watches(StorageClass, self._claims_in)
        self.volume_controller = Controller("persistentvolume-binder-volumes", self._reconcile_volume)
        self.volume_controller.for_(PersistentVolume)
        self.volume_controller.watches(PersistentVolumeClaim, self._volumes_of)
        self.controllers = (self.claim_controller, self.volume_controller)

    # Changes

    def _claims_for(self, volume: PersistentVolume) -> Iterable[Key]:
        """Return the claim of a volume; for a free one the claims that wait for such a volume, or name it."""
        reference = volume["spec"].get("claimRef")
        if reference is not None:
            return (Key(reference["namespace"], reference["name"]),)
        waiting = self._claims.keys_by_index(_PENDING, class_of(volume))
        return waiting | self._claims.keys_by_index(_PENDING, f"volume {volume['metadata']['name']}")

    def _claims_in(self, storage_class: StorageClass) -> Iterable[Key]:
        name = storage_class["metadata"]["name"]
        return self._claims.keys_by_index(_PENDING, name) | self._claims.keys_by_index(_PENDING, "")

    def _volumes_of(self, claim: PersistentVolumeClaim) -> Iterable[Key]:
        key = Key(claim["metadata"]["namespace"], claim["metadata"]["name"])
        keys = self._volumes.keys_by_index(BY_CLAIM, str(key))
        name = claim["spec"].get("volumeName")
        return keys | ({Key("", name)} if name else set())

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

    async def _bind_any(self, claim: PersistentVolumeClaim) -> None:
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

    def _candidates(self, claim: PersistentVolumeClaim) -> Iterator[PersistentVolume]:
        key = Key(claim["metadata"]["namespace"], claim["metadata"]["name"])
        yield from self._volumes.by_index(BY_CLAIM, str(key))
        yield from self._volumes.by_index(_FREE, class_of(claim))

    def _waiting_for(self, claim: PersistentVolumeClaim) -> tuple[str, str]:
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

    async def _provision(self, claim: PersistentVolumeClaim, storage_class: StorageClass | None) -> None:
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

    async def _bind_named(self, claim: PersistentVolumeClaim) -> None:
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

    async def _check_bound(self, claim: PersistentVolumeClaim) -> None:
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

    async def _bind(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> None:
        """Bind a claim to a volume in at most four writes. After a restart, the next reconcile continues."""
        reference = volume["spec"].get("claimRef")
        if reference is None or reference.get("uid") != claim["metadata"]["uid"]:
            if reference is None:
                rules.annotate(volume, **{BOUND_BY_CONTROLLER: "yes"})
            volume["spec"]["claimRef"] = {**(reference or {}), **rules.reference_to(claim)}
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

    async def _set_claim(self, claim: PersistentVolumeClaim, phase: str, volume: PersistentVolume | None) -> bool:
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
        elif (
            PROVISIONED_BY in annotations_of(volume) and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
        ):
            await self._release(volume)
        else:
            await self._unbind(volume)

    async def _claim_of(self, reference: ObjectReference) -> PersistentVolumeClaim | None:
        """Return the claim of a volume. Before a volume is released, the claim is read from the server."""
        key = Key(reference["namespace"], reference["name"])
        claim = self._claims.get(key)
        if claim is None or claim["metadata"]["uid"] != reference["uid"]:
            claim = await self._client.get_or_none(PersistentVolumeClaim, key.name, namespace=key.namespace)
        return claim if claim is not None and claim["metadata"]["uid"] == reference["uid"] else None

    async def _release(self, volume: PersistentVolume) -> None:
        phase = (volume.get("status") or {}).get("phase")
        if phase not in ("Released", "Failed"):
            volume = await self._set_volume(volume, "Released", "")
        failure = reclaim_failure(volume) if phase != "Failed" else None
        if failure is not None:
            await self._set_volume(volume, "Failed", failure[1])
            self._tell(volume, "Warning", *failure)

    async def _unbind(self, volume: PersistentVolume) -> None:
        """Unbind a volume from a claim that has another one; a user's own binding stays, without the uid."""
        if BOUND_BY_CONTROLLER in annotations_of(volume):
            volume["spec"].pop("claimRef")
            del volume["metadata"]["annotations"][BOUND_BY_CONTROLLER]
        else:
            volume["spec"]["claimRef"].pop("uid", None)
        await self._set_volume(await self._client.update(volume), "Available", "")

    async def _set_volume(self, volume: PersistentVolume, phase: str, message: str) -> PersistentVolume:
        status = volume.get("status") or {}
        if status.get("phase") == phase:
            return volume
        after: PersistentVolumeStatus = {**status, "phase": phase, "message": message}
        if not message:
            del after["message"]
        changed: PersistentVolume = {**volume, "status": after}
        return await self._client.update_status(changed)

    def _tell_modes(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> None:
        names = (claim["metadata"]["name"], volume["metadata"]["name"])
        start, end = "Cannot bind PersistentVolume", "due to incompatible volumeMode."
        text = f'{start} to requested PersistentVolumeClaim "{names[0]}" {end}'
        self._tell(volume, "Warning", "VolumeMismatch", text)
        text = f'{start} "{names[1]}" to requested PersistentVolumeClaim {end}'
        self._tell(claim, "Warning", "VolumeMismatch", text)

    def _tell(self, about: AnyObject, type: EventType, reason: str, message: str) -> None:
        self._recorder.record(about, type, reason, message, component=_COMPONENT)


def claim_of_volume(volume: PersistentVolume) -> Iterator[str]:
    reference = volume["spec"].get("claimRef")
    if reference is not None:
        yield f"{reference.get('namespace', '')}/{reference.get('name', '')}"


def claims_of_pod(pod: Pod) -> Iterator[str]:
    """Return the claims that a pod mounts, those of its ephemeral volumes included."""
    namespace = pod["metadata"]["namespace"]
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        claim = volume.get("persistentVolumeClaim")
        if claim is not None:
            yield f"{namespace}/{claim['claimName']}"
        elif volume.get("ephemeral") is not None:
            yield f"{namespace}/{pod['metadata']['name']}-{volume['name']}"


def index_by_claim(snapshot: Snapshot[Pod]) -> Iterable[str]:
    """Index pods by the claims that they mount. Most mount none, which a search of the bytes shows."""
    is_mounting = b'"persistentVolumeClaim"' in snapshot.body or b'"ephemeral"' in snapshot.body
    return claims_of_pod(snapshot.object) if is_mounting else ()


def _class_if_free(volume: PersistentVolume) -> Iterator[str]:
    if volume["spec"].get("claimRef") is None:
        yield class_of(volume)


def _class_if_pending(claim: PersistentVolumeClaim) -> Iterator[str]:
    if (claim.get("status") or {}).get("phase", "Pending") == "Pending":
        yield class_of(claim)
        if claim["spec"].get("volumeName"):
            yield f"volume {claim['spec']['volumeName']}"


def _is_scheduled(snapshot: Snapshot[Pod]) -> bool:
    pod = pod_of(snapshot)
    return bool(pod.spec.nodeName) or pod.is_finished


def reclaim_failure(volume: PersistentVolume) -> tuple[str, str] | None:
    """Return the reason and the message of the Event for a volume that cannot be reclaimed; None without failure.

    A volume that a provisioner has created is deleted by that provisioner. No other deleter and no recycler exists.
    """
    match volume["spec"].get("persistentVolumeReclaimPolicy") or "Retain":
        case "Retain":
            return None
        case "Recycle":
            return "VolumeFailedRecycle", "No recycler plugin found for the volume!"
        case "Delete":
            if PROVISIONED_BY in annotations_of(volume):
                return None
            name = volume["metadata"]["name"]
            text = f'error getting deleter volume plugin for volume "{name}": no deletable volume plugin matched'
            return "VolumeFailedDelete", text
        case _:
            return "VolumeUnknownReclaimPolicy", "Volume has unrecognized PersistentVolumeReclaimPolicy"


_Facts = tuple[bool, Labels, Labels]
"""Whether a volume or claim is bound, and its labels in the two metrics: by state, and in total."""
_PLUGINS = {"hostPath": "host-path", "local": "local-volume"}
"""Sources whose plug-ins have other names."""


def add_volume_metrics(
    metrics: Metrics, volumes: Cache[PersistentVolume], claims: Cache[PersistentVolumeClaim]
) -> None:
    """Add the numbers of volumes and claims, by class, plug-in and namespace."""
    metrics.gauge(BOUND_VOLUMES, "Bound volumes, by class.", lambda: _count(volumes, _volume_facts, is_bound=True))
    metrics.gauge(UNBOUND_VOLUMES, "Unbound volumes, by class.", lambda: _count(volumes, _volume_facts, is_bound=False))
    metrics.gauge(TOTAL_VOLUMES, "Volumes, by plug-in and mode.", lambda: _count(volumes, _volume_facts))
    metrics.gauge(BOUND_CLAIMS, "Bound claims.", lambda: _count(claims, _claim_facts, is_bound=True))
    metrics.gauge(UNBOUND_CLAIMS, "Unbound claims.", lambda: _count(claims, _claim_facts, is_bound=False))


def _count(
    cache: Cache[Any], facts_of: Callable[[Snapshot], _Facts], *, is_bound: bool | None = None
) -> Iterable[Sample]:
    facts = (snapshot.derive(facts_of) for snapshot in cache.snapshots())
    counts = Counter(
        total if is_bound is None else labels for bound, labels, total in facts if is_bound is None or bound is is_bound
    )
    return [(labels, float(count)) for labels, count in sorted(counts.items())]


def _volume_facts(snapshot: Snapshot) -> _Facts:
    volume = snapshot.object
    spec = volume["spec"]
    source = source_of(spec)
    plugin = f"kubernetes.io/{_PLUGINS.get(source, source)}"
    if source == "csi":
        plugin = f"{plugin}:{spec['csi'].get('driver', '')}"
    is_bound = (volume.get("status") or {}).get("phase") == "Bound"
    total = (("plugin_name", plugin), ("volume_mode", spec.get("volumeMode") or "Filesystem"))
    return is_bound, (("storage_class", class_of(volume)),), total


def _claim_facts(snapshot: Snapshot) -> _Facts:
    claim = snapshot.object
    labels = (
        ("namespace", claim["metadata"]["namespace"]),
        ("storage_class", class_of(claim)),
        ("volume_attributes_class", claim["spec"].get("volumeAttributesClassName") or ""),
    )
    return (claim.get("status") or {}).get("phase") == "Bound", labels, ()
