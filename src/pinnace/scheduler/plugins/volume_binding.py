"""VolumeBinding: bound volumes must be reachable from the node; others are bound or provisioned for the chosen node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from pinnace.client.client import Client
from pinnace.model import selectors
from pinnace.model.objects import AnyObject, Object
from pinnace.model.typed_objects import (
    CSIDriver,
    CSIStorageCapacity,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.events import NODE, ActionType, EventRegistration
from pinnace.scheduler.framework.plugin import Depends, Plugin, WaitFor
from pinnace.scheduler.framework.status import SKIP, PluginError, Refusal, Skip, unresolvable
from pinnace.scheduler.plugins.claims import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    ClaimName,
    claim_names,
    claim_obstacle,
    class_of,
    find_claim,
    is_bound,
    waits_for_consumer,
)
from pinnace.scheduler.state.arrays import ALL, At, Codes, Mask
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.state.lookups import LookupKind
from pinnace.scheduler.state.node_selectors import length, match_terms
from pinnace.scheduler.state.nodes import NodeTable
from pinnace.scheduler.state.resources import amount_of

_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_NONE = -1


def reachable(nodes: NodeTable, volume: PersistentVolume, at: At) -> Mask:
    """Return the nodes that match the node affinity of a volume."""
    required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required")
    if required is None:
        return np.ones(length(nodes, at), dtype=np.bool_)
    return match_terms(nodes, required.get("nodeSelectorTerms") or (), at)


class VolumeChoice:
    """The smallest volume that fits each claim, node by node; the smallest claim chooses first."""

    def __init__(self, state: ClusterState, claims: Sequence[PersistentVolumeClaim]) -> None:
        self._size = state.size
        self._volumes: list[PersistentVolume] = []
        self._chosen: dict[str, Codes] = {}
        """For each claim the position of its volume at each node; -1 for none."""
        for claim in sorted(claims, key=_size_of_claim):
            self._chosen[claim["metadata"]["uid"]] = self._choose(state, claim)

    def at(self, slot: int) -> dict[str, PersistentVolume]:
        """Return the volumes at one node, by uid of the claim."""
        positions = {uid: int(chosen[slot]) for uid, chosen in self._chosen.items()}
        return {uid: self._volumes[position] for uid, position in positions.items() if position != _NONE}

    def is_unmatched(self, claim: PersistentVolumeClaim) -> Mask:
        """Return the nodes where no volume was found for a claim."""
        chosen = self._chosen.get(claim["metadata"]["uid"])
        return np.ones(self._size, dtype=np.bool_) if chosen is None else chosen == _NONE

    def _choose(self, state: ClusterState, claim: PersistentVolumeClaim) -> Codes:
        chosen: Codes = np.full(self._size, _NONE, dtype=np.int32)
        candidates = [volume for volume in state.lookups.all(PersistentVolume) if _may_serve(volume, claim)]
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

    def _position(self, volume: PersistentVolume) -> int:
        for position, known in enumerate(self._volumes):
            if known is volume:
                return position
        self._volumes.append(volume)
        return len(self._volumes) - 1


def _may_serve(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
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


def _is_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether a volume is reserved for a claim, or bound to it."""
    reference, metadata = volume["spec"].get("claimRef"), claim["metadata"]
    if not reference:
        return False
    if reference.get("name") != metadata["name"] or reference.get("namespace") != metadata["namespace"]:
        return False
    return not reference.get("uid") or reference["uid"] == metadata["uid"]


