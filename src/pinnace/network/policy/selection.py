"""The peers and ports that network policies allow, as a function of policies, pods and namespaces.

state = PolicyState(); state.policies[key] = policy; state.pods[key] = pod; …
for pod, rules in pod_rules(state, node="worker-1").items(): ...
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any, NamedTuple, cast

from pinnace.model.objects import Key, Object
from pinnace.model.selectors import LabelSelector, from_object
from pinnace.model.typed_objects import Namespace, NetworkPolicy, Pod
from pinnace.network.families import IPV4, IpFamily, family_of

_LAST_PORT = 65535
MOST_STEPS = 500_000
"""How many peers and ports the policies of one namespace may have to be compared with pods. Further ones allow nothing.

Without this a few large policies would keep the agent from all other work.
"""
_PARSING_STEPS = 20
"""About as many comparisons take as long as to parse a selector."""
_log = logging.getLogger(__name__)


class PortRange(NamedTuple):
    """Ports of one protocol. All ports of a protocol are 0 to 65535."""

    protocol: str
    first: int
    last: int


AddressRange = tuple[int, int]
"""The first and the last of some addresses of one IP family."""


class AllowedTraffic(NamedTuple):
    """Peers and the ports on which all of them are allowed. Their number is the sum of both, not the product."""

    peers: frozenset[AddressRange]
    ports: frozenset[PortRange]
    """Empty for all ports and protocols."""


@dataclass(frozen=True, slots=True)
class PodRules:
    """The rules of one pod of this node. None is no policy: everything is allowed."""

    ingress: frozenset[AllowedTraffic] | None = None
    egress: frozenset[AllowedTraffic] | None = None


@dataclass(slots=True)
class PolicyState:
    """The objects that decide, as the API has them; of pods `essentials_of` is enough."""

    policies: dict[Key, NetworkPolicy] = field(default_factory=dict)
    pods: dict[Key, Pod] = field(default_factory=dict)
    namespaces: dict[str, Namespace] = field(default_factory=dict)
    own_addresses: dict[Key, Sequence[str]] = field(default_factory=dict)
    """The addresses of pods that run on this node: it knows them before the API does."""


@dataclass(frozen=True, slots=True)
class _Peer:
    """A pod that policies may select as a peer."""

    address: int
    labels: Mapping[str, str]
    ports: Mapping[tuple[str, str], frozenset[int]]
    """The numbers by name and protocol."""


_PeerRanges = list[tuple[AddressRange, _Peer | None]]


@dataclass(slots=True)
class _View:
    """The state as the policies of one namespace and one IP family see it."""

    namespace: str
    family: IpFamily
    namespaces: Mapping[str, Namespace]
    peers: Mapping[str, Sequence[_Peer]]
    """The pods by namespace."""
    steps: int = MOST_STEPS
    """How many are left."""
    known: dict[int, _PeerRanges] = field(default_factory=dict)
    """The peers of rules by the identity of the rule: most pods of a namespace have the same rules."""

    def may_take(self, steps: int) -> bool:
        """Count steps. Return False, and warn once, if there are not enough of them."""
        if self.steps >= steps:
            self.steps -= steps
            return True
        if self.steps >= 0:
            _log.warning("the policies of namespace %s allow less than they say: they are too large", self.namespace)
        self.steps = -1
        return False


def whole_range(family: IpFamily) -> tuple[int, int]:
    """Return the first and the last address of a family."""
    return 0, (1 << (8 * family.address_bytes)) - 1


def pod_rules(state: PolicyState, *, node: str, family: IpFamily = IPV4) -> dict[str, PodRules]:
    """Return the rules of each pod on a node that a policy selects, by the pod's address of an IP family."""
    by_namespace: dict[str, list[tuple[LabelSelector, NetworkPolicy]]] = {}
    for key, policy in sorted(state.policies.items()):
        selector = from_object(policy["spec"].get("podSelector") or {})
        by_namespace.setdefault(key.namespace, []).append((selector, policy))
    peers = _peers_of(state, family) if by_namespace else {}
    views = {name: _View(name, family, state.namespaces, peers) for name in by_namespace}
    by_pod = {}
    for key, pod in state.pods.items():
        address = _own_address(state, key, pod, family)
        if not address or pod["spec"].get("nodeName") != node or key.namespace not in views:
            continue
        labels = pod["metadata"].get("labels") or {}
        chosen = [policy for selector, policy in by_namespace[key.namespace] if selector.matches(labels)]
        view = views[key.namespace]
        rules = PodRules(_traffic(chosen, view, pod, "Ingress"), _traffic(chosen, view, pod, "Egress"))
        if rules != PodRules():
            by_pod[address] = rules
    return by_pod


