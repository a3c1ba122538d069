"""The peers and ports that network policies allow, as a function of policies, pods and namespaces.

state = PolicyState(); state.policies[key] = policy; state.pods[key] = pod; …
for pod, rules in pod_rules(state, node="worker-1").items(): ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from typing import Any, NamedTuple

from pinnace.model.objects import Key, Object
from pinnace.model.selectors import from_object

_LAST_PORT = 65535


class PortRange(NamedTuple):
    """Ports of one protocol. All ports of a protocol are 0 to 65535."""

    protocol: str
    first: int
    last: int


class AllowedTraffic(NamedTuple):
    """Peers and the ports on which they are allowed: each an inclusive range of addresses."""

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
    """The objects that decide, as the API has them."""

    policies: dict[Key, Object] = field(default_factory=dict)
    pods: dict[Key, Object] = field(default_factory=dict)
    namespaces: dict[str, Object] = field(default_factory=dict)


def pod_rules(state: PolicyState, *, node: str) -> dict[str, PodRules]:
    """Return the rules of each pod on a node that a policy selects, by the pod's address."""
    by_namespace: dict[str, list[Object]] = {}
    for key, policy in sorted(state.policies.items()):
        by_namespace.setdefault(key.namespace, []).append(policy)
    found = {}
    for key, pod in state.pods.items():
        address = address_of(pod)
        if not address or pod["spec"].get("nodeName") != node or key.namespace not in by_namespace:
            continue
        labels = pod["metadata"].get("labels") or {}
        chosen = [one for one in by_namespace[key.namespace] if _selects(one["spec"].get("podSelector"), labels)]
        rules = PodRules(_traffic(chosen, state, pod, "Ingress"), _traffic(chosen, state, pod, "Egress"))
        if rules != PodRules():
            found[address] = rules
    return found


def address_of(pod: Object) -> str:
    """Return the address of a pod in the pod network; empty if it has none, or has ended."""
    status = pod.get("status") or {}
    if pod["spec"].get("hostNetwork") or status.get("phase") in ("Succeeded", "Failed"):
        return ""
    return str(status.get("podIP") or "")


def _traffic(
    policies: Sequence[Object], state: PolicyState, pod: Object, direction: str
) -> frozenset[AllowedTraffic] | None:
    chosen = [one for one in policies if direction in _types_of(one["spec"])]
    if not chosen:
        return None
    field_name, peers_name = ("ingress", "from") if direction == "Ingress" else ("egress", "to")
    allowed: set[AllowedTraffic] = set()
    for policy in chosen:
        namespace = policy["metadata"]["namespace"]
        for rule in policy["spec"].get(field_name) or ():
            allowed.update(_allowed(rule, peers_name, state, namespace, pod if direction == "Ingress" else None))
    return frozenset(allowed)


def _types_of(spec: Mapping[str, Any]) -> Sequence[str]:
    types = spec.get("policyTypes")
    return types if types else ["Ingress", *(["Egress"] if spec.get("egress") else [])]


def _allowed(
    rule: Mapping[str, Any], peers_name: str, state: PolicyState, namespace: str, pod: Object | None
) -> Iterator[AllowedTraffic]:
    """Yield the traffic of one rule. A named port is one of the pod itself, or for egress of each peer."""
    ports = rule.get("ports") or ()
    peers = rule.get(peers_name) or ()
    ranges: list[tuple[int, int, Object | None]] = [] if peers else [(0, 0xFFFFFFFF, None)]
    for peer in peers:
        ranges += _peer_ranges(peer, state, namespace)
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


def _peer_ranges(
    peer: Mapping[str, Any], state: PolicyState, namespace: str
) -> Iterator[tuple[int, int, Object | None]]:
    if "ipBlock" in peer:
        block = peer["ipBlock"]
        if ":" not in block["cidr"]:
            yield from ((first, last, None) for first, last in _subtract(block["cidr"], block.get("except") or ()))
        return
    for key, pod in state.pods.items():
        address = address_of(pod)
        if not address or ":" in address:
            continue
        if not _is_in_namespaces(key.namespace, peer.get("namespaceSelector"), state, namespace):
            continue
        if "podSelector" not in peer or _selects(peer["podSelector"], pod["metadata"].get("labels") or {}):
            number = int(IPv4Network(address).network_address)
            yield number, number, pod


def _is_in_namespaces(name: str, selector: Mapping[str, Any] | None, state: PolicyState, own: str) -> bool:
    if selector is None:
        return name == own
    labels = (state.namespaces.get(name) or {"metadata": {}})["metadata"].get("labels") or {}
    return _selects(selector, labels)


def _subtract(cidr: str, exceptions: Sequence[str]) -> list[tuple[int, int]]:
    """Return the ranges of a network without some networks inside it."""
    networks = [IPv4Network(cidr, strict=False)]
    for text in exceptions:
        hole = IPv4Network(text, strict=False)
        kept: list[IPv4Network] = []
        for network in networks:
            if hole.subnet_of(network):
                kept += list(network.address_exclude(hole))
            elif not network.subnet_of(hole):
                kept.append(network)
        networks = kept
    return [(int(one.network_address), int(one.broadcast_address)) for one in networks]


def _selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    return from_object(selector or {}).matches(labels)
