"""VolumeZone, VolumeRestrictions and NodeVolumeLimits: the plug-ins that look at the volumes of a pod alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import cast

import numpy as np

from pinnace.model.objects import Object
from pinnace.model.typed_objects import CSINode, PersistentVolume, StorageClass, Volume, VolumeAttachment
from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.events import NODE, POD, ActionType, EventRegistration, frees_place
from pinnace.scheduler.framework.plugin import Depends, Plugin
from pinnace.scheduler.framework.status import SKIP, Refusal, Skip, unresolvable, unschedulable
from pinnace.scheduler.plugins.claims import WAIT, claim_names, class_of, find_claim
from pinnace.scheduler.state.arrays import At, Codes, slots_of
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.state.node_selectors import length
from pinnace.scheduler.state.pods import DISKS, Template

_NO_ZONE = unresolvable("node(s) had no available volume zone")
_GENERAL = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""The labels of volumes that name a place, and their names today."""


class VolumeZone(Plugin):
    name = "VolumeZone"
    depends = Depends.CLUSTER

    def pre_filter(self, cycle: Cycle) -> Refusal | Skip | None:
        if not cycle.template.volumes:
            return SKIP
        places: list[tuple[str, frozenset[str]]] = []
        for wanted in claim_names(cycle.template):
            if wanted.is_ephemeral:
                continue
            claim_places = self._places_of(cycle, wanted.name)
            if isinstance(claim_places, Refusal):
                return claim_places
            places += claim_places
        if not places:
            return SKIP
        cycle.data[self.name] = places
        return None

    def _places_of(self, cycle: Cycle, name: str) -> list[tuple[str, frozenset[str]]] | Refusal:
        lookups = cycle.state.lookups
        if not name:
            return unresolvable("PersistentVolumeClaim had no name")
        claim = find_claim(lookups, cycle.template, name)
        if claim is None:
            return unresolvable(f'persistentvolumeclaim "{name}" not found')
        volume_name = (claim.get("spec") or {}).get("volumeName")
        if volume_name:
            volume = lookups.get(PersistentVolume, volume_name)
            if volume is None:
                return unresolvable(f'persistentvolume "{volume_name}" not found')
            return _labels_of(volume)
        class_name = class_of(claim)
        if not class_name:
            return unresolvable("PersistentVolumeClaim had no pv name and storageClass name")
        storage_class = lookups.get(StorageClass, class_name)
        if storage_class is None:
            return unresolvable(f'storageclass.storage.k8s.io "{class_name}" not found')
        mode = storage_class.get("volumeBindingMode")
        if mode is None:
            return unresolvable(f'VolumeBindingMode not set for StorageClass "{class_name}"')
        return [] if mode == WAIT else unresolvable("PersistentVolume had no name")

    def filter(self, cycle: Cycle, at: At) -> Codes:
        labels, size = cycle.state.nodes.labels, length(cycle.state.nodes, at)
        places: list[tuple[str, frozenset[str]]] = cycle.data.get(self.name) or []
        has_place = np.zeros(size, dtype=np.bool_)
        for key in _GENERAL:
            has_place |= labels.match(key, "Exists", (), at)
        fits = np.ones(size, dtype=np.bool_)
        for key, values in places:
            own = labels.match(key, "In", tuple(sorted(values)), at)
            general = labels.match(_GENERAL[key], "In", tuple(sorted(values)), at)
            fits &= np.where(labels.match(key, "Exists", (), at), own, general)
        return (has_place & ~fits).astype(np.int32)

    def refusal(self, cycle: Cycle, code: int) -> Refusal:
        return _NO_ZONE

    def events(self) -> Sequence[EventRegistration]:
        return (
            EventRegistration("StorageClass", ActionType.ADD),
            EventRegistration(NODE, ActionType.ADD | ActionType.NODE_LABELS),
            EventRegistration("PersistentVolumeClaim", ActionType.ADD | ActionType.UPDATE),
            EventRegistration("PersistentVolume", ActionType.ADD | ActionType.UPDATE),
        )


def _labels_of(volume: PersistentVolume) -> list[tuple[str, frozenset[str]]]:
    labels = volume["metadata"].get("labels") or {}
    return [(key, _zones(labels[key])) for key in _GENERAL if key in labels]


