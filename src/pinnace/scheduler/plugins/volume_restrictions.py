"""VolumeRestrictions: a disk that only one pod may use is not mounted twice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pinnace.model.objects import Object
from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.events import NODE, POD, ActionType, EventRegistration
from pinnace.scheduler.framework.plugin import Depends
from pinnace.scheduler.framework.status import SKIP, Refusal, Skip, unresolvable, unschedulable
from pinnace.scheduler.plugins.claims import claim_names, find_claim
from pinnace.scheduler.plugins.hints import frees_place
from pinnace.scheduler.state.arrays import At, Codes, slots_of
from pinnace.scheduler.state.pods import DISKS, Template

_DISK, _IN_USE = 1, 2
_REFUSALS = {
    _DISK: unschedulable("node(s) had no available disk"),
    _IN_USE: unschedulable(
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another "
        "pod"
    ),
}
_CLAIM = "PersistentVolumeClaim"


class VolumeRestrictions:
    name = "VolumeRestrictions"
    depends = Depends.CLUSTER

    def pre_filter(self, cycle: Cycle) -> Refusal | Skip | None:
        template = cycle.template
        if not template.volumes:
            return SKIP
        once: set[str] = set()
        for one in claim_names(template):
            if one.is_ephemeral:
                continue
            claim = find_claim(cycle.state.lookups, template, one.name)
            if claim is None:
                return unresolvable(f'persistentvolumeclaim "{one.name}" not found')
            if "ReadWriteOncePod" in ((claim.get("spec") or {}).get("accessModes") or ()):
                once.add(one.name)
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
        return _REFUSALS[code]

    def events(self) -> Sequence[EventRegistration]:
        return (
            EventRegistration(POD, ActionType.DELETE, frees_place),
            EventRegistration(NODE, ActionType.ADD),
            EventRegistration(_CLAIM, ActionType.ADD | ActionType.UPDATE),
        )


def _conflicts(disks: Sequence[Object], other: Template) -> bool:
    return any(_is_same_disk(disk, volume) for disk in disks for volume in other.volumes)


def _is_same_disk(left: Object, right: Object) -> bool:
    kind = next((kind for kind in DISKS if left.get(kind) and right.get(kind)), None)
    if kind is None:
        return False
    one, other = left[kind], right[kind]
    is_read_only = bool(one.get("readOnly") and other.get("readOnly"))
    match kind:
        case "gcePersistentDisk":
            return one.get("pdName") == other.get("pdName") and not is_read_only
        case "awsElasticBlockStore":
            return bool(one.get("volumeID") == other.get("volumeID"))
        case "iscsi":
            return one.get("iqn") == other.get("iqn") and not is_read_only
    shares_monitor = bool(set(one.get("monitors") or ()) & set(other.get("monitors") or ()))
    is_same = all((one.get(field) or default) == (other.get(field) or default) for field, default in _RBD.items())
    return shares_monitor and is_same and not is_read_only


_RBD = {"pool": "rbd", "image": ""}
