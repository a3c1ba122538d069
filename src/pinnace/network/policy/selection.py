"""The peers and ports that network policies allow, as a function of policies, pods and namespaces.

state = PolicyState(); state.policies[key] = policy; state.pods[key] = pod; …
for pod, rules in pod_rules(state, node="worker-1").items(): ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any, NamedTuple

from pinnace.model.objects import Key, Object
from pinnace.model.selectors import from_object
from pinnace.network.families import IPV4, IpFamily, family_of

_LAST_PORT = 65535


class PortRange(NamedTuple):
    """Ports of one protocol. All ports of a protocol are 0 to 65535."""

    protocol: str
    first: int
    last: int


class AllowedTraffic(NamedTuple):
    """Peers and the ports on which they are allowed: each an inclusive range of addresses of one IP family."""

    first: int
    last: int
    ports: tuple[PortRange, ...]
    """Empty for all ports and protocols."""


@dataclass(frozen=True, slots=True)
class PodRules:
    """The rules of one pod of this node. None is no policy: everything is allowed."""

    ingress: frozenset[AllowedTraffic] | None = None
    egress: frozenset[AllowedTraffic] | None = None


@dataclass(slots=True)
class PolicyState:
    """The objects that decide, as the API has them; of pods `essentials_of` is enough."""

    policies: dict[Key, Object] = field(default_factory=dict)
    pods: dict[Key, Object] = field(default_factory=dict)
    namespaces: dict[str, Object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _View:
    """The state as one IP family sees it."""

    state: PolicyState
    family: IpFamily


def whole_range(family: IpFamily) -> tuple[int, int]:
    """Return the first and the last address of a family."""
    return 0, (1 << (8 * family.address_bytes)) - 1


def pod_rules(state: PolicyState, *, node: str, family: IpFamily = IPV4) -> dict[str, PodRules]:
    """Return the rules of each pod on a node that a policy selects, by the pod's address of an IP family."""
    view = _View(state, family)
    by_namespace: dict[str, list[Object]] = {}
    for key, policy in sorted(state.policies.items()):
        by_namespace.setdefault(key.namespace, []).append(policy)
    found = {}
    for key, pod in state.pods.items():
        address = address_of(pod, family)
        if not address or pod["spec"].get("nodeName") != node or key.namespace not in by_namespace:
            continue
        labels = pod["metadata"].get("labels") or {}
        chosen = [one for one in by_namespace[key.namespace] if _selects(one["spec"].get("podSelector"), labels)]
        rules = PodRules(_traffic(chosen, view, pod, "Ingress"), _traffic(chosen, view, pod, "Egress"))
        if rules != PodRules():
            found[address] = rules
    return found


def essentials_of(pod: Object) -> Object:
    """Return the part of a pod that decides: a node keeps it of every pod in the cluster."""
    spec, status = pod["spec"], pod.get("status") or {}
    ports = [one["ports"] for one in spec.get("containers") or () if one.get("ports")]
    return {
        "metadata": {"labels": pod["metadata"].get("labels") or {}},
        "spec": {
            "nodeName": spec.get("nodeName", ""),
            "hostNetwork": spec.get("hostNetwork", False),
            "containers": [{"ports": one} for one in ports],
        },
        "status": {"phase": status.get("phase"), "podIP": status.get("podIP"), "podIPs": status.get("podIPs")},
    }


def address_of(pod: Object, family: IpFamily = IPV4) -> str:
    """Return the address of a pod in the pod network of a family; empty if it has none, or has ended."""
    status = pod.get("status") or {}
    if pod["spec"].get("hostNetwork") or status.get("phase") in ("Succeeded", "Failed"):
        return ""
    addresses = [one["ip"] for one in status.get("podIPs") or ()] or [status.get("podIP") or ""]
    return next((one for one in addresses if one and family_of(one) is family), "")


