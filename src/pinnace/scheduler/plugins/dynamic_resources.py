"""DynamicResources: the devices of a pod's ResourceClaims, allocated with structured parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from pinnace.client.client import Client
from pinnace.model.objects import Object
from pinnace.scheduler.devices.allocation import Chosen, DeviceSearch, SearchTooLong, describe_allocation
from pinnace.scheduler.devices.pools import OfferedDevice, devices_of
from pinnace.scheduler.devices.usage import DeviceUsage, usage_of
from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.events import NODE, ActionType, EventRegistration
from pinnace.scheduler.framework.normalization import normalize
from pinnace.scheduler.framework.plugin import Depends
from pinnace.scheduler.framework.status import SKIP, Refusal, Skip, unresolvable
from pinnace.scheduler.state.arrays import At, Codes, Integers, Mask, Slots, slots_of
from pinnace.scheduler.state.node_selectors import match_terms
from pinnace.scheduler.state.pods import Pod

_CLAIM: Final = "ResourceClaim"
_SLICE: Final = "ResourceSlice"
_CLASS: Final = "DeviceClass"
_MOST_USERS = 256
_MOST_ALTERNATIVES = 8
_FINALIZER = "resource.kubernetes.io/delete-protection"
_REFUSALS = {
    1: unresolvable("resourceclaim not available on the node"),
    2: unresolvable("cannot allocate all claims"),
}


@dataclass(slots=True)
class _PodClaims:
    """The claims of one pod in one attempt."""

    allocated: list[Object]
    waiting: list[Object]
    by_node: dict[str, list[OfferedDevice]] = field(default_factory=dict)
    classes: dict[str, Object] = field(default_factory=dict)
    usage: DeviceUsage = field(default_factory=DeviceUsage)
    choices: dict[int, list[list[Chosen]]] = field(default_factory=dict)
    """The devices of the waiting claims on each node that passed the filter."""
    assumed: list[tuple[Object, Object]] = field(default_factory=list)
    """Claims before and after this pod's reservation."""


class DynamicResources:
    name = "DynamicResources"
    depends = Depends.CLUSTER

    def __init__(self, client: Client | None = None) -> None:
        self._client = client

    # Filter

    def pre_filter(self, cycle: Cycle) -> Refusal | Skip | None:
        if not cycle.template.spec.get("resourceClaims"):
            return SKIP
        found = list(_claims_of(cycle))
        for one in found:
            if isinstance(one, Refusal):
                return one
        claims = [one for one in found if not isinstance(one, Refusal)]
        if not claims:
            return SKIP
        refusal = next((why for claim in claims if (why := _obstacle(cycle, claim)) is not None), None)
        if refusal is not None:
            return refusal
        lookups = cycle.state.lookups
        notes = _PodClaims(
            allocated=[claim for claim in claims if _allocation(claim)],
            waiting=[claim for claim in claims if not _allocation(claim)],
        )
        if notes.waiting:
            notes.by_node = devices_of(lookups.all(_SLICE))
            notes.classes = {one["metadata"]["name"]: one for one in lookups.all(_CLASS)}
            notes.usage = usage_of(lookups.all(_CLAIM))
        cycle.data[self.name] = notes
        return None

    def filter(self, cycle: Cycle, at: At) -> Codes:
        notes: _PodClaims = cycle.data[self.name]
        nodes = cycle.state.nodes
        slots = slots_of(at, cycle.state.size)
        codes = np.zeros(len(slots), dtype=np.int32)
        for claim in notes.allocated:
            selector = _allocation(claim).get("nodeSelector")
            if selector:
                codes[~match_terms(nodes, selector.get("nodeSelectorTerms") or (), at)] = 1
        if notes.waiting:
            for position, slot in enumerate(slots.tolist()):
                if nodes.present[slot] and not self._allocate(cycle, notes, slot):
                    codes[position] = 2
        return codes

    def _allocate(self, cycle: Cycle, notes: _PodClaims, slot: int) -> bool:
        """Choose devices for all waiting claims on one node, and keep the choice for Reserve."""
        name = cycle.state.nodes.names[slot]
        shared = [one for one in notes.by_node.get("", ()) if _is_offered_to(cycle, one, slot)]
        search = DeviceSearch([*notes.by_node.get(name, ()), *shared], notes.classes, notes.usage)
        try:
            found = search.allocate(notes.waiting)
        except SearchTooLong:
            found = None
        if found is None:
            notes.choices.pop(slot, None)
            return False
        notes.choices[slot] = found
        return True

    def refusal(self, cycle: Cycle, code: int) -> Refusal:
        return _REFUSALS[code]

    # Score: earlier alternatives of firstAvailable are better

    def pre_score(self, cycle: Cycle, feasible: Mask) -> Skip | None:
        notes: _PodClaims | None = cycle.data.get(self.name)
        return None if notes is not None and notes.choices else SKIP

    def score(self, cycle: Cycle, at: At) -> Integers:
        slots = slots_of(at, cycle.state.size)
        scores = np.zeros(len(slots), dtype=np.int64)
        notes: _PodClaims | None = cycle.data.get(self.name)
        if notes is not None and notes.choices:
            for position, slot in enumerate(slots.tolist()):
                if slot in notes.choices:
                    scores[position] = _rank(notes, notes.choices[slot])
        return scores

    def normalize(self, cycle: Cycle, scores: Integers, slots: Slots) -> Integers:
        return normalize(scores)

    # Reserve and PreBind

    def reserve(self, cycle: Cycle, node: str) -> Refusal | None:
        notes: _PodClaims | None = cycle.data.get(self.name)
        if notes is None:
            return None
        chosen = notes.choices.get(cycle.state.nodes.slot_of[node], [])
        changed = [(claim, _reserved(claim, cycle.pod, None)) for claim in notes.allocated]
        for claim, devices in zip(notes.waiting, chosen, strict=True):
            allocation = describe_allocation(claim, devices, notes.classes, node)
            changed.append((claim, _reserved(claim, cycle.pod, allocation)))
        for old, new in changed:
            if old is not new:
                notes.assumed.append((old, new))
                cycle.state.lookups.put(_CLAIM, new)
        return None

    def unreserve(self, cycle: Cycle, node: str) -> None:
        notes: _PodClaims | None = cycle.data.get(self.name)
        for old, new in notes.assumed if notes is not None else ():
            metadata = new["metadata"]
            if cycle.state.lookups.get(_CLAIM, metadata["name"], namespace=metadata["namespace"]) is new:
                cycle.state.lookups.put(_CLAIM, old)
        if notes is not None:
            notes.assumed = []

    async def pre_bind(self, cycle: Cycle, node: str) -> Refusal | None:
        notes: _PodClaims | None = cycle.data.get(self.name)
        if notes is None or self._client is None:
            return None
        for _, new in notes.assumed:
            claim = new
            if _FINALIZER not in (new["metadata"].get("finalizers") or ()):
                metadata = {**new["metadata"], "finalizers": [*(new["metadata"].get("finalizers") or ()), _FINALIZER]}
                stored: Object = await self._client.update({**new, "metadata": metadata})
                claim = {**stored, "status": new["status"]}
            await self._client.update(claim, subresource="status")
        return None

    def events(self) -> Sequence[EventRegistration]:
        return (
            EventRegistration(NODE, ActionType.ADD | ActionType.NODE_LABELS),
            EventRegistration(_CLAIM, ActionType.ADD | ActionType.UPDATE | ActionType.DELETE),
            EventRegistration(_CLASS, ActionType.ADD | ActionType.UPDATE),
            EventRegistration(_SLICE, ActionType.ADD | ActionType.UPDATE),
        )


