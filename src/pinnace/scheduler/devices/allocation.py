"""Choose devices for the claims of a pod on one node, by trying: all claims get theirs, or none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from pinnace.model.objects import new_uid, without_zeros
from pinnace.model.typed_objects import (
    AllocationResult,
    Device,
    DeviceAllocationConfiguration,
    DeviceClass,
    DeviceRequestAllocationResult,
    DeviceTaint,
    DeviceToleration,
    ExactDeviceRequest,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ResourceClaim,
    ResourceSliceSpec,
)
from pinnace.scheduler.devices.capacity import Consumption, add, consumption_of, has_room
from pinnace.scheduler.devices.pools import OfferedDevice
from pinnace.scheduler.devices.usage import DeviceUsage, fits_counters

MOST_STEPS = 50_000
"""Allocation is a search: one that takes longer is given up, so that other pods do not wait. A step is one device
that is examined, or one earlier choice that a constraint compares."""
_FEWEST_STEPS = 200


def steps_after(limit: int) -> int:
    """Return the limit for the next node after a search that was too long: it is likely to be as long there."""
    return max(_FEWEST_STEPS, limit // 2)


_MOST_RESULTS = 32


class SearchTooLong(Exception):
    """No allocation was found within the number of steps."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """One device for one request; `request` is request/subrequest for one of several alternatives."""

    request: str
    device: OfferedDevice
    consumed: Consumption
    """The capacity that it consumes of a device that can be shared."""
    is_admin: bool = False
    tolerations: Sequence[DeviceToleration] = ()


@dataclass(slots=True)
class DeviceSearch:
    """The search on one node."""

    devices: Sequence[OfferedDevice]
    classes: Mapping[str, DeviceClass]
    usage: DeviceUsage
    """The devices of other claims."""
    most_steps: int = MOST_STEPS
    steps: int = 0
    mine: list[Chosen] = field(default_factory=list)
    """The devices of the claims before the present one."""

    def allocate(self, claims: Sequence[ResourceClaim]) -> list[list[Chosen]] | None:
        """Return the devices of each claim; None if they cannot all be allocated. Raise SearchTooLong."""
        if not claims:
            return []
        for chosen in self._requests(claims[0], 0, []):
            before = len(self.mine)
            self.mine.extend(chosen)
            rest = self.allocate(claims[1:])
            if rest is not None:
                return [chosen, *rest]
            del self.mine[before:]
        return None

    def _requests(self, claim: ResourceClaim, position: int, chosen: list[Chosen]) -> Any:
        """Yield every way to satisfy the requests from `position` on."""
        requests = claim["spec"].get("devices", {}).get("requests") or []
        if position == len(requests):
            yield list(chosen)
            return
        request = requests[position]
        if request.get("exactly"):
            alternatives = [(request["name"], request["exactly"])]
        else:
            alternatives = [
                (f"{request['name']}/{alternative['name']}", cast("ExactDeviceRequest", alternative))
                for alternative in request.get("firstAvailable") or ()
            ]
        for name, wanted in alternatives:
            for more in self._devices(claim, name, wanted, chosen):
                yield from self._requests(claim, position + 1, [*chosen, *more])

    def _devices(self, claim: ResourceClaim, name: str, wanted: ExactDeviceRequest, chosen: list[Chosen]) -> Any:
        selectors = [selector["cel"]["expression"] for selector in wanted.get("selectors") or ()]
        device_class = self.classes.get(wanted["deviceClassName"])
        if device_class is not None:
            selectors += [selector["cel"]["expression"] for selector in device_class["spec"].get("selectors") or ()]
        fitting = [device for device in self.devices if device.is_selected(selectors)]
        is_all = wanted.get("allocationMode") == "All"
        count = len(fitting) if is_all else wanted.get("count") or 1
        if (is_all and not fitting) or len(chosen) + count > _MOST_RESULTS:
            return
        self._step(len(fitting))
        usable = [
            candidate for device in fitting if (candidate := self._candidate(device, name, wanted, chosen)) is not None
        ]
        yield from self._combine(claim, usable, count, chosen, [])

    def _step(self, count: int) -> None:
        self.steps += count
        if self.steps > self.most_steps:
            raise SearchTooLong

    def _candidate(
        self, device: OfferedDevice, name: str, wanted: ExactDeviceRequest, chosen: list[Chosen]
    ) -> Chosen | None:
        """Return the choice of a device for a request; None if it is in use, tainted, or does not allow the request."""
        is_admin = bool(wanted.get("adminAccess"))
        if not device.is_shareable:
            if any(choice.device.id == device.id for choice in chosen):
                return None
            if not is_admin and any(choice.device.id == device.id for choice in self.mine):
                return None
        if not is_admin and device.id in self.usage.taken:
            return None
        tolerations = wanted.get("tolerations") or ()
        taints = [
            taint for taint in device.device.get("taints") or () if taint.get("effect") in ("NoSchedule", "NoExecute")
        ]
        if not all(any(_tolerates(toleration, taint) for toleration in tolerations) for taint in taints):
            return None
        consumed = consumption_of(wanted, device.device)
        return Chosen(name, device, consumed, is_admin, tolerations) if consumed is not None else None

    def _has_room(self, candidate: Chosen, chosen: Sequence[Chosen]) -> bool:
        """Return whether a device has the capacity, and its pool the counters, besides the devices chosen so far."""
        device = candidate.device
        in_use: Consumption = {}
        is_shared = False
        if device.is_shareable:
            shares = [choice.consumed for choice in chosen if choice.device.id == device.id]
            if device.id in self.usage.shared:
                shares.append(self.usage.shared[device.id])
            is_shared = bool(shares)
            for share in shares:
                add(in_use, share)
        if not has_room(device.device, candidate.consumed, in_use):
            return False
        # A device that is shared already has its counters.
        return (
            not device.consumes or is_shared or fits_counters(device, [choice.device for choice in chosen], self.usage)
        )

    def _combine(
        self,
        claim: ResourceClaim,
        usable: Sequence[Chosen],
        count: int,
        chosen: list[Chosen],
        picked: list[Chosen],
    ) -> Any:
        """Yield every choice of `count` devices that keeps the claim's constraints."""
        self._step(1)
        if count == 0:
            yield picked
            return
        for position, candidate in enumerate(usable[: len(usable) - count + 1]):
            before = [*chosen, *picked]
            self._step(1 + (1 + len(before)) * len(claim["spec"]["devices"].get("constraints") or ()))
            if _keeps_constraints(claim, [*before, candidate]) and self._has_room(candidate, [*self.mine, *before]):
                rest = usable[position + 1 :]
                yield from self._combine(claim, rest, count - 1, chosen, [*picked, candidate])


