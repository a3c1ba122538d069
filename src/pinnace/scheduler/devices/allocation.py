"""Choose devices for the claims of a pod on one node, by trying: all claims get theirs, or none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pinnace.model.objects import Object, new_uid
from pinnace.scheduler.devices.capacity import Consumption, add, consumption_of, has_room
from pinnace.scheduler.devices.pools import OfferedDevice
from pinnace.scheduler.devices.usage import DeviceUsage, fits_counters

_MOST_STEPS = 20_000
"""Allocation is a search: one that takes longer is given up, so that other pods do not wait."""
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
    tolerations: Sequence[Object] = ()


@dataclass(slots=True)
class DeviceSearch:
    """The search on one node."""

    devices: Sequence[OfferedDevice]
    classes: Mapping[str, Object]
    usage: DeviceUsage
    """The devices of other claims."""
    steps: int = 0
    mine: list[Chosen] = field(default_factory=list)
    """The devices of the claims before the present one."""

    def allocate(self, claims: Sequence[Object]) -> list[list[Chosen]] | None:
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

    def _requests(self, claim: Object, position: int, chosen: list[Chosen]) -> Any:
        """Yield every way to satisfy the requests from `position` on."""
        requests = claim["spec"].get("devices", {}).get("requests") or []
        if position == len(requests):
            yield list(chosen)
            return
        request = requests[position]
        if request.get("exactly"):
            alternatives = [(request["name"], request["exactly"])]
        else:
            alternatives = [(f"{request['name']}/{one['name']}", one) for one in request.get("firstAvailable") or ()]
        for name, wanted in alternatives:
            for more in self._devices(claim, name, wanted, chosen):
                yield from self._requests(claim, position + 1, [*chosen, *more])

    def _devices(self, claim: Object, name: str, wanted: Object, chosen: list[Chosen]) -> Any:
        selectors = [one["cel"]["expression"] for one in wanted.get("selectors") or ()]
        device_class = self.classes.get(wanted["deviceClassName"]) or {}
        selectors += [one["cel"]["expression"] for one in (device_class.get("spec") or {}).get("selectors") or ()]
        fitting = [one for one in self.devices if one.is_selected(selectors)]
        is_all = wanted.get("allocationMode") == "All"
        count = len(fitting) if is_all else wanted.get("count") or 1
        if (is_all and not fitting) or len(chosen) + count > _MOST_RESULTS:
            return
        usable = [found for one in fitting if (found := self._candidate(one, name, wanted, chosen)) is not None]
        yield from self._combine(claim, usable, count, chosen, [])

    def _candidate(self, device: OfferedDevice, name: str, wanted: Object, chosen: list[Chosen]) -> Chosen | None:
        """Return the choice of a device for a request; None if it is in use, tainted, or does not allow the request."""
        is_admin = bool(wanted.get("adminAccess"))
        if not device.is_shareable:
            if any(one.device.id == device.id for one in chosen):
                return None
            if not is_admin and any(one.device.id == device.id for one in self.mine):
                return None
        if not is_admin and device.id in self.usage.taken:
            return None
        tolerations = wanted.get("tolerations") or ()
        taints = [one for one in device.device.get("taints") or () if one.get("effect") in ("NoSchedule", "NoExecute")]
        if not all(any(_tolerates(one, taint) for one in tolerations) for taint in taints):
            return None
        consumed = consumption_of(wanted, device.device)
        return Chosen(name, device, consumed, is_admin, tolerations) if consumed is not None else None

    def _has_room(self, candidate: Chosen, chosen: Sequence[Chosen]) -> bool:
        """Return whether a device has the capacity, and its pool the counters, besides the devices chosen so far."""
        device = candidate.device
        in_use: Consumption = {}
        is_shared = False
        if device.is_shareable:
            shares = [one.consumed for one in chosen if one.device.id == device.id]
            if device.id in self.usage.shared:
                shares.append(self.usage.shared[device.id])
            is_shared = bool(shares)
            for share in shares:
                add(in_use, share)
        if not has_room(device.device, candidate.consumed, in_use):
            return False
        # A device that is shared already has its counters.
        return not device.consumes or is_shared or fits_counters(device, [one.device for one in chosen], self.usage)

    def _combine(
        self,
        claim: Object,
        usable: Sequence[Chosen],
        count: int,
        chosen: list[Chosen],
        picked: list[Chosen],
    ) -> Any:
        """Yield every choice of `count` devices that keeps the claim's constraints."""
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise SearchTooLong
        if count == 0:
            yield picked
            return
        for position, candidate in enumerate(usable[: len(usable) - count + 1]):
            before = [*chosen, *picked]
            if _keeps_constraints(claim, [*before, candidate]) and self._has_room(candidate, [*self.mine, *before]):
                rest = usable[position + 1 :]
                yield from self._combine(claim, rest, count - 1, chosen, [*picked, candidate])


