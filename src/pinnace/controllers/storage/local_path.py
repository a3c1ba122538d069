"""Provisions volumes that are directories on the node, for the default class or any other class that names it."""

from __future__ import annotations

from collections.abc import Iterable

from pinnace.client.client import Client
from pinnace.controllers.storage.binder import BY_CLAIM, claim_of_volume
from pinnace.controllers.storage.volumes import (
    PROVISIONED_BY,
    PROVISIONER,
    SELECTED_NODE,
    annotations_of,
    class_of,
    reference_to,
    size_of,
    volume_mode,
    wanted_size,
)
from pinnace.model import errors
from pinnace.model.objects import Key, Object
from pinnace.model.typed_objects import PersistentVolume, PersistentVolumeClaim, StorageClass
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.manager import Manager

NAME = "pinnace.dev/local-path"
DIRECTORY = "/var/lib/pinnace/volumes"
"""The parent of the directories, unless the parameter `path` of the class says otherwise."""
_COMPONENT = NAME


def default_storage_class(path: str) -> Object:
    """Return the default storage class: directories below `path` on the node."""
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "standard", "annotations": annotations},
        "provisioner": NAME,
        "parameters": {"path": path},
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": True,
    }


class LocalPathProvisioner:
    """An external provisioner in Kubernetes' sense: it reads the annotation that the binder writes.

    The directory itself is created by the node that mounts it first. A volume has no file system of its own, so an
    expansion only changes its stated capacity.
    """

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._recorder = manager.recorder
        self._claims = manager.cache(PersistentVolumeClaim)
        self._classes = manager.cache(StorageClass)
        self._volumes = manager.cache(PersistentVolume)
        self._volumes.add_index(BY_CLAIM, claim_of_volume)
        self.controller = Controller("local-path-provisioner", self._reconcile, workers=4)
        self.controller.for_(PersistentVolumeClaim, when=_asks_us)
        self.deleter = Controller("local-path-deleter", self._reclaim, workers=4)
        self.deleter.for_(PersistentVolume, when=_is_ours)
        self.controllers = (self.controller, self.deleter)

    async def _reconcile(self, key: Key) -> None:
        claim = self._claims.get(key)
        if claim is None or "deletionTimestamp" in claim["metadata"] or not _is_requested(claim):
            return
        if claim["spec"].get("volumeName"):
            await self._expand(claim)
        else:
            await self._provision(claim)

    async def _provision(self, claim: PersistentVolumeClaim) -> None:
        storage_class = self._classes.get(Key("", class_of(claim)))
        if storage_class is None:
            return
        name = f"pvc-{claim['metadata']['uid']}"
        if Key("", name) in self._volumes:
            return
        why = _reason_to_reject(claim, storage_class)
        if why:
            text = f'failed to provision volume with StorageClass "{class_of(claim)}": {why}'
            self._recorder.record(claim, "Warning", "ProvisioningFailed", text, component=_COMPONENT)
            return
        try:
            await self._client.create(_volume(name, claim, storage_class))
        except errors.AlreadyExists:
            return  # Created before the last restart.
        text = f"Successfully provisioned volume {name}"
        self._recorder.record(claim, "Normal", "ProvisioningSucceeded", text, component=_COMPONENT)

    async def _expand(self, claim: PersistentVolumeClaim) -> None:
        """Raise the capacity of the volume of a claim that asks for more, then that of the claim."""
        volume = self._volumes.get(Key("", claim["spec"]["volumeName"]))
        status = claim.get("status") or {}
        if volume is None or status.get("phase") != "Bound" or not _is_made_here(volume):
            return
        storage_class = self._classes.get(Key("", class_of(claim)))
        if storage_class is None or not storage_class.get("allowVolumeExpansion"):
            return
        wanted = wanted_size(claim)
        if size_of(volume) < wanted:
            volume["spec"]["capacity"]["storage"] = str(wanted)
            volume = await self._client.update(volume)
        recorded = (status.get("capacity") or {}).get("storage")
        if size_of(volume) >= wanted and recorded != volume["spec"]["capacity"]["storage"]:
            status["capacity"] = {**(status.get("capacity") or {}), "storage": volume["spec"]["capacity"]["storage"]}
            kept = [condition for condition in status.get("conditions") or () if condition.get("type") not in _RESIZING]
            status["conditions"] = kept
            await self._client.update_status({**claim, "status": status})
            text = "Resize volume succeeded"
            self._recorder.record(claim, "Normal", "VolumeResizeSuccessful", text, component=_COMPONENT)

    async def _reclaim(self, key: Key) -> None:
        volume = self._volumes.get(key)
        if volume is None or not _is_made_here(volume):
            return
        is_released = (volume.get("status") or {}).get("phase") == "Released"
        if is_released and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
            try:
                await self._client.delete(PersistentVolume, key.name, uid=volume["metadata"]["uid"])
            except errors.NotFound:
                return


_RESIZING = ("Resizing", "FileSystemResizePending")


def _is_requested(claim: PersistentVolumeClaim) -> bool:
    return annotations_of(claim).get(PROVISIONER) == NAME


def _is_made_here(volume: PersistentVolume) -> bool:
    return annotations_of(volume).get(PROVISIONED_BY) == NAME


def _asks_us(old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> bool:
    return new is not None and _is_requested(new)


def _is_ours(old: PersistentVolume | None, new: PersistentVolume | None) -> bool:
    return new is not None and _is_made_here(new)


def _reason_to_reject(claim: PersistentVolumeClaim, storage_class: StorageClass) -> str:
    """Return why a claim cannot be provisioned; empty if it can."""
    spec = claim["spec"]
    if volume_mode(claim) != "Filesystem":
        return "a directory cannot be a block device: volumeMode must be Filesystem"
    if spec.get("selector"):
        return "claim.Spec.Selector is not supported"
    if spec.get("dataSource") or spec.get("dataSourceRef"):
        return "claim.Spec.DataSource is not supported"
    waits = storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
    if waits and SELECTED_NODE not in annotations_of(claim):
        return "no node has been selected"
    return ""


def _volume(name: str, claim: PersistentVolumeClaim, storage_class: StorageClass) -> Object:
    metadata = claim["metadata"]
    directory = (storage_class.get("parameters") or {}).get("path") or DIRECTORY
    spec: Object = {
        "capacity": {"storage": str(wanted_size(claim))},
        "accessModes": claim["spec"].get("accessModes") or ["ReadWriteOnce"],
        "claimRef": reference_to(claim),
        "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy") or "Delete",
        "storageClassName": storage_class["metadata"]["name"],
        "volumeMode": "Filesystem",
        "hostPath": {
            "path": f"{directory.rstrip('/')}/{name}_{metadata['namespace']}_{metadata['name']}",
            "type": "DirectoryOrCreate",
        },
    }
    if storage_class.get("mountOptions"):
        spec["mountOptions"] = storage_class["mountOptions"]
    node = annotations_of(claim).get(SELECTED_NODE)
    if node:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": list(_on_node(node))}]}}
    annotations = {PROVISIONED_BY: NAME}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": annotations},
        "spec": spec,
    }


def _on_node(name: str) -> Iterable[Object]:
    yield {"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}