def _keeps_constraints(claim: ResourceClaim, chosen: list[Chosen]) -> bool:
    for constraint in claim["spec"]["devices"].get("constraints") or ():
        names = constraint.get("requests") or ()
        bound = [
            choice
            for choice in chosen
            if not names or choice.request in names or choice.request.partition("/")[0] in names
        ]
        same, distinct = constraint.get("matchAttribute"), constraint.get("distinctAttribute")
        values = [choice.device.attribute(same or distinct or "") for choice in bound]
        if same and (None in values or len(set(values)) > 1):
            return False
        if distinct and (None in values or len(set(values)) < len(values)):
            return False
    return True


def _tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    match toleration.get("operator") or "Equal":
        case "Exists":
            return True
        case "Equal":
            return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")
    return False


def describe_allocation(
    claim: ResourceClaim, chosen: Sequence[Chosen], classes: Mapping[str, DeviceClass], node: str
) -> AllocationResult:
    """Return the AllocationResult of a claim, for its status."""
    results = []
    for choice in chosen:
        driver, pool, device = choice.device.id
        result: DeviceRequestAllocationResult = {
            "request": choice.request,
            "driver": driver,
            "pool": pool,
            "device": device,
        }
        if choice.is_admin:
            result["adminAccess"] = True
        if choice.tolerations:
            result["tolerations"] = [*choice.tolerations]
        if choice.device.is_shareable:
            result["shareID"] = new_uid()
            if choice.consumed:
                result["consumedCapacity"] = {name: str(amount) for name, amount in choice.consumed.items()}
        name: Literal["bindingConditions", "bindingFailureConditions"]
        for name in ("bindingConditions", "bindingFailureConditions"):
            if choice.device.device.get(name):
                result[name] = [*choice.device.device[name]]
        results.append(result)
    allocation: AllocationResult = {"devices": {"results": results}}
    config = [*_class_config(claim, chosen, classes), *_claim_config(claim, chosen)]
    if config:
        allocation["devices"]["config"] = config
    selector = _node_selector(chosen, node)
    if selector is not None:
        allocation["nodeSelector"] = selector
    return allocation