def _keeps_constraints(claim: Object, chosen: list[Chosen]) -> bool:
    for constraint in claim["spec"]["devices"].get("constraints") or ():
        names = constraint.get("requests") or ()
        bound = [one for one in chosen if not names or one.request in names or one.request.partition("/")[0] in names]
        same, distinct = constraint.get("matchAttribute"), constraint.get("distinctAttribute")
        values = [one.device.attribute(same or distinct or "") for one in bound]
        if same and (None in values or len(set(values)) > 1):
            return False
        if distinct and (None in values or len(set(values)) < len(values)):
            return False
    return True


def _tolerates(toleration: Object, taint: Object) -> bool:
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


def describe_allocation(claim: Object, chosen: Sequence[Chosen], classes: Mapping[str, Object], node: str) -> Object:
    """Return the AllocationResult of a claim, for its status."""
    results = []
    for one in chosen:
        driver, pool, device = one.device.id
        result: Object = {"request": one.request, "driver": driver, "pool": pool, "device": device}
        if one.is_admin:
            result["adminAccess"] = True
        if one.tolerations:
            result["tolerations"] = [*one.tolerations]
        if one.device.is_shareable:
            result["shareID"] = new_uid()
            if one.consumed:
                result["consumedCapacity"] = {name: str(amount) for name, amount in one.consumed.items()}
        for name in ("bindingConditions", "bindingFailureConditions"):
            if one.device.device.get(name):
                result[name] = [*one.device.device[name]]
        results.append(result)
    allocation: Object = {"devices": {"results": results}}
    config = [*_class_config(claim, chosen, classes), *_claim_config(claim, chosen)]
    if config:
        allocation["devices"]["config"] = config
    selector = _node_selector(chosen, node)
    if selector is not None:
        allocation["nodeSelector"] = selector
    return allocation


def _class_config(claim: Object, chosen: Sequence[Chosen], classes: Mapping[str, Object]) -> list[Object]:
    """Return the configurations of the classes, each once, with all requests of its class."""
    found: dict[str, list[Object]] = {}
    for name, wanted in _used_requests(claim, chosen):
        class_name = wanted["deviceClassName"]
        if class_name in found:
            for one in found[class_name]:
                one["requests"].append(name)
            continue
        spec = (classes.get(class_name) or {}).get("spec") or {}
        found[class_name] = [{"source": "FromClass", "requests": [name], **one} for one in spec.get("config") or ()]
    return [one for some in found.values() for one in some]


def _claim_config(claim: Object, chosen: Sequence[Chosen]) -> list[Object]:
    """Return the configurations of the claim, without those for alternatives that were not chosen."""
    used = {name for name, _ in _used_requests(claim, chosen)}
    used |= {name.partition("/")[0] for name in used}
    return [
        {"source": "FromClaim", **one}
        for one in claim["spec"]["devices"].get("config") or ()
        if not one.get("requests") or used.intersection(one["requests"])
    ]


def _used_requests(claim: Object, chosen: Sequence[Chosen]) -> Iterator[tuple[str, Object]]:
    """Yield the requests of a claim, of each list of alternatives the chosen one."""
    names = {one.request for one in chosen}
    for request in claim["spec"]["devices"].get("requests") or ():
        if request.get("exactly"):
            yield request["name"], request["exactly"]
        for one in request.get("firstAvailable") or ():
            if (name := f"{request['name']}/{one['name']}") in names:
                yield name, one


def _node_selector(chosen: Sequence[Chosen], node: str) -> Object | None:
    """Return where the devices can be used: on their node, on the nodes that all selectors match, or everywhere."""
    term: Object = {}
    for one in chosen:
        offered = one.device
        source = offered.device if offered.slice.get("perDeviceNodeSelection") else offered.slice
        if source.get("nodeName") or offered.device.get("bindsToNode"):
            fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
            return {"nodeSelectorTerms": [{"matchFields": fields}]}
        for selected in (source.get("nodeSelector") or {}).get("nodeSelectorTerms") or ():
            for kind in ("matchFields", "matchExpressions"):
                known = term.setdefault(kind, [])
                known += [requirement for requirement in selected.get(kind) or () if requirement not in known]
    term = {kind: requirements for kind, requirements in term.items() if requirements}
    return {"nodeSelectorTerms": [term]} if term else None
