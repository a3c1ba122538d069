"""The ResourceClaims of one pod in one attempt: which are allocated, which wait for devices, and what was chosen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from pinnace.model.typed_objects import (
    AllocationResult,
    DeviceClass,
    DeviceRequestAllocationResult,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from pinnace.scheduler.devices.allocation import MOST_STEPS, Chosen
from pinnace.scheduler.devices.extended_resources import ExtendedClaim, extended_claim, is_for
from pinnace.scheduler.devices.pools import OfferedDevice
from pinnace.scheduler.devices.usage import DeviceUsage
from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.status import Refusal, unresolvable
from pinnace.scheduler.state.lookups import Lookups
from pinnace.scheduler.state.pods import Pod

CLAIM: Final = "ResourceClaim"
CLASS: Final = "DeviceClass"
_MOST_USERS = 256
_MOST_ALTERNATIVES = 8


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """The devices of all waiting claims on one node."""

    devices: Sequence[list[Chosen]]
    """For each waiting claim, and at the end for the claim for extended resources if there is one."""
    extended: ExtendedClaim | None


@dataclass(frozen=True, slots=True)
class AssumedClaim:
    """A claim as it will be after this pod's reservation."""

    old: ResourceClaim | None
    """The claim before; None for one that will be created for extended resources."""
    new: ResourceClaim
    allocation: AllocationResult | None
    """The allocation that is new."""


@dataclass(slots=True)
class PodClaims:
    """Filter fills in the choices, Reserve the assumed claims, PreBind the written ones."""

    allocated: list[ResourceClaim]
    waiting: list[ResourceClaim]
    extended: Mapping[str, str]
    """The extended resources that the pod requests and a device class stands for, with the class."""
    former: ResourceClaim | None
    """The claim that an earlier attempt has created for extended resources: it must go first."""
    by_node: dict[str, list[OfferedDevice]] = field(default_factory=dict)
    classes: dict[str, DeviceClass] = field(default_factory=dict)
    usage: DeviceUsage = field(default_factory=DeviceUsage)
    choices: dict[int, DeviceChoice] = field(default_factory=dict)
    most_steps: int = MOST_STEPS
    """The most steps of the search on the next node."""
    unavailable: list[ResourceClaim] = field(default_factory=list)
    """Allocated claims that cannot be used on a node."""
    assumed: list[AssumedClaim] = field(default_factory=list)
    written: list[ResourceClaim] = field(default_factory=list)
    created: ResourceClaim | None = None
    """The claim that PreBind has created for extended resources."""
    _variants: dict[frozenset[str], ExtendedClaim] = field(default_factory=dict)

    def extended_claim_at(self, cycle: Cycle, slot: int) -> ExtendedClaim | None:
        """Return the claim for the extended resources that a node does not offer itself; None if it offers all."""
        nodes = cycle.state.nodes
        names = frozenset(
            name
            for name in self.extended
            if name not in nodes.resources or not nodes.allocatable[nodes.resources[name], slot]
        )
        if not names:
            return None
        if names not in self._variants:
            self._variants[names] = extended_claim(cycle.pod, {name: self.extended[name] for name in names})
        return self._variants[names]

    def rank(self, slot: int) -> int:
        """Return a score for the devices chosen on a node: earlier alternatives of firstAvailable are better."""
        devices = self.choices[slot].devices[: len(self.waiting)]
        chosen = [
            (claim, {device.request for device in some}) for claim, some in zip(self.waiting, devices, strict=True)
        ]
        chosen += [(claim, {result["request"] for result in results_of(claim)}) for claim in self.allocated]
        total = 0
        for claim, requests in chosen:
            for request in claim["spec"]["devices"].get("requests") or ():
                for index, alternative in enumerate(request.get("firstAvailable") or ()):
                    if f"{request['name']}/{alternative['name']}" in requests:
                        total += _MOST_ALTERNATIVES - index
        return total


class PendingClaims:
    """Claims with allocations that are decided and not yet written: the watch may still report them without."""

    def __init__(self) -> None:
        self._by_uid: dict[str, ResourceClaim] = {}
        self._unnamed: dict[str, ResourceClaim] = {}

    def add(self, claim: ResourceClaim) -> None:
        """Take note of a claim with its new allocation; one without a uid is created for extended resources."""
        metadata = claim["metadata"]
        if "uid" in metadata:
            self._by_uid[metadata["uid"]] = claim
        else:
            self._unnamed[metadata["name"]] = claim

    def remove(self, claim: ResourceClaim) -> None:
        self._by_uid.pop(claim["metadata"].get("uid", ""), None)
        self._unnamed.pop(claim["metadata"]["name"], None)

    def resolve(self, claim: ResourceClaim) -> ResourceClaim:
        """Return a claim with its allocation, if one is decided."""
        return claim if allocation_of(claim) else self._by_uid.get(claim["metadata"].get("uid", ""), claim)

    def all(self, lookups: Lookups) -> Iterator[ResourceClaim]:
        """Yield all claims, with all decided allocations."""
        yield from map(self.resolve, lookups.all(ResourceClaim))
        yield from self._unnamed.values()


