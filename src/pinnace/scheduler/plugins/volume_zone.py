"""VolumeZone: a pod runs in the zone and region of its volumes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pinnace.model.objects import Object
from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.events import NODE, ActionType, EventRegistration
from pinnace.scheduler.framework.plugin import Depends
from pinnace.scheduler.framework.status import SKIP, Refusal, Skip, unresolvable
from pinnace.scheduler.plugins.claims import WAIT, claim_names, class_of, find_claim
from pinnace.scheduler.state.arrays import At, Codes
from pinnace.scheduler.state.node_selectors import length

_REFUSAL = unresolvable("node(s) had no available volume zone")
_GENERAL = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""The labels of volumes that name a place, and their names today."""


class VolumeZone:
    name = "VolumeZone"
    depends = Depends.CLUSTER

    def pre_filter(self, cycle: Cycle) -> Refusal | Skip | None:
        if not cycle.template.volumes:
            return SKIP
        places: list[tuple[str, frozenset[str]]] = []
        for one in claim_names(cycle.template):
            if one.is_ephemeral:
                continue
            found = self._places_of(cycle, one.name)
            if isinstance(found, Refusal):
                return found
            places += found
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
            volume = lookups.get("PersistentVolume", volume_name)
            if volume is None:
                return unresolvable(f'persistentvolume "{volume_name}" not found')
            return _labels_of(volume)
        class_name = class_of(claim)
        if not class_name:
            return unresolvable("PersistentVolumeClaim had no pv name and storageClass name")
        storage_class = lookups.get("StorageClass", class_name)
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
        return _REFUSAL

    def events(self) -> Sequence[EventRegistration]:
        return (
            EventRegistration("StorageClass", ActionType.ADD),
            EventRegistration(NODE, ActionType.ADD | ActionType.NODE_LABELS),
            EventRegistration("PersistentVolumeClaim", ActionType.ADD | ActionType.UPDATE),
            EventRegistration("PersistentVolume", ActionType.ADD | ActionType.UPDATE),
        )


def _labels_of(volume: Object) -> list[tuple[str, frozenset[str]]]:
    labels = volume["metadata"].get("labels") or {}
    return [(key, _zones(labels[key])) for key in _GENERAL if key in labels]


def _zones(value: str) -> frozenset[str]:
    """Return the zones of a label; several are separated by two underscores."""
    return frozenset(part.strip() for part in value.split("__"))