def _zones(value: str) -> frozenset[str]:
    """Return the zones of a label; several are separated by two underscores."""
    return frozenset(part.strip() for part in value.split("__"))


_DISK, _IN_USE = 1, 2
_TAKEN = {
    _DISK: unschedulable("node(s) had no available disk"),
    _IN_USE: unschedulable(
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another "
        "pod"
    ),
}
_CLAIM = "PersistentVolumeClaim"


class VolumeRestrictions(Plugin):
    name = "VolumeRestrictions"
    depends = Depends.CLUSTER

    def pre_filter(self, cycle: Cycle) -> Refusal | Skip | None:
        template = cycle.template
        if not template.volumes:
            return SKIP
        once: set[str] = set()
        for wanted in claim_names(template):
            if wanted.is_ephemeral:
                continue
            claim = find_claim(cycle.state.lookups, template, wanted.name)
            if claim is None:
                return unresolvable(f'persistentvolumeclaim "{wanted.name}" not found')
            if "ReadWriteOncePod" in ((claim.get("spec") or {}).get("accessModes") or ()):
                once.add(wanted.name)
        is_taken = any(cycle.state.claims.is_used(template.namespace, name) for name in once)
        if not template.has_disks and not is_taken:
            return SKIP
        cycle.data[self.name] = is_taken
        return None

    def filter(self, cycle: Cycle, at: At) -> Codes:
        slots = slots_of(at, cycle.state.size)
        codes = np.full(len(slots), _IN_USE if cycle.data.get(self.name) else 0, dtype=np.int32)
        disks = [volume for volume in cycle.template.volumes if any(volume.get(kind) for kind in DISKS)]
        if disks:
            # Only the nodes of pods that have such disks are looked at.
            holders = cycle.state.disks
            for position, slot in enumerate(slots.tolist()):
                if slot in holders and any(_conflicts(disks, pod.template) for pod in cycle.state.pods_at(slot)):
                    codes[position] = _DISK
        return codes

    def refusal(self, cycle: Cycle, code: int) -> Refusal:
        return _TAKEN[code]

    def events(self) -> Sequence[EventRegistration]:
        return (
            EventRegistration(POD, ActionType.DELETE, frees_place),
            EventRegistration(NODE, ActionType.ADD),
            EventRegistration(_CLAIM, ActionType.ADD | ActionType.UPDATE),
        )


def _conflicts(disks: Sequence[Volume], other: Template) -> bool:
    return any(_is_same_disk(disk, volume) for disk in disks for volume in other.volumes)


def _is_same_disk(left: Volume, right: Volume) -> bool:
    kind = next((kind for kind in DISKS if left.get(kind) and right.get(kind)), None)
    if kind is None:
        return False
    first, other = cast("Object", left)[kind], cast("Object", right)[kind]
    is_read_only = bool(first.get("readOnly") and other.get("readOnly"))
    match kind:
        case "gcePersistentDisk":
            return first.get("pdName") == other.get("pdName") and not is_read_only
        case "awsElasticBlockStore":
            return bool(first.get("volumeID") == other.get("volumeID"))
        case "iscsi":
            return first.get("iqn") == other.get("iqn") and not is_read_only
    shares_monitor = bool(set(first.get("monitors") or ()) & set(other.get("monitors") or ()))
    is_same = all((first.get(field) or default) == (other.get(field) or default) for field, default in _RBD.items())
    return shares_monitor and is_same and not is_read_only


_RBD = {"pool": "rbd", "image": ""}


_EXCEEDED = 1
_TOO_MANY = unschedulable("node(s) exceed max volume count")
_MIGRATED = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/azure-file": "file.csi.azure.com",
    "kubernetes.io/vsphere-volume": "csi.vsphere.vmware.com",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}
"""Provisioners that a CSI driver has replaced, where the CSINode says so."""
_MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"


