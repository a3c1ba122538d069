"""The persistent volume claims of a pod, and the volumes and classes behind them."""

from __future__ import annotations

from dataclasses import dataclass

from pinnace.model.objects import AnyObject
from pinnace.model.typed_objects import PersistentVolumeClaim, StorageClass
from pinnace.scheduler.state.lookups import Lookups
from pinnace.scheduler.state.pods import Template

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
_CLASS = "volume.beta.kubernetes.io/storage-class"
WAIT = "WaitForFirstConsumer"


@dataclass(frozen=True, slots=True)
class ClaimName:
    """The name of a claim that a pod uses; the claim of an ephemeral volume belongs to the pod."""

    name: str
    is_ephemeral: bool


def claim_names(template: Template) -> list[ClaimName]:
    """Return the claims of a pod in the order of its volumes."""
    names = []
    for volume in template.volumes:
        if volume.get("persistentVolumeClaim"):
            names.append(ClaimName(volume["persistentVolumeClaim"].get("claimName", ""), is_ephemeral=False))
        elif volume.get("ephemeral") is not None:
            names.append(ClaimName(f"{template.pod_name}-{volume['name']}", is_ephemeral=True))
    return names


def find_claim(lookups: Lookups, template: Template, name: str) -> PersistentVolumeClaim | None:
    return lookups.get(PersistentVolumeClaim, name, namespace=template.namespace)


def class_of(obj: AnyObject) -> str:
    """Return the name of the storage class of a claim or a volume."""
    annotations = obj["metadata"].get("annotations") or {}
    return annotations.get(_CLASS) or (obj.get("spec") or {}).get("storageClassName") or ""


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Return whether the volume controller has finished binding a claim."""
    annotations = claim["metadata"].get("annotations") or {}
    return bool((claim.get("spec") or {}).get("volumeName")) and BIND_COMPLETED in annotations


def waits_for_consumer(lookups: Lookups, claim: PersistentVolumeClaim) -> bool:
    """Return whether a claim is bound only after its pod has a node."""
    storage_class = lookups.get(StorageClass, class_of(claim))
    return storage_class is not None and storage_class.get("volumeBindingMode") == WAIT


def claim_obstacle(lookups: Lookups, template: Template, name: ClaimName) -> str:
    """Return why a claim cannot be used, in kube-scheduler's words; empty if it can."""
    claim = find_claim(lookups, template, name.name)
    if claim is None:
        if name.is_ephemeral:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name.name}"'
        return f'persistentvolumeclaim "{name.name}" not found'
    if (claim.get("status") or {}).get("phase") == "Lost":
        volume = (claim.get("spec") or {}).get("volumeName", "")
        return f'persistentvolumeclaim "{name.name}" bound to non-existent persistentvolume "{volume}"'
    if claim["metadata"].get("deletionTimestamp"):
        return f'persistentvolumeclaim "{name.name}" is being deleted'
    if name.is_ephemeral and not _is_of_pod(claim, template):
        return (
            f"PVC {template.namespace}/{name.name} was not created for pod {template.namespace}/{template.pod_name} "
            "(pod is not owner)"
        )
    return ""


def _is_of_pod(claim: PersistentVolumeClaim, template: Template) -> bool:
    return any(
        owner.get("controller") and owner.get("uid") == template.pod_uid
        for owner in claim["metadata"].get("ownerReferences") or ()
    )
