"""Choose devices for the claims of a pod on one node, by trying: all claims get theirs, or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pinnace.model.objects import Object
from pinnace.scheduler.devices.pools import DeviceId, OfferedDevice

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
    is_admin: bool = False


@dataclass(slots=True)
class DeviceSearch:
    """The search on one node."""

    devices: Sequence[OfferedDevice]
    classes: Mapping[str, Object]
    taken: set[DeviceId]
    """Devices of other claims."""
    steps: int = 0
    mine: set[DeviceId] = field(default_factory=set)

    def allocate(self, claims: Sequence[Object]) -> list[list[Chosen]] | None:
        """Return the devices of each claim; None if they cannot all be allocated. Raise SearchTooLong."""
        if not claims:
            return []
        for chosen in self._requests(claims[0], 0, []):
            self.mine.update(one.device.id for one in chosen)
            rest = self.allocate(claims[1:])
            if rest is not None:
                return [chosen, *rest]
            self.mine.difference_update(one.device.id for one in chosen)
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
        is_admin = bool(wanted.get("adminAccess"))
        usable = [one for one in fitting if self._is_usable(one, wanted, chosen, is_admin=is_admin)]
        yield from self._combine(claim, name, usable, count, chosen, [], is_admin)

    def _is_usable(self, device: OfferedDevice, wanted: Object, chosen: list[Chosen], *, is_admin: bool) -> bool:
        if any(one.device.id == device.id for one in chosen):
            return False
        if not is_admin and (device.id in self.taken or device.id in self.mine):
            return False
        taints = [one for one in device.device.get("taints") or () if one.get("effect") in ("NoSchedule", "NoExecute")]
        return all(any(_tolerates(one, taint) for one in wanted.get("tolerations") or ()) for taint in taints)

    def _combine(
        self,
        claim: Object,
        name: str,
        usable: Sequence[OfferedDevice],
        count: int,
        chosen: list[Chosen],
        picked: list[Chosen],
        is_admin: bool,
    ) -> Any:
        """Yield every choice of `count` devices that keeps the claim's constraints."""
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise SearchTooLong
        if count == 0:
            yield picked
            return
        for position, device in enumerate(usable[: len(usable) - count + 1]):
            candidate = Chosen(name, device, is_admin)
            if _keeps_constraints(claim, [*chosen, *picked, candidate]):
                rest = usable[position + 1 :]
                yield from self._combine(claim, name, rest, count - 1, chosen, [*picked, candidate], is_admin)


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
        results.append(result | ({"adminAccess": True} if one.is_admin else {}))
    allocation: Object = {"devices": {"results": results}}
    config = [*_class_config(claim, chosen, classes), *_claim_config(claim)]
    if config:
        allocation["devices"]["config"] = config
    selector = _node_selector(chosen, node)
    if selector is not None:
        allocation["nodeSelector"] = selector
    return allocation


def _class_config(claim: Object, chosen: Sequence[Chosen], classes: Mapping[str, Object]) -> list[Object]:
    found = []
    for request in claim["spec"]["devices"].get("requests") or ():
        alternatives = [(request["name"], request.get("exactly"))]
        alternatives += [(f"{request['name']}/{one['name']}", one) for one in request.get("firstAvailable") or ()]
        for name, wanted in alternatives:
            if wanted and any(one.request == name for one in chosen):
                spec = (classes.get(wanted["deviceClassName"]) or {}).get("spec") or {}
                found += [{"source": "FromClass", "requests": [name], **one} for one in spec.get("config") or ()]
    return found


def _claim_config(claim: Object) -> list[Object]:
    return [{"source": "FromClaim", **one} for one in claim["spec"]["devices"].get("config") or ()]


def _node_selector(chosen: Sequence[Chosen], node: str) -> Object | None:
    """Return where the devices can be used: on their node, on the nodes of their slice, or everywhere (None)."""
    if any(one.device.slice.get("nodeName") for one in chosen):
        return {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}
    selectors = [one.device.slice["nodeSelector"] for one in chosen if one.device.slice.get("nodeSelector")]
    return selectors[0] if selectors else None