class NodeVolumeLimits(Plugin):
    name = "NodeVolumeLimits"
    depends = Depends.CLUSTER

    def pre_filter(self, cycle: Cycle) -> Refusal | Skip | None:
        template = cycle.template
        names = claim_names(template) if template.volumes else ()
        if not names:
            return SKIP
        for claim in names:
            if find_claim(cycle.state.lookups, template, claim.name) is None:
                text = (
                    f'looking up PVC {template.namespace}/{claim.name}: persistentvolumeclaim "{claim.name}" not found'
                )
                cycle.data[self.name] = unresolvable(text)
        return None

    def filter(self, cycle: Cycle, at: At) -> Codes:
        state = cycle.state
        slots = slots_of(at, state.size)
        codes = np.zeros(len(slots), dtype=np.int32)
        if self.name in cycle.data:
            codes[:] = 2
            return codes
        limited = {
            csi_node["metadata"]["name"]: csi_node for csi_node in state.lookups.all(CSINode) if _limits_of(csi_node)
        }
        if not limited:
            return codes
        for position, slot in enumerate(slots.tolist()):
            csi_node = limited.get(state.nodes.names[slot])
            if csi_node is not None and _exceeds_limit(state, cycle.template, slot, csi_node):
                codes[position] = _EXCEEDED
        return codes

    def refusal(self, cycle: Cycle, code: int) -> Refusal:
        missing: Refusal = cycle.data.get(self.name, _TOO_MANY)
        return _TOO_MANY if code == _EXCEEDED else missing

    def events(self) -> Sequence[EventRegistration]:
        return (
            EventRegistration("CSINode", ActionType.ADD | ActionType.UPDATE),
            EventRegistration(POD, ActionType.DELETE, frees_place),
            EventRegistration(NODE, ActionType.ADD),
            EventRegistration("PersistentVolumeClaim", ActionType.ADD),
            EventRegistration("VolumeAttachment", ActionType.DELETE),
        )


def _limits_of(csi_node: CSINode) -> dict[str, int]:
    drivers = (csi_node.get("spec") or {}).get("drivers") or ()
    counts = ((driver["name"], (driver.get("allocatable") or {}).get("count")) for driver in drivers)
    return {name: count for name, count in counts if count is not None}


def _exceeds_limit(state: ClusterState, template: Template, slot: int, csi_node: CSINode) -> bool:
    new = _volumes_of(state, template, csi_node)
    if not new:
        return False
    attached: dict[str, str] = {}
    for pod in state.pods_at(slot):
        if pod.template.volumes:
            attached.update(_volumes_of(state, pod.template, csi_node))
    counts: Counter[str] = Counter(attached.values())
    for handle, driver in _attachments_of(state, state.nodes.names[slot]).items():
        if handle not in attached:
            counts[driver] += 1
    wanted = Counter(driver for handle, driver in new.items() if handle not in attached)
    limits = _limits_of(csi_node)
    return any(counts[driver] + count > limits[driver] for driver, count in wanted.items() if driver in limits)


def _volumes_of(state: ClusterState, template: Template, csi_node: CSINode) -> dict[str, str]:
    """Return the CSI drivers of a pod's volumes, by unique name of the volume."""
    lookups, volumes = state.lookups, {}
    for wanted in claim_names(template):
        claim = find_claim(lookups, template, wanted.name)
        if claim is None:
            continue
        volume = lookups.get(PersistentVolume, (claim.get("spec") or {}).get("volumeName") or "")
        if volume is not None:
            source = (volume.get("spec") or {}).get("csi")
            if source:
                volumes[f"{source['driver']}/{source.get('volumeHandle', '')}"] = source["driver"]
            continue
        storage_class = lookups.get(StorageClass, class_of(claim))
        driver = _driver_of((storage_class or {}).get("provisioner") or "", csi_node)
        if driver:
            volumes[f"{driver}/claim-{template.namespace}/{wanted.name}"] = driver
    return volumes


def _driver_of(provisioner: str, csi_node: CSINode) -> str:
    """Return the CSI driver of a provisioner; empty for an in-tree one that the node has not replaced."""
    if provisioner not in _MIGRATED:
        return provisioner
    migrated = (csi_node["metadata"].get("annotations") or {}).get(_MIGRATED_PLUGINS, "").split(",")
    return _MIGRATED[provisioner] if provisioner in migrated else ""


def _attachments_of(state: ClusterState, node: str) -> dict[str, str]:
    attachments = {}
    for attachment in state.lookups.all(VolumeAttachment):
        spec = attachment.get("spec") or {}
        if spec.get("nodeName") != node:
            continue
        volume = state.lookups.get(PersistentVolume, (spec.get("source") or {}).get("persistentVolumeName") or "")
        source = ((volume or {}).get("spec") or {}).get("csi")
        if source:
            attachments[f"{source['driver']}/{source.get('volumeHandle', '')}"] = source["driver"]
    return attachments