def _class_config(
    claim: ResourceClaim, chosen: Sequence[Chosen], classes: Mapping[str, DeviceClass]
) -> list[DeviceAllocationConfiguration]:
    """Return the configurations of the classes, each once, with all requests of its class."""
    by_class: dict[str, list[DeviceAllocationConfiguration]] = {}
    for name, wanted in _used_requests(claim, chosen):
        class_name = wanted["deviceClassName"]
        if class_name in by_class:
            for entry in by_class[class_name]:
                entry["requests"].append(name)
            continue
        known = classes.get(class_name)
        configurations = (known["spec"].get("config") if known is not None else None) or ()
        by_class[class_name] = [
            cast("DeviceAllocationConfiguration", {"source": "FromClass", "requests": [name], **configuration})
            for configuration in configurations
        ]
    return [device for some in by_class.values() for device in some]


def _claim_config(claim: ResourceClaim, chosen: Sequence[Chosen]) -> list[DeviceAllocationConfiguration]:
    """Return the configurations of the claim, without those for alternatives that were not chosen."""
    used = {name for name, _ in _used_requests(claim, chosen)}
    used |= {name.partition("/")[0] for name in used}
    return [
        {"source": "FromClaim", **entry}
        for entry in claim["spec"]["devices"].get("config") or ()
        if not entry.get("requests") or used.intersection(entry["requests"])
    ]


def _used_requests(claim: ResourceClaim, chosen: Sequence[Chosen]) -> Iterator[tuple[str, ExactDeviceRequest]]:
    """Yield the requests of a claim: of each list of alternatives, the chosen request."""
    names = {choice.request for choice in chosen}
    for request in claim["spec"]["devices"].get("requests") or ():
        if request.get("exactly"):
            yield request["name"], request["exactly"]
        for alternative in request.get("firstAvailable") or ():
            if (name := f"{request['name']}/{alternative['name']}") in names:
                yield name, cast("ExactDeviceRequest", alternative)


def _node_selector(chosen: Sequence[Chosen], node: str) -> NodeSelector | None:
    """Return where the devices can be used: on their node, on the nodes that all selectors match, or everywhere."""
    term: NodeSelectorTerm = {}
    for choice in chosen:
        offered = choice.device
        source: Device | ResourceSliceSpec = (
            offered.device if offered.slice.get("perDeviceNodeSelection") else offered.slice
        )
        if source.get("nodeName") or offered.device.get("bindsToNode"):
            fields: list[NodeSelectorRequirement] = [{"key": "metadata.name", "operator": "In", "values": [node]}]
            return {"nodeSelectorTerms": [{"matchFields": fields}]}
        for selected in (source.get("nodeSelector") or {}).get("nodeSelectorTerms") or ():
            kind: Literal["matchFields", "matchExpressions"]
            for kind in ("matchFields", "matchExpressions"):
                known = term.setdefault(kind, [])
                known += [requirement for requirement in selected.get(kind) or () if requirement not in known]
    term = without_zeros(term)
    return {"nodeSelectorTerms": [term]} if term else None
