"""VolumeBinding: bound volumes must be reachable from the node; others are bound or provisioned for the chosen node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from pinnace.client.client import Client
from pinnace.model.objects import Object
from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.events import NODE, ActionType, EventRegistration
from pinnace.scheduler.framework.plugin import Depends, WaitFor
from pinnace.scheduler.framework.status import SKIP, PluginError, Refusal, Skip, unresolvable
from pinnace.scheduler.plugins.claims import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    ClaimName,
    claim_names,
    claim_obstacle,
    find_claim,
    is_bound,
    waits_for_consumer,
)
from pinnace.scheduler.plugins.volume_choice import VolumeChoice, provisionable, reachable
from pinnace.scheduler.state.arrays import ALL, At, Codes, Mask
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.state.lookups import LookupKind

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

    bound: list[Object] = field(default_factory=list)
    waiting: list[Object] = field(default_factory=list)
    codes: Codes | None = None
    choice: VolumeChoice | None = None
    selected: list[Object] = field(default_factory=list)
    """Claims that are being provisioned for a node already."""
    assumed: list[tuple[LookupKind, Object, Object]] = field(default_factory=list)
    """Volumes and claims as they were, and as they will be."""


class VolumeBinding:
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
        found: Codes = claims.codes[at]
        return found

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

    def _assume(self, cycle: Cycle, claims: _Claims, kind: LookupKind, change: tuple[Object, Object]) -> None:
        claims.assumed.append((kind, *change))
        cycle.state.lookups.put(kind, change[1])

    def unreserve(self, cycle: Cycle, node: str) -> None:
        claims: _Claims | None = cycle.data.get(self.name)
        lookups = cycle.state.lookups
        for kind, old, new in claims.assumed if claims is not None else ():
            metadata = new["metadata"]
            if lookups.get(kind, metadata["name"], namespace=metadata.get("namespace", "")) is new:
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
                await self._client.update(new)
        return WaitFor(lambda: self._is_done(cycle, claims, node), self._seconds, "binding volumes: timed out")

    def _is_done(self, cycle: Cycle, claims: _Claims, node: str) -> bool:
        """Return whether all claims are bound. Raise PluginError if the provisioner has given up on the node."""
        for one in claims.waiting:
            metadata = one["metadata"]
            claim = cycle.state.lookups.get(_CLAIM, metadata["name"], namespace=metadata["namespace"])
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
        volume = state.lookups.get(_VOLUME, claim["spec"]["volumeName"])
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
    to_match: list[Object] = []
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


def _bind_to(volume: Object, claim: Object) -> Object:
    """Return a volume that refers to its claim."""
    metadata = claim["metadata"]
    if (volume["spec"].get("claimRef") or {}).get("uid") == metadata["uid"]:
        return volume
    reference = {
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
