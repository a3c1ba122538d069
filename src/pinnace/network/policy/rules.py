"""Network policies as nftables, in the network namespace of the node.

    ingress   {address of a pod of this node} : jump ingress-10.244.0.7
    egress    {address of a pod of this node} : jump egress-10.244.0.7
    ingress-10.244.0.7 return for an allowed source and port; otherwise drop

A pod that a policy selects has a chain for each direction; other pods have nothing. Answers to connections that were
allowed pass first, and so do queries to the DNS server of the node. All traffic of pods crosses the node, also that
between two of its own. IPv4 and IPv6 have a table each.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from itertools import islice, product

from pinnace.network.families import IPV4, IPV6, IpFamily, family_of
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
_ICMPV6 = 58
_DISCOVERY = (133, 137)
"""The first and last type of the messages by which IPv6 neighbours find each other, as ARP does for IPv4."""


class PolicyRules:
    """Keeps the kernel's rules of one IP family equal to the policies."""

    def __init__(self, nftables: Nftables, *, exempt: str = "", family: IpFamily = IPV4) -> None:
        """`exempt` is the address of the DNS server, which every pod may ask."""
        self._nftables = nftables
        self._exempt = exempt
        self._family = family
        self._pods: dict[str, PodRules] | None = None

    def apply(self, pods: Mapping[str, PodRules]) -> None:
        """Put the rules of all pods into force, in one transaction. Raise TransactionFailed."""
        if self._pods == pods:
            return
        transaction = Transaction(TABLE, self._family)
        transaction.replace_table()
        _add_frame(transaction, self._family, self._exempt)
        for address, rules in pods.items():
            for direction, allowed in ((_INGRESS, rules.ingress), (_EGRESS, rules.egress)):
                if allowed is not None:
                    _add_pod(transaction, direction, address, allowed)
        self._nftables.commit(transaction)
        self._pods = dict(pods)


def _add_frame(transaction: Transaction, family: IpFamily, exempt: str) -> None:
    for name in (_INGRESS, _EGRESS):
        transaction.add_set(name, SetShape(key=family.address_bytes, is_verdict_map=True))
    known = rule.has_flags(0, Tracked.STATE, rule.ESTABLISHED_OR_RELATED)
    for chain, hook in (("forward", FORWARD), ("input", INPUT)):
        transaction.add_chain(chain, hook)
        transaction.add_rule(chain, [*known, rule.end(RuleVerdict.ACCEPT)])
    if exempt:
        to_exempt = [rule.load_destination(0, family), rule.compare(0, Compare.EQUAL, family.pack(exempt))]
        transaction.add_rule("input", [*to_exempt, rule.end(RuleVerdict.ACCEPT)])
    if family is IPV6:
        is_icmp = [rule.load_protocol(0), rule.compare(0, Compare.EQUAL, bytes((_ICMPV6,)))]
        types = _is_between(0, *(bytes((one,)) for one in _DISCOVERY))
        transaction.add_rule("input", [*is_icmp, rule.load_message_type(0), *types, rule.end(RuleVerdict.ACCEPT)])
    # A packet between two pods must pass both chains: the first returns if it is allowed.
    for chain in ("forward", "input"):
        transaction.add_rule(chain, [rule.load_source(0, family), rule.look_up_verdict(_EGRESS, 0)])
    transaction.add_rule("forward", [rule.load_destination(0, family), rule.look_up_verdict(_INGRESS, 0)])


def _add_pod(transaction: Transaction, direction: str, address: str, allowed: Iterable[AllowedTraffic]) -> None:
    """Add the chain of a pod, which returns for allowed traffic and drops the rest."""
    name = f"{direction}-{address}"
    transaction.add_chain(name)
    family = family_of(address)
    peer = rule.load_source(0, family) if direction == _INGRESS else rule.load_destination(0, family)
    by_ports: dict[tuple[PortRange, ...], list[tuple[int, int]]] = {}
    for one in allowed:
        by_ports.setdefault(one.ports, []).append((one.first, one.last))
    left = MOST_RULES
    for number, (ports, ranges) in enumerate(sorted(by_ports.items())):
        peers = _match_peers(transaction, f"{name}-{number}", peer, ranges, family)
        for expressions, port in islice(product(peers, ports or (None,)), left):
            wanted = [] if port is None else _match_port(port)
            transaction.add_rule(name, [*expressions, *wanted, rule.end(RuleVerdict.RETURN)])
        left -= len(peers) * max(1, len(ports))
        if left < 0:
            _log.warning("%s may use less than its policies allow: they have more than %d rules", address, MOST_RULES)
            break
    transaction.add_rule(name, [rule.end(RuleVerdict.DROP)])
    jump = rule.verdict(RuleVerdict.JUMP, name)
    transaction.add_elements(direction, [element(family.pack(address), jump)])


def _match_peers(
    transaction: Transaction, name: str, peer: Expression, ranges: Iterable[tuple[int, int]], family: IpFamily
) -> list[list[Expression]]:
    """Return the beginnings of rules that match the peers: single addresses are a set, each range is a rule."""
    unique = set(ranges)
    size = family.address_bytes
    single = sorted(first for first, last in unique if first == last)
    found: list[list[Expression]] = []
    if single:
        transaction.add_set(name, SetShape(key=size))
        transaction.add_elements(name, [element(address.to_bytes(size, "big")) for address in single])
        found.append([peer, rule.look_up(name, 0)])
    for first, last in sorted(unique):
        if (first, last) == whole_range(family):
            found.append([])
        elif first != last:
            found.append([peer, *_is_between(0, first.to_bytes(size, "big"), last.to_bytes(size, "big"))])
    return found


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