def _size_of_claim(claim: PersistentVolumeClaim) -> int:
    requests = ((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}
    return amount_of("storage", requests.get("storage", 0))


def _size_of_volume(volume: PersistentVolume) -> int:
    return amount_of("storage", (volume["spec"].get("capacity") or {}).get("storage", 0))


def provisionable(state: ClusterState, claim: PersistentVolumeClaim) -> tuple[Mask, Mask]:
    """Return the nodes for which a volume can be provisioned, and those that have enough storage for it."""
    everywhere = np.ones(state.size, dtype=np.bool_)
    storage_class = state.lookups.get(StorageClass, class_of(claim))
    if storage_class is None or (storage_class.get("provisioner") or _NO_PROVISIONER) == _NO_PROVISIONER:
        return ~everywhere, everywhere
    can = everywhere
    topologies = storage_class.get("allowedTopologies") or ()
    if topologies:
        can = np.zeros(state.size, dtype=np.bool_)
        for term in topologies:
            matched = np.ones(state.size, dtype=np.bool_)
            for expression in term.get("matchLabelExpressions") or ():
                matched &= state.nodes.labels.match(expression["key"], "In", expression.get("values") or (), ALL)
            can |= matched
    return can, _has_space(state, claim, storage_class)


def _has_space(state: ClusterState, claim: PersistentVolumeClaim, storage_class: StorageClass) -> Mask:
    everywhere = np.ones(state.size, dtype=np.bool_)
    requests = ((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}
    driver = state.lookups.get(CSIDriver, storage_class["provisioner"])
    if "storage" not in requests or driver is None or not (driver.get("spec") or {}).get("storageCapacity"):
        return everywhere
    needed, enough = _size_of_claim(claim), ~everywhere
    for capacity in state.lookups.all(CSIStorageCapacity):
        limit = capacity.get("maximumVolumeSize") or capacity.get("capacity")
        if capacity.get("storageClassName") != storage_class["metadata"]["name"] or limit is None:
            continue
        if capacity.get("nodeTopology") is None or amount_of("storage", limit) < needed:
            continue
        matched = everywhere.copy()
        for key, operator, values in selectors.from_object(capacity["nodeTopology"]).requirements:
            matched &= state.nodes.labels.match(key, _OPERATORS[operator], values, ALL)
        enough |= matched
    return enough


_OPERATORS = {"=": "In", "in": "In", "!=": "NotIn", "notin": "NotIn", "exists": "Exists", "!": "DoesNotExist"}


_CONFLICT, _NO_MATCH, _NO_SPACE, _MISSING = 1, 2, 4, 8
_REASONS = {
    _CONFLICT: "node(s) didn't match PersistentVolume's node affinity",
    _NO_MATCH: "node(s) didn't find available persistent volumes to bind",
    _NO_SPACE: "node(s) did not have enough free storage",
    _MISSING: "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
}
_CLAIM: LookupKind = "PersistentVolumeClaim"
_VOLUME: LookupKind = "PersistentVolume"


@dataclass(slots=True)
class _Claims:
    """The claims of one pod, with the result of the filter."""

    bound: list[PersistentVolumeClaim] = field(default_factory=list)
    waiting: list[PersistentVolumeClaim] = field(default_factory=list)
    codes: Codes | None = None
    choice: VolumeChoice | None = None
    selected: list[PersistentVolumeClaim] = field(default_factory=list)
    """Claims that are being provisioned for a node already."""
    assumed: list[tuple[LookupKind, AnyObject, AnyObject]] = field(default_factory=list)
    """Volumes and claims as they were, and as they will be."""


class VolumeBinding(Plugin):
    name = "VolumeBinding"
    depends = Depends.CLUSTER

    def __init__(self, client: Client | None, *, seconds: float = 600.0) -> None:
        """`seconds` is the time that the volumes of a pod may take to be bound."""
        self._client = client
        self._seconds = seconds

    # Filter

    def pre_filter(self, cycle: Cycle) -> Refusal | Skip | None:
        template, lookups = cycle.template, cycle.state.lookups
        names: Sequence[ClaimName] = claim_names(template) if template.volumes else ()
        if not names:
            return SKIP
        claims = _Claims()
        for name in names:
            obstacle = claim_obstacle(lookups, template, name)
            if obstacle:
                return unresolvable(obstacle)
        for name in names:
            claim = find_claim(lookups, template, name.name)
            assert claim is not None
            if is_bound(claim):
                claims.bound.append(claim)
            elif waits_for_consumer(lookups, claim) and not (claim.get("spec") or {}).get("volumeName"):
                claims.waiting.append(claim)
            else:
                return unresolvable("pod has unbound immediate PersistentVolumeClaims")
        cycle.data[self.name] = claims
        return None

    def filter(self, cycle: Cycle, at: At) -> Codes:
        claims: _Claims | None = cycle.data.get(self.name)
        if claims is None:
            return np.zeros(cycle.state.size, dtype=np.int32)[at]
        if claims.codes is None:
            claims.codes = _check(cycle.state, claims)
        return claims.codes[at]

    def refusal(self, cycle: Cycle, code: int) -> Refusal:
        return unresolvable(*(reason for bit, reason in _REASONS.items() if code & bit))

    # Reserve and PreBind

    def reserve(self, cycle: Cycle, node: str) -> Refusal | None:
        claims: _Claims | None = cycle.data.get(self.name)
        if claims is None or not claims.waiting:
            return None
        slot = cycle.state.nodes.slot_of[node]
        volumes = claims.choice.at(slot) if claims.choice is not None else {}
        for claim in claims.waiting:
            volume = volumes.get(claim["metadata"]["uid"])
            if volume is not None:
                self._assume(cycle, claims, _VOLUME, (volume, _bind_to(volume, claim)))
            else:
                annotations = {**(claim["metadata"].get("annotations") or {}), SELECTED_NODE: node}
                changed = {**claim, "metadata": {**claim["metadata"], "annotations": annotations}}
                self._assume(cycle, claims, _CLAIM, (claim, changed))
        return None

    def _assume(self, cycle: Cycle, claims: _Claims, kind: LookupKind, change: tuple[AnyObject, AnyObject]) -> None:
        claims.assumed.append((kind, *change))
        cycle.state.lookups.put(kind, change[1])

    def unreserve(self, cycle: Cycle, node: str) -> None:
        claims: _Claims | None = cycle.data.get(self.name)
        lookups = cycle.state.lookups
        for kind, old, new in claims.assumed if claims is not None else ():
            metadata = new["metadata"]
            if lookups.find(kind, metadata["name"], namespace=metadata.get("namespace", "")) is new:
                lookups.put(kind, old)
        if claims is not None:
            claims.assumed = []

    def has_pre_bind(self, cycle: Cycle) -> bool:
        claims: _Claims | None = cycle.data.get(self.name)
        return claims is not None and bool(claims.assumed)

    async def pre_bind(self, cycle: Cycle, node: str) -> Refusal | WaitFor | None:
        claims: _Claims | None = cycle.data.get(self.name)
        if claims is None or not claims.assumed or self._client is None:
            return None
        for _, old, new in claims.assumed:
            if old is not new and old != new:
                await self._client.update(cast("Object", new))
        return WaitFor(lambda: self._is_done(cycle, claims, node), self._seconds, "binding volumes: timed out")

    def _is_done(self, cycle: Cycle, claims: _Claims, node: str) -> bool:
        """Return whether all claims are bound. Raise PluginError if the provisioner has given up on the node."""
        for waiting in claims.waiting:
            metadata = waiting["metadata"]
            claim = cycle.state.lookups.get(PersistentVolumeClaim, metadata["name"], namespace=metadata["namespace"])
            if claim is None:
                raise PluginError(self.name, f'binding volumes: persistentvolumeclaim "{metadata["name"]}" not found')
            if is_bound(claim):
                continue
            selected = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE)
            was_selected = any(new["metadata"].get("uid") == metadata["uid"] for _, _, new in claims.assumed)
            if was_selected and selected != node:
                raise PluginError(self.name, f'binding volumes: provisioning failed for PVC "{metadata["name"]}"')
            return False
        return True

    def events(self) -> Sequence[EventRegistration]:
        both = ActionType.ADD | ActionType.UPDATE
        return (
            EventRegistration("StorageClass", both),
            EventRegistration(_CLAIM, both),
            EventRegistration(_VOLUME, both),
            EventRegistration(NODE, ActionType.ADD | ActionType.NODE_LABELS),
            EventRegistration("CSINode", both),
            EventRegistration("CSIDriver", ActionType.UPDATE),
            EventRegistration("CSIStorageCapacity", both),
        )


def _check(state: ClusterState, claims: _Claims) -> Codes:
    codes = np.zeros(state.size, dtype=np.int32)
    for claim in claims.bound:
        volume = state.lookups.get(PersistentVolume, claim["spec"]["volumeName"])
        if volume is None:
            codes |= _MISSING
            break
        codes[~reachable(state.nodes, volume, ALL)] |= _CONFLICT
    if claims.waiting:
        _check_waiting(state, claims, codes)
    return codes


def _check_waiting(state: ClusterState, claims: _Claims, codes: Codes) -> None:
    """Bind waiting claims to existing volumes where possible; the others must be provisionable."""
    is_elsewhere = np.zeros(state.size, dtype=np.bool_)
    to_match: list[PersistentVolumeClaim] = []
    for claim in claims.waiting:
        selected = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE)
        if selected is None:
            to_match.append(claim)
            continue
        claims.selected.append(claim)
        others = np.ones(state.size, dtype=np.bool_)
        if selected in state.nodes.slot_of:
            others[state.nodes.slot_of[selected]] = False
        is_elsewhere |= others
    claims.choice = VolumeChoice(state, to_match)
    unsatisfied, no_space = is_elsewhere.copy(), np.zeros(state.size, dtype=np.bool_)
    for claim in (*claims.selected, *to_match):
        unmatched: Mask = claims.choice.is_unmatched(claim) & ~is_elsewhere & ~unsatisfied & ~no_space
        if not unmatched.any():
            continue
        can, has_space = provisionable(state, claim)
        unsatisfied |= unmatched & ~can
        no_space |= unmatched & can & ~has_space
    codes[unsatisfied] |= _NO_MATCH
    codes[no_space] |= _NO_SPACE


def _bind_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    """Return a volume that refers to its claim."""
    metadata = claim["metadata"]
    if (volume["spec"].get("claimRef") or {}).get("uid") == metadata["uid"]:
        return volume
    reference: ObjectReference = {
        "kind": _CLAIM,
        "apiVersion": "v1",
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "resourceVersion": metadata.get("resourceVersion", ""),
    }
    annotations = {**(volume["metadata"].get("annotations") or {})}
    if not volume["spec"].get("claimRef"):
        annotations[BOUND_BY_CONTROLLER] = "yes"
    return {
        **volume,
        "metadata": {**volume["metadata"], "annotations": annotations},
        "spec": {**volume["spec"], "claimRef": reference},
    }
