"""Which persistent volume each waiting claim would get on each node, and where volumes can be provisioned."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pinnace.model import selectors
from pinnace.model.objects import Object
from pinnace.scheduler.plugins.claims import class_of
from pinnace.scheduler.state.arrays import ALL, At, Codes, Mask
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.state.node_selectors import length, match_terms
from pinnace.scheduler.state.nodes import NodeTable
from pinnace.scheduler.state.resources import amount_of

_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_NONE = -1


def reachable(nodes: NodeTable, volume: Object, at: At) -> Mask:
    """Return the nodes that match the node affinity of a volume."""
    required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required")
    if required is None:
        return np.ones(length(nodes, at), dtype=np.bool_)
    return match_terms(nodes, required.get("nodeSelectorTerms") or (), at)


class VolumeChoice:
    """The smallest volume that fits each claim, node by node; the smallest claim chooses first."""

    def __init__(self, state: ClusterState, claims: Sequence[Object]) -> None:
        self._size = state.size
        self._volumes: list[Object] = []
        self._chosen: dict[str, Codes] = {}
        """For each claim the position of its volume at each node; -1 for none."""
        for claim in sorted(claims, key=_size_of_claim):
            self._chosen[claim["metadata"]["uid"]] = self._choose(state, claim)

    def at(self, slot: int) -> dict[str, Object]:
        """Return the volumes at one node, by uid of the claim."""
        positions = {uid: int(chosen[slot]) for uid, chosen in self._chosen.items()}
        return {uid: self._volumes[position] for uid, position in positions.items() if position != _NONE}

    def is_unmatched(self, claim: Object) -> Mask:
        """Return the nodes where no volume was found for a claim."""
        chosen = self._chosen.get(claim["metadata"]["uid"])
        return np.ones(self._size, dtype=np.bool_) if chosen is None else chosen == _NONE

    def _choose(self, state: ClusterState, claim: Object) -> Codes:
        chosen: Codes = np.full(self._size, _NONE, dtype=np.int32)
        candidates = [volume for volume in state.lookups.all("PersistentVolume") if _may_serve(volume, claim)]
        reserved = [volume for volume in candidates if _is_for(volume, claim)]
        if reserved:
            candidates = reserved[:1]
        for volume in sorted(candidates, key=_size_of_volume):
            free = (chosen == _NONE) & reachable(state.nodes, volume, ALL)
            position = self._position(volume)
            for others in self._chosen.values():
                free &= others != position
            chosen[free] = position
        return chosen

    def _position(self, volume: Object) -> int:
        for position, known in enumerate(self._volumes):
            if known is volume:
                return position
        self._volumes.append(volume)
        return len(self._volumes) - 1


def _may_serve(volume: Object, claim: Object) -> bool:
    """Return whether a volume fits a claim, nodes aside."""
    spec, wanted = volume["spec"], claim["spec"]
    if spec.get("claimRef") and not _is_for(volume, claim):
        return False
    if _size_of_volume(volume) < _size_of_claim(claim) or volume["metadata"].get("deletionTimestamp"):
        return False
    if (spec.get("volumeMode") or "Filesystem") != (wanted.get("volumeMode") or "Filesystem"):
        return False
    if (spec.get("volumeAttributesClassName") or "") != (wanted.get("volumeAttributesClassName") or ""):
        return False
    if _is_for(volume, claim):
        return True
    if (volume.get("status") or {}).get("phase") != "Available" or class_of(volume) != class_of(claim):
        return False
    if wanted.get("selector") is not None:
        labels = volume["metadata"].get("labels") or {}
        if not selectors.from_object(wanted["selector"]).matches(labels):
            return False
    return set(wanted.get("accessModes") or ()) <= set(spec.get("accessModes") or ())


def _is_for(volume: Object, claim: Object) -> bool:
    """Return whether a volume is reserved for a claim, or bound to it."""
    reference, metadata = volume["spec"].get("claimRef"), claim["metadata"]
    if not reference:
        return False
    if reference.get("name") != metadata["name"] or reference.get("namespace") != metadata["namespace"]:
        return False
    return not reference.get("uid") or reference["uid"] == metadata["uid"]


def _size_of_claim(claim: Object) -> int:
    requests = ((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}
    return amount_of("storage", requests.get("storage", 0))


def _size_of_volume(volume: Object) -> int:
    return amount_of("storage", (volume["spec"].get("capacity") or {}).get("storage", 0))


def provisionable(state: ClusterState, claim: Object) -> tuple[Mask, Mask]:
    """Return the nodes for which a volume can be provisioned, and those that have enough storage for it."""
    everywhere = np.ones(state.size, dtype=np.bool_)
    storage_class = state.lookups.get("StorageClass", class_of(claim))
    if storage_class is None or (storage_class.get("provisioner") or _NO_PROVISIONER) == _NO_PROVISIONER:
        return ~everywhere, everywhere
    can = everywhere
    topologies = storage_class.get("allowedTopologies") or ()
    if topologies:
        can = np.zeros(state.size, dtype=np.bool_)
        for term in topologies:
            matched = np.ones(state.size, dtype=np.bool_)
            for one in term.get("matchLabelExpressions") or ():
                matched &= state.nodes.labels.match(one["key"], "In", one.get("values") or (), ALL)
            can |= matched
    return can, _has_space(state, claim, storage_class)


def _has_space(state: ClusterState, claim: Object, storage_class: Object) -> Mask:
    everywhere = np.ones(state.size, dtype=np.bool_)
    requests = ((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}
    driver = state.lookups.get("CSIDriver", storage_class["provisioner"])
    if "storage" not in requests or driver is None or not (driver.get("spec") or {}).get("storageCapacity"):
        return everywhere
    needed, found = _size_of_claim(claim), ~everywhere
    for capacity in state.lookups.all("CSIStorageCapacity"):
        limit = capacity.get("maximumVolumeSize") or capacity.get("capacity")
        if capacity.get("storageClassName") != storage_class["metadata"]["name"] or limit is None:
            continue
        if capacity.get("nodeTopology") is None or amount_of("storage", limit) < needed:
            continue
        matched = everywhere.copy()
        for key, operator, values in selectors.from_object(capacity["nodeTopology"]).requirements:
            matched &= state.nodes.labels.match(key, _OPERATORS[operator], values, ALL)
        found |= matched
    return found


_OPERATORS = {"=": "In", "in": "In", "!=": "NotIn", "notin": "NotIn", "exists": "Exists", "!": "DoesNotExist"}