def _peers_of(state: PolicyState, family: IpFamily) -> dict[str, list[_Peer]]:
    """Return the pods that have an address of a family, by namespace."""
    peers: dict[str, list[_Peer]] = {}
    for key, pod in state.pods.items():
        if address := address_of(pod, family):
            peer = _Peer(int(ip_address(address)), pod["metadata"].get("labels") or {}, _named_ports(pod))
            peers.setdefault(key.namespace, []).append(peer)
    return peers


def essentials_of(pod: Pod) -> Pod:
    """Return the part of a pod that decides: a node keeps it of every pod in the cluster."""
    spec, status = pod["spec"], pod.get("status") or {}
    ports = [container["ports"] for container in spec.get("containers") or () if container.get("ports")]
    essentials = {
        "metadata": {"labels": pod["metadata"].get("labels") or {}},
        "spec": {
            "nodeName": spec.get("nodeName", ""),
            "hostNetwork": spec.get("hostNetwork", False),
            "containers": [{"ports": port} for port in ports],
        },
        "status": {"phase": status.get("phase"), "podIP": status.get("podIP"), "podIPs": status.get("podIPs")},
    }
    return cast("Pod", essentials)


def address_of(pod: Pod, family: IpFamily = IPV4) -> str:
    """Return the address of a pod in the pod network of a family; empty if it has none, or has ended."""
    status = pod.get("status") or {}
    if pod["spec"].get("hostNetwork") or status.get("phase") in ("Succeeded", "Failed"):
        return ""
    addresses = [address["ip"] for address in status.get("podIPs") or ()] or [status.get("podIP") or ""]
    return next((address for address in addresses if address and family_of(address) is family), "")


def _own_address(state: PolicyState, key: Key, pod: Pod, family: IpFamily) -> str:
    own = state.own_addresses.get(key)
    if own is None or pod["spec"].get("hostNetwork"):
        return address_of(pod, family)
    return next((address for address in own if family_of(address) is family), "")


def _traffic(
    policies: Sequence[NetworkPolicy], view: _View, pod: Pod, direction: str
) -> frozenset[AllowedTraffic] | None:
    chosen = [policy for policy in policies if direction in _types_of(policy["spec"])]
    if not chosen:
        return None
    field_name, peers_name = ("ingress", "from") if direction == "Ingress" else ("egress", "to")
    own_ports = _named_ports(pod) if direction == "Ingress" else None
    allowed: dict[frozenset[PortRange], set[AddressRange]] = {}
    for policy in chosen:
        for rule in cast("Object", policy["spec"]).get(field_name) or ():
            for peer, ports in _allowed(rule, peers_name, view, own_ports):
                allowed.setdefault(ports, set()).add(peer)
    return frozenset(AllowedTraffic(frozenset(peers), ports) for ports, peers in allowed.items())


def _types_of(spec: Mapping[str, Any]) -> Sequence[str]:
    types = spec.get("policyTypes")
    return types if types else ["Ingress", *(["Egress"] if spec.get("egress") else [])]


