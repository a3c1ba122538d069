"""NodeVolumeLimits: a node attaches no more volumes of a CSI driver than the driver allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from pinnace.model.objects import Object
from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.events import NODE, POD, ActionType, EventRegistration
from pinnace.scheduler.framework.plugin import Depends
from pinnace.scheduler.framework.status import SKIP, Refusal, Skip, unresolvable, unschedulable
from pinnace.scheduler.plugins.claims import claim_names, class_of, find_claim
from pinnace.scheduler.plugins.hints import frees_place
from pinnace.scheduler.state.arrays import At, Codes, slots_of
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.state.pods import Template

_EXCEEDED = 1
_REFUSAL = unschedulable("node(s) exceed max volume count")
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


class NodeVolumeLimits:
    name = "NodeVolumeLimits"
    depends = Depends.CLUSTER

    def pre_filter(self, cycle: Cycle) -> Refusal | Skip | None:
        template = cycle.template
        names = claim_names(template) if template.volumes else ()
        if not names:
            return SKIP
        for one in names:
            if find_claim(cycle.state.lookups, template, one.name) is None:
                text = f'looking up PVC {template.namespace}/{one.name}: persistentvolumeclaim "{one.name}" not found'
                cycle.data[self.name] = unresolvable(text)
        return None

    def filter(self, cycle: Cycle, at: At) -> Codes:
        state = cycle.state
        slots = slots_of(at, state.size)
        codes = np.zeros(len(slots), dtype=np.int32)
        if self.name in cycle.data:
            codes[:] = 2
            return codes
        limited = {one["metadata"]["name"]: one for one in state.lookups.all("CSINode") if _limits_of(one)}
        if not limited:
            return codes
        for position, slot in enumerate(slots.tolist()):
            csi_node = limited.get(state.nodes.names[slot])
            if csi_node is not None and _exceeds(state, cycle.template, slot, csi_node):
                codes[position] = _EXCEEDED
        return codes

    def refusal(self, cycle: Cycle, code: int) -> Refusal:
        missing: Refusal = cycle.data.get(self.name, _REFUSAL)
        return _REFUSAL if code == _EXCEEDED else missing

    def events(self) -> Sequence[EventRegistration]:
        return (
            EventRegistration("CSINode", ActionType.ADD | ActionType.UPDATE),
            EventRegistration(POD, ActionType.DELETE, frees_place),
            EventRegistration(NODE, ActionType.ADD),
            EventRegistration("PersistentVolumeClaim", ActionType.ADD),
            EventRegistration("VolumeAttachment", ActionType.DELETE),
        )


def _limits_of(csi_node: Object) -> dict[str, int]:
    drivers = (csi_node.get("spec") or {}).get("drivers") or ()
    counts = ((one["name"], (one.get("allocatable") or {}).get("count")) for one in drivers)
    return {name: count for name, count in counts if count is not None}


def _exceeds(state: ClusterState, template: Template, slot: int, csi_node: Object) -> bool:
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


def _volumes_of(state: ClusterState, template: Template, csi_node: Object) -> dict[str, str]:
    """Return the CSI drivers of a pod's volumes, by unique name of the volume."""
    lookups, volumes = state.lookups, {}
    for one in claim_names(template):
        claim = find_claim(lookups, template, one.name)
        if claim is None:
            continue
        volume = lookups.get("PersistentVolume", (claim.get("spec") or {}).get("volumeName") or "")
        if volume is not None:
            source = (volume.get("spec") or {}).get("csi")
            if source:
                volumes[f"{source['driver']}/{source.get('volumeHandle', '')}"] = source["driver"]
            continue
        storage_class = lookups.get("StorageClass", class_of(claim))
        driver = _driver_of((storage_class or {}).get("provisioner") or "", csi_node)
        if driver:
            volumes[f"{driver}/claim-{template.namespace}/{one.name}"] = driver
    return volumes


def _driver_of(provisioner: str, csi_node: Object) -> str:
    """Return the CSI driver of a provisioner; empty for an in-tree one that the node has not replaced."""
    if provisioner not in _MIGRATED:
        return provisioner
    migrated = (csi_node["metadata"].get("annotations") or {}).get(_MIGRATED_PLUGINS, "").split(",")
    return _MIGRATED[provisioner] if provisioner in migrated else ""


def _attachments_of(state: ClusterState, node: str) -> dict[str, str]:
    found = {}
    for one in state.lookups.all("VolumeAttachment"):
        spec = one.get("spec") or {}
        if spec.get("nodeName") != node:
            continue
        volume = state.lookups.get("PersistentVolume", (spec.get("source") or {}).get("persistentVolumeName") or "")
        source = ((volume or {}).get("spec") or {}).get("csi")
        if source:
            found[f"{source['driver']}/{source.get('volumeHandle', '')}"] = source["driver"]
    return found