def claims_of(cycle: Cycle, pending: PendingClaims) -> PodClaims | Refusal | None:
    """Return the claims of a pod, or why no node can serve them; None if it has none."""
    outcomes = list(_user_claims(cycle.pod, cycle.state.lookups)) if cycle.template.spec.get("resourceClaims") else []
    refusal = next((outcome for outcome in outcomes if isinstance(outcome, Refusal)), None)
    if refusal is not None:
        return refusal
    claims = [pending.resolve(claim) for claim in outcomes if not isinstance(claim, Refusal)]
    extended = _extended_resources(cycle)
    if not claims and not extended:
        return None
    for claim in claims:
        if (refusal := _obstacle(cycle, claim)) is not None:
            return refusal
    former = None
    if extended:
        known = cycle.state.lookups.within(ResourceClaim, cycle.pod.namespace)
        former = next((claim for claim in known if is_for(claim, cycle.pod)), None)
    return PodClaims(
        allocated=[claim for claim in claims if allocation_of(claim)],
        waiting=[claim for claim in claims if not allocation_of(claim)],
        extended=extended,
        former=former,
    )


def missing_claim(pod: Pod, lookups: Lookups) -> Refusal | None:
    """Return why a claim that a pod names cannot be used yet; None if all can."""
    if not pod.spec.get("resourceClaims"):
        return None
    return next((claim for claim in _user_claims(pod, lookups) if isinstance(claim, Refusal)), None)


def allocation_of(claim: ResourceClaim) -> AllocationResult:
    return (claim.get("status") or {}).get("allocation") or {}


def results_of(claim: ResourceClaim) -> Sequence[DeviceRequestAllocationResult]:
    return (allocation_of(claim).get("devices") or {}).get("results") or ()


def is_reserved_for(claim: ResourceClaim, pod: Pod) -> bool:
    return any(consumer.get("uid") == pod.uid for consumer in (claim.get("status") or {}).get("reservedFor") or ())


def reserved(claim: ResourceClaim, pod: Pod, allocation: AllocationResult | None) -> ResourceClaim:
    """Return a claim with an allocation and a reservation for the pod."""
    status = claim.get("status") or {}
    user: ResourceClaimConsumerReference = {"resource": "pods", "name": pod.name, "uid": pod.uid}
    changed: ResourceClaimStatus = {**status, "reservedFor": [*(status.get("reservedFor") or ()), user]}
    if allocation is not None:
        changed["allocation"] = allocation
    return {**claim, "status": changed}


def _extended_resources(cycle: Cycle) -> Mapping[str, str]:
    classes = cycle.state.device_classes.by_resource()
    if not classes:
        return {}
    return {name: classes[name] for name, amount in cycle.template.requests.items() if amount and name in classes}


def _user_claims(pod: Pod, lookups: Lookups) -> Iterator[ResourceClaim | Refusal]:
    """Yield the claims that a pod names, or why one cannot be used yet."""
    generated = {
        status["name"]: status.get("resourceClaimName")
        for status in (pod.object.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    for entry in pod.spec["resourceClaims"]:
        name = entry.get("resourceClaimName") or ""
        is_generated = not name
        if is_generated:
            if entry["name"] not in generated:
                yield unresolvable(f'pod "{pod.key}": resource claim {entry["name"]} was not created yet')
                continue
            name = generated[entry["name"]] or ""
            if not name:
                continue  # Nothing had to be generated.
        claim = lookups.get(ResourceClaim, name, namespace=pod.namespace)
        if claim is None:
            yield unresolvable(f'could not find ResourceClaim "{pod.namespace}/{name}"')
        elif claim["metadata"].get("deletionTimestamp"):
            yield unresolvable(f'resourceclaim "{name}" is being deleted')
        elif is_generated and not _is_controlled_by(claim, pod):
            created_for = f"ResourceClaim {pod.namespace}/{name} was not created for Pod {pod.key}"
            yield unresolvable(f"{created_for} (Pod is not owner)")
        else:
            yield claim


def _is_controlled_by(claim: ResourceClaim, pod: Pod) -> bool:
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("uid") == pod.uid for owner in owners)


def _obstacle(cycle: Cycle, claim: ResourceClaim) -> Refusal | None:
    """Return why no node can serve a claim."""
    if allocation_of(claim):
        users = (claim.get("status") or {}).get("reservedFor") or ()
        is_full = len(users) >= _MOST_USERS and not is_reserved_for(claim, cycle.pod)
        return unresolvable("resourceclaim in use") if is_full else None
    for request in claim["spec"].get("devices", {}).get("requests") or ():
        alternatives = [(request["name"], request["exactly"])] if request.get("exactly") else []
        alternatives += [
            (f"{request['name']}/{alternative['name']}", cast("ExactDeviceRequest", alternative))
            for alternative in request.get("firstAvailable") or ()
        ]
        for name, wanted in alternatives:
            wanted_class = wanted["deviceClassName"]
            if cycle.state.lookups.get(DeviceClass, wanted_class) is None:
                return unresolvable(f"request {name}: device class {wanted_class} does not exist")
    return None