def _traffic(policies: Sequence[Object], view: _View, pod: Object, direction: str) -> frozenset[AllowedTraffic] | None:
    chosen = [one for one in policies if direction in _types_of(one["spec"])]
    if not chosen:
        return None
    field_name, peers_name = ("ingress", "from") if direction == "Ingress" else ("egress", "to")
    allowed: set[AllowedTraffic] = set()
    for policy in chosen:
        namespace = policy["metadata"]["namespace"]
        for rule in policy["spec"].get(field_name) or ():
            allowed.update(_allowed(rule, peers_name, view, namespace, pod if direction == "Ingress" else None))
    return frozenset(allowed)


def _types_of(spec: Mapping[str, Any]) -> Sequence[str]:
    types = spec.get("policyTypes")
    return types if types else ["Ingress", *(["Egress"] if spec.get("egress") else [])]


def _allowed(
    rule: Mapping[str, Any], peers_name: str, view: _View, namespace: str, pod: Object | None
) -> Iterator[AllowedTraffic]:
    """Yield the traffic of one rule. A named port is one of the pod itself, or for egress of each peer."""
    ports = rule.get("ports") or ()
    peers = rule.get(peers_name) or ()
    ranges: list[tuple[int, int, Object | None]] = [] if peers else [(*whole_range(view.family), None)]
    for peer in peers:
        ranges += _peer_ranges(peer, view, namespace)
    for first, last, peer_pod in ranges:
        resolved = tuple(_ports(ports, pod if pod is not None else peer_pod))
        if resolved or not ports:
            yield AllowedTraffic(first, last, resolved)


def _ports(ports: Sequence[Mapping[str, Any]], pod: Object | None) -> Iterator[PortRange]:
    for port in ports:
        protocol, number = port.get("protocol", "TCP"), port.get("port")
        if number is None:
            yield PortRange(protocol, 0, _LAST_PORT)
        elif isinstance(number, int):
            yield PortRange(protocol, number, port.get("endPort", number))
        elif pod is not None:
            yield from (PortRange(protocol, found, found) for found in _named_ports(pod, number, protocol))


def _named_ports(pod: Object, name: str, protocol: str) -> Iterator[int]:
    for container in pod["spec"].get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("name") == name and port.get("protocol", "TCP") == protocol:
                yield port["containerPort"]


def _peer_ranges(peer: Mapping[str, Any], view: _View, namespace: str) -> Iterator[tuple[int, int, Object | None]]:
    if "ipBlock" in peer:
        block = peer["ipBlock"]
        if family_of(block["cidr"]) is view.family:
            yield from ((first, last, None) for first, last in _subtract(block["cidr"], block.get("except") or ()))
        return
    for key, pod in view.state.pods.items():
        address = address_of(pod, view.family)
        if not address:
            continue
        if not _is_in_namespaces(key.namespace, peer.get("namespaceSelector"), view.state, namespace):
            continue
        if "podSelector" not in peer or _selects(peer["podSelector"], pod["metadata"].get("labels") or {}):
            number = int(ip_address(address))
            yield number, number, pod


def _is_in_namespaces(name: str, selector: Mapping[str, Any] | None, state: PolicyState, own: str) -> bool:
    if selector is None:
        return name == own
    labels = (state.namespaces.get(name) or {"metadata": {}})["metadata"].get("labels") or {}
    return _selects(selector, labels)


def _subtract(cidr: str, exceptions: Sequence[str]) -> list[tuple[int, int]]:
    """Return the ranges of a network without some networks inside it."""
    network = ip_network(cidr, strict=False)
    first, last = int(network.network_address), int(network.broadcast_address)
    holes = [hole for text in exceptions if (hole := ip_network(text, strict=False)).version == network.version]
    kept = []
    for begin, end in sorted((int(hole.network_address), int(hole.broadcast_address)) for hole in holes):
        if begin > first:
            kept.append((first, min(begin - 1, last)))
        first = max(first, end + 1)
        if first > last:
            return kept
    return [*kept, (first, last)]


def _selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    return from_object(selector or {}).matches(labels)
