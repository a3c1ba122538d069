"""Network policies as nftables, in the network namespace of the node.

    ingress   {address of a pod of this node} : jump ingress-10.244.0.7
    egress    {address of a pod of this node} : jump egress-10.244.0.7
    ingress-10.244.0.7 return for an allowed source and port; otherwise drop

A pod that a policy selects has a chain for each direction, which pods with equal rules share; other pods have nothing.
Answers to connections that were allowed pass first; packets that belong to no connection, and begin none, pass to no
pod. The rules see packets whole: tracking connections puts fragments together. All traffic of pods crosses the node,
also that between two of its own. IPv4 and IPv6 have a table each.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from itertools import islice, product

from pinnace.network.families import IPV4, IpFamily, family_of
from pinnace.network.nftables import expressions as rule
from pinnace.network.nftables.expressions import Compare, Expression, RuleVerdict, Tracked
from pinnace.network.nftables.transactions import (
    FORWARD,
    INPUT,
    Nftables,
    SetShape,
    Transaction,
    element,
)
from pinnace.network.policy.selection import AllowedTraffic, PodRules, PortRange, whole_range

_log = logging.getLogger(__name__)

TABLE = "pinnace-policies"
_PROTOCOLS = {"TCP": 6, "UDP": 17, "SCTP": 132}
_INGRESS, _EGRESS = "ingress", "egress"
_LAST_PORT = 65535
MOST_RULES = 5_000
"""How many rules a pod may have in one direction: each IP block with each port. Traffic that needs more is dropped."""


class PolicyRules:
    """Keeps the kernel's rules of one IP family equal to the policies."""

    def __init__(self, nftables: Nftables, family: IpFamily = IPV4) -> None:
        self._nftables = nftables
        self.family = family
        self._pods: dict[str, PodRules] | None = None

    def apply(self, pods: Mapping[str, PodRules]) -> None:
        """Put the rules of all pods into force, in one transaction. Raise TransactionFailed."""
        if self._pods == pods:
            return
        transaction = Transaction(TABLE, self.family)
        transaction.replace_table()
        _add_frame(transaction, self.family, has_policies=bool(pods))
        chains: dict[tuple[str, frozenset[AllowedTraffic]], str] = {}
        for address, rules in pods.items():
            for direction, allowed in ((_INGRESS, rules.ingress), (_EGRESS, rules.egress)):
                if allowed is None:
                    continue
                chain = chains.get((direction, allowed))
                if chain is None:
                    chain = chains[direction, allowed] = _add_chain(transaction, direction, address, allowed)
                jump = rule.verdict(RuleVerdict.JUMP, chain)
                transaction.add_elements(direction, [element(self.family.pack(address), jump)])
        self._nftables.commit(transaction)
        self._pods = dict(pods)


def _add_frame(transaction: Transaction, family: IpFamily, *, has_policies: bool) -> None:
    """Add the maps, and the rules that look into them. Without a policy each rule would only cost time."""
    stray = rule.has_flags(0, Tracked.STATE, rule.INVALID | rule.UNTRACKED)
    if not has_policies:
        transaction.add_chain("forward", FORWARD)
        transaction.add_rule("forward", [*stray, rule.end(RuleVerdict.DROP)])
        return
    for name in (_INGRESS, _EGRESS):
        transaction.add_set(name, SetShape(key=family.address_bytes, is_verdict_map=True))
    known = rule.has_flags(0, Tracked.STATE, rule.ESTABLISHED | rule.RELATED)
    for chain, hook in (("forward", FORWARD), ("input", INPUT)):
        transaction.add_chain(chain, hook)
        transaction.add_rule(chain, [*known, rule.end(RuleVerdict.ACCEPT)])
    # The node itself receives untracked packets, queries to its DNS server: each of them is judged like a first one.
    transaction.add_rule("forward", [*stray, rule.end(RuleVerdict.DROP)])
    # A packet between two pods must pass both chains: the first returns if it is allowed.
    for chain in ("forward", "input"):
        transaction.add_rule(chain, [rule.load_source(0, family), rule.look_up_verdict(_EGRESS, 0)])
    transaction.add_rule("forward", [rule.load_destination(0, family), rule.look_up_verdict(_INGRESS, 0)])


def _add_chain(transaction: Transaction, direction: str, address: str, allowed: Iterable[AllowedTraffic]) -> str:
    """Add the chain of a pod, which returns for allowed traffic and drops the rest; return its name.

    Pods with the same rules share it.
    """
    name = f"{direction}-{address}"
    transaction.add_chain(name)
    family = family_of(address)
    peer = rule.load_source(0, family) if direction == _INGRESS else rule.load_destination(0, family)
    left = MOST_RULES
    in_order = sorted((sorted(traffic.ports), sorted(traffic.peers)) for traffic in allowed)
    for number, (ports, ranges) in enumerate(in_order):
        peers = _match_peers(transaction, f"{name}-{number}", peer, ranges, family)
        for expressions, port in islice(product(peers, ports or (None,)), left):
            wanted = [] if port is None else _match_port(port)
            transaction.add_rule(name, [*expressions, *wanted, rule.end(RuleVerdict.RETURN)])
        left -= len(peers) * max(1, len(ports))
        if left < 0:
            _log.warning("%s may use less than its policies allow: they have more than %d rules", address, MOST_RULES)
            break
    transaction.add_rule(name, [rule.end(RuleVerdict.DROP)])
    return name


def _match_peers(
    transaction: Transaction, name: str, peer: Expression, ranges: Iterable[tuple[int, int]], family: IpFamily
) -> list[list[Expression]]:
    """Return the beginnings of rules that match the peers: single addresses are a set, each range is a rule."""
    unique = set(ranges)
    size = family.address_bytes
    single = sorted(first for first, last in unique if first == last)
    matches: list[list[Expression]] = []
    if single:
        transaction.add_set(name, SetShape(key=size))
        transaction.add_elements(name, [element(address.to_bytes(size, "big")) for address in single])
        matches.append([peer, rule.look_up(name, 0)])
    for first, last in sorted(unique):
        if (first, last) == whole_range(family):
            matches.append([])
        elif first != last:
            matches.append([peer, *_is_between(0, first.to_bytes(size, "big"), last.to_bytes(size, "big"))])
    return matches


def _match_port(port: PortRange) -> list[Expression]:
    protocol = [rule.load_protocol(0), rule.compare(0, Compare.EQUAL, bytes((_PROTOCOLS[port.protocol],)))]
    if (port.first, port.last) == (0, _LAST_PORT):
        return protocol
    between = _is_between(0, port.first.to_bytes(2, "big"), port.last.to_bytes(2, "big"))
    return [*protocol, rule.load_port(0), *between]


def _is_between(place: int, first: bytes, last: bytes) -> list[Expression]:
    if first == last:
        return [rule.compare(place, Compare.EQUAL, first)]
    return [rule.compare(place, Compare.AT_LEAST, first), rule.compare(place, Compare.AT_MOST, last)]
