"""Zone and node hints in EndpointSlices: by traffic distribution, or in proportion to the CPUs of each zone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pinnace.controllers.services.packing import Plan
from pinnace.model import quantity
from pinnace.model.objects import Key
from pinnace.model.typed_objects import Endpoint, EndpointHints, EndpointSlice, Node, Service
from pinnace.reconcile.conditions import is_true
from pinnace.reconcile.events import EventType

ZONE = "topology.kubernetes.io/zone"
_MODE = "service.kubernetes.io/topology-mode"
_OLD_MODE = "service.kubernetes.io/topology-aware-hints"
_EXCLUDED = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")
_OVERLOAD = 0.2
"""How far the load of a zone's endpoints may be above the average."""

_DISABLED = "TopologyAwareHintsDisabled"
_NO_NODES = "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes"
_FEW_ENDPOINTS = "Insufficient number of endpoints"
_OVERLOADED = "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold"
_NO_ZONE = "One or more endpoints do not have a zone specified"
_NO_HINTS = "No hints allocated for zones"


class Notice(NamedTuple):
    """An Event to record about the service."""

    type: EventType
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class _Share:
    """The number of endpoints that one zone should have."""

    minimum: int
    maximum: int
    desired: float


class ZoneHints:
    """Keeps the CPUs of each zone, and the Services whose hints are in proportion to them."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[str, int]] = {}
        self._ratios: dict[str, float] | None = None
        self._given: dict[Key, dict[str, dict[str, int]]] = {}

    def set_node(self, name: str, node: Node | None) -> set[Key]:
        """Record a node in its current state; return the Services whose hints no longer fit the nodes."""
        capacity = _capacity_of(node) if node is not None else None
        if capacity is None:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = capacity
        if not self._given:
            self._ratios = None  # Computed when a service asks.
            return set()
        self._ratios = _ratios_of(self._nodes.values())
        return {key for key, by_family in self._given.items() if any(map(self._is_overloaded, by_family.values()))}

    def forget(self, key: Key) -> None:
        self._given.pop(key, None)

    def apply(self, key: Key, service: Service, family: str, plan: Plan) -> list[Notice]:
        """Set the hints that a Service asks for in the slices of its plan, and no others."""
        if is_topology_aware(service):
            return [
                notice._replace(message=f"{notice.message}, addressType: {family}")
                for notice in self._distribute(key, family, plan)
            ]
        notices = []
        if key in self._given:
            message = f"Topology Aware Hints has been disabled, addressType: {family}"
            notices.append(Notice("Warning", _DISABLED, message))
            self._drop(key, family)
        _set_hints(plan, (service["spec"].get("trafficDistribution") or ""))
        return notices

    def _drop(self, key: Key, family: str) -> None:
        by_family = self._given.get(key, {})
        by_family.pop(family, None)
        if not by_family:
            self._given.pop(key, None)

    def _distribute(self, key: Key, family: str, plan: Plan) -> list[Notice]:
        shares = self._shares(sum(1 for _ in _ready(plan.create + plan.update + plan.unchanged)))
        if isinstance(shares, str):
            return self._without(key, family, plan, shares)
        allocated = _count_allocated(plan, shares)
        changing = plan.create + plan.update
        for endpoint in _ready(changing):
            zone = endpoint.get("zone")
            if not zone:
                return self._without(key, family, plan, _NO_ZONE)
            allocated[zone] = allocated.get(zone, 0) + 1
            endpoint["hints"] = {"forZones": [{"name": zone}]}
        for endpoint in (
            endpoint for slice_ in changing for endpoint in slice_["endpoints"] if not _is_ready(endpoint)
        ):
            endpoint.pop("hints", None)
        _redistribute(changing, allocated, shares)
        if not allocated:
            return self._without(key, family, plan, _NO_HINTS)
        is_new = key not in self._given
        self._given.setdefault(key, {})[family] = allocated
        text = "Topology Aware Hints has been enabled"
        return [Notice("Normal", "TopologyAwareHintsEnabled", text)] if is_new else []

    def _without(self, key: Key, family: str, plan: Plan, why: str) -> list[Notice]:
        self._drop(key, family)
        _set_hints(plan, "")
        return [Notice("Warning", _DISABLED, why)]

    def _shares(self, endpoints: int) -> dict[str, _Share] | str:
        """Return the share of each zone, or the reason why endpoints cannot be divided."""
        if self._ratios is None:
            self._ratios = _ratios_of(self._nodes.values())
        if self._ratios is None:
            return _NO_NODES
        counts = f"({endpoints} endpoints, {len(self._ratios)} zones)"
        if len(self._ratios) > endpoints:
            return f"{_FEW_ENDPOINTS} {counts}"
        least = {zone: math.ceil(ratio * endpoints / (1 + _OVERLOAD)) for zone, ratio in self._ratios.items()}
        spare = endpoints - sum(least.values())
        if spare < 0:
            return f"{_OVERLOADED} {counts}"
        return {
            zone: _Share(least[zone], least[zone] + spare, max(ratio * endpoints, least[zone]))
            for zone, ratio in self._ratios.items()
        }

    def _is_overloaded(self, given: Mapping[str, int]) -> bool:
        if not given:
            return False
        if not self._ratios:
            return True
        total = sum(given.values())
        return any(
            zone not in given or given[zone] < math.ceil(total * ratio / (1 + _OVERLOAD))
            for zone, ratio in self._ratios.items()
        )


def is_topology_aware(service: Service) -> bool:
    annotations = service["metadata"].get("annotations") or {}
    return annotations.get(_OLD_MODE, annotations.get(_MODE)) in ("Auto", "auto")


def zone_of(node: Node) -> str:
    return (node["metadata"].get("labels") or {}).get(ZONE, "")


def _capacity_of(node: Node) -> tuple[str, int] | None:
    """Return the zone of a node and its CPUs in thousandths; None if the node does not count."""
    labels = node["metadata"].get("labels") or {}
    if any(label in labels for label in _EXCLUDED) or not is_true(node, "Ready"):
        return None
    cpus = ((node.get("status") or {}).get("allocatable") or {}).get("cpu", "0")
    return labels.get(ZONE, ""), quantity.parse(cpus).milli_value


def _ratios_of(nodes: Iterable[tuple[str, int]]) -> dict[str, float] | None:
    """Return the share of CPUs in each zone; None unless every node has a zone and there are at least two zones."""
    by_zone: dict[str, int] = {}
    for zone, cpus in nodes:
        if not zone or not cpus:
            return None
        by_zone[zone] = by_zone.get(zone, 0) + cpus
    total = sum(by_zone.values())
    return {zone: cpus / total for zone, cpus in by_zone.items()} if len(by_zone) > 1 else None


def _set_hints(plan: Plan, distribution: str) -> None:
    """Set hints by traffic distribution; none for an empty one."""
    is_close = distribution in _DISTRIBUTIONS
    with_nodes = distribution == "PreferSameNode"

    def wanted(endpoint: Endpoint) -> EndpointHints | None:
        if not is_close or not _is_ready(endpoint):
            return None
        hints: EndpointHints = {}
        if endpoint.get("zone"):
            hints["forZones"] = [{"name": endpoint["zone"]}]
        if with_nodes and endpoint.get("nodeName"):
            hints["forNodes"] = [{"name": endpoint["nodeName"]}]
        return hints or None

    for slice_ in list(plan.unchanged):
        endpoints = slice_.get("endpoints") or ()
        if any(
            wanted(endpoint) != endpoint.get("hints") for endpoint in endpoints if _is_ready(endpoint) or not is_close
        ):
            plan.unchanged.remove(slice_)
            plan.update.append(slice_)
    for slice_ in plan.create + plan.update:
        for endpoint in slice_["endpoints"]:
            hints = wanted(endpoint)
            endpoint.pop("hints", None)
            if hints is not None:
                endpoint["hints"] = hints


def _is_ready(endpoint: Endpoint) -> bool:
    return bool((endpoint.get("conditions") or {}).get("ready"))


def _ready(slices: Iterable[EndpointSlice]) -> Iterator[Endpoint]:
    return (endpoint for slice_ in slices for endpoint in slice_.get("endpoints") or () if _is_ready(endpoint))


def _count_allocated(plan: Plan, shares: Mapping[str, _Share]) -> dict[str, int]:
    """Return the endpoints that the unchanged slices give to each zone. A slice with wrong hints joins the updates."""
    allocated: dict[str, int] = {}
    for slice_ in list(plan.unchanged):
        given = _hints_by_zone(slice_, allocated, shares)
        if given is None:
            plan.unchanged.remove(slice_)
            plan.update.append(slice_)
            continue
        for zone, count in given.items():
            allocated[zone] = allocated.get(zone, 0) + count
    return allocated


def _hints_by_zone(
    slice_: EndpointSlice, allocated: Mapping[str, int], shares: Mapping[str, _Share]
) -> dict[str, int] | None:
    given: dict[str, int] = {}
    for endpoint in _ready([slice_]):
        zones = (endpoint.get("hints") or {}).get("forZones") or ()
        if not zones:
            return None
        for zone in zones:
            given[zone["name"]] = given.get(zone["name"], 0) + 1
    for name, count in given.items():
        if name not in shares or count + allocated.get(name, 0) > shares[name].maximum:
            return None
    return given


def _redistribute(slices: Iterable[EndpointSlice], allocated: dict[str, int], shares: Mapping[str, _Share]) -> None:
    """Move endpoints from zones with too many to zones with too few, by their hints."""
    giving, receiving = _transfers(allocated, shares)
    for endpoint in _ready(slices):
        if not giving or not receiving:
            return
        zone = endpoint["zone"]
        if not giving.get(zone):
            continue
        receiver = next(iter(receiving))
        endpoint["hints"] = {"forZones": [{"name": receiver}]}
        allocated[receiver] = allocated.get(receiver, 0) + 1
        allocated[zone] -= 1
        for counts, name in ((giving, zone), (receiving, receiver)):
            counts[name] -= 1
            if not counts[name]:
                del counts[name]


def _transfers(allocated: Mapping[str, int], shares: Mapping[str, _Share]) -> tuple[dict[str, int], dict[str, int]]:
    surplus = {zone: allocated.get(zone, 0) - share.desired for zone, share in shares.items()}
    more = {zone: amount for zone, amount in surplus.items() if amount > 0}
    less = {zone: -amount for zone, amount in surplus.items() if amount < 0}
    giving: dict[str, int] = {}
    receiving: dict[str, int] = {}
    while more and less:
        giver, receiver = max(more, key=more.__getitem__), max(less, key=less.__getitem__)
        given, taken = more[giver], less[receiver]
        if (given < 1.0 and taken < 1.0) or given < 0.5 or taken < 0.5:
            break
        giving[giver] = giving.get(giver, 0) + 1
        receiving[receiver] = receiving.get(receiver, 0) + 1
        more[giver] -= 1
        less[receiver] -= 1
    return giving, receiving