def _claims_of(cycle: Cycle) -> Iterator[Object | Refusal]:
    """Yield the claims of a pod, or why one cannot be used yet."""
    pod = cycle.pod
    generated = {
        one["name"]: one.get("resourceClaimName")
        for one in (pod.object.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    for entry in cycle.template.spec["resourceClaims"]:
        name = entry.get("resourceClaimName")
        if not name:
            if entry["name"] not in generated:
                yield unresolvable(f'pod "{pod.key}": resource claim {entry["name"]} was not created yet')
                continue
            name = generated[entry["name"]]
            if not name:
                continue  # Nothing had to be generated.
        claim = cycle.state.lookups.get(_CLAIM, name, namespace=pod.namespace)
        if claim is None:
            yield unresolvable(f'could not find ResourceClaim "{pod.namespace}/{name}"')
        elif claim["metadata"].get("deletionTimestamp"):
            yield unresolvable(f'resourceclaim "{name}" is being deleted')
        else:
            yield claim


def _obstacle(cycle: Cycle, claim: Object) -> Refusal | None:
    """Return why no node can serve a claim."""
    if _allocation(claim):
        users = (claim.get("status") or {}).get("reservedFor") or ()
        is_full = len(users) >= _MOST_USERS and all(one.get("uid") != cycle.pod.uid for one in users)
        return unresolvable("resourceclaim in use") if is_full else None
    for request in claim["spec"].get("devices", {}).get("requests") or ():
        alternatives = [(request["name"], request["exactly"])] if request.get("exactly") else []
        alternatives += [(f"{request['name']}/{one['name']}", one) for one in request.get("firstAvailable") or ()]
        for name, wanted in alternatives:
            wanted_class = wanted["deviceClassName"]
            if cycle.state.lookups.get(_CLASS, wanted_class) is None:
                return unresolvable(f"request {name}: device class {wanted_class} does not exist")
    return None


def _allocation(claim: Object) -> Object:
    found: Object = (claim.get("status") or {}).get("allocation") or {}
    return found


def _is_offered_to(cycle: Cycle, device: OfferedDevice, slot: int) -> bool:
    """Return whether a device of several nodes can be used on this one."""
    source = device.device if device.slice.get("perDeviceNodeSelection") else device.slice
    if source.get("allNodes"):
        return True
    if source.get("nodeName"):
        return bool(source["nodeName"] == cycle.state.nodes.names[slot])
    terms = (source.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    return bool(terms) and bool(match_terms(cycle.state.nodes, terms, np.array([slot], dtype=np.intp))[0])


def _rank(notes: _PodClaims, choices: list[list[Chosen]]) -> int:
    total = 0
    chosen = {(position, one.request) for position, devices in enumerate(choices) for one in devices}
    for position, claim in enumerate(notes.waiting):
        for request in claim["spec"]["devices"].get("requests") or ():
            for index, one in enumerate(request.get("firstAvailable") or ()):
                if (position, f"{request['name']}/{one['name']}") in chosen:
                    total += _MOST_ALTERNATIVES - index
    return total


def _reserved(claim: Object, pod: Pod, allocation: Object | None) -> Object:
    """Return a claim with an allocation and a reservation for the pod; the same claim if it has both."""
    status = claim.get("status") or {}
    users = status.get("reservedFor") or []
    if allocation is None and any(one.get("uid") == pod.uid for one in users):
        return claim
    user = {"resource": "pods", "name": pod.name, "uid": pod.uid}
    changed = {**status, "reservedFor": [*users, user]}
    if allocation is not None:
        changed["allocation"] = allocation
    return {**claim, "status": changed}