def _allowed(
    rule: Mapping[str, Any], peers_name: str, view: _View, own_ports: _NamedPorts | None
) -> Iterator[tuple[AddressRange, frozenset[PortRange]]]:
    """Yield the traffic of one rule. A named port is one of the pod itself, or for egress of each peer."""
    ports = rule.get("ports") or ()
    peers = _ranges_of(rule, peers_name, view)
    if not view.may_take(len(ports) + len(peers)):
        return
    names = {(port["port"], port.get("protocol", "TCP")) for port in ports if isinstance(port.get("port"), str)}
    numbers = {_port_range(port) for port in ports if not isinstance(port.get("port"), str)}
    if own_ports is not None:
        numbers |= _resolve(names, own_ports)
        names = set()
    common = frozenset(numbers)
    for peer, pod in peers:
        if common or not ports:
            yield peer, common
        if names and pod is not None and (own := frozenset(_resolve(names, pod.ports))):
            yield peer, own


def _port_range(port: Mapping[str, Any]) -> PortRange:
    protocol, number = port.get("protocol", "TCP"), port.get("port")
    if number is None:
        return PortRange(protocol, 0, _LAST_PORT)
    return PortRange(protocol, number, port.get("endPort", number))


_NamedPorts = Mapping[tuple[str, str], frozenset[int]]


def _named_ports(pod: Pod) -> _NamedPorts:
    """Return the numbers of a pod's ports by name and protocol."""
    ports: dict[tuple[str, str], set[int]] = {}
    for container in pod["spec"].get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("name"):
                ports.setdefault((port["name"], port.get("protocol", "TCP")), set()).add(port["containerPort"])
    return {name: frozenset(numbers) for name, numbers in ports.items()}


def _resolve(names: Collection[tuple[str, str]], ports: _NamedPorts) -> set[PortRange]:
    return {PortRange(name[1], number, number) for name in names & ports.keys() for number in ports[name]}


def _ranges_of(rule: Mapping[str, Any], peers_name: str, view: _View) -> _PeerRanges:
    """Return the addresses of the peers of a rule, with the pods that they are."""
    known = view.known.get(id(rule))
    if known is None:
        peers = rule.get(peers_name) or ()
        known = [] if peers else [(whole_range(view.family), None)]
        for peer in peers:
            known += _peer_ranges(peer, view)
        view.known[id(rule)] = known
    return known


def _peer_ranges(peer: Mapping[str, Any], view: _View) -> Iterator[tuple[AddressRange, _Peer | None]]:
    if "ipBlock" in peer:
        block = peer["ipBlock"]
        exceptions = block.get("except") or ()
        if family_of(block["cidr"]) is view.family and view.may_take(1 + len(exceptions)):
            yield from ((cidr, None) for cidr in _subtract(block["cidr"], exceptions))
        return
    selectors = [peer.get(name) or {} for name in ("podSelector", "namespaceSelector")]
    if not view.may_take(_PARSING_STEPS + sum(map(_size_of, selectors))):
        return
    selector = from_object(selectors[0])
    for name in _namespaces_of(peer.get("namespaceSelector"), view):
        pods = view.peers.get(name, ())
        if not view.may_take(1 + len(pods)):
            return
        for pod in pods:
            if selector.matches(pod.labels):
                yield (pod.address, pod.address), pod


def _size_of(selector: Mapping[str, Any]) -> int:
    """Return how many labels and values a selector names."""
    expressions = selector.get("matchExpressions") or ()
    return len(selector.get("matchLabels") or ()) + sum(
        1 + len(expression.get("values") or ()) for expression in expressions
    )


def _namespaces_of(selector: Mapping[str, Any] | None, view: _View) -> Iterator[str]:
    """Yield the namespaces that a selector names: without it that of the policy. One that is unknown has no labels."""
    if selector is None:
        yield view.namespace
        return
    parsed = from_object(selector)
    for name in view.peers:
        labels = (view.namespaces.get(name) or {"metadata": {}})["metadata"].get("labels") or {}
        if view.may_take(1) and parsed.matches(labels):
            yield name


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
