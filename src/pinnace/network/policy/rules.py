"""Network policies as nftables, in the network namespace of the node.

    ingress   {address of a pod of this node} : jump ingress-10.244.0.7
    egress    {address of a pod of this node} : jump egress-10.244.0.7
    ingress-10.244.0.7 return for an allowed source and port; otherwise drop

A pod that a policy selects has a chain for each direction; other pods have nothing. Answers to connections that were
allowed pass first, and so do queries to the DNS server of the node. All traffic of pods crosses the node, also that
between two of its own.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping

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
from pinnace.network.policy.selection import AllowedTraffic, PodRules, PortRange

TABLE = "pinnace-policies"
_PROTOCOLS = {"TCP": 6, "UDP": 17, "SCTP": 132}
_INGRESS, _EGRESS = "ingress", "egress"
_LAST_PORT = 65535
_EVERYWHERE = (0, 0xFFFFFFFF)


class PolicyRules:
    """Keeps the kernel's rules equal to the policies."""

    def __init__(self, nftables: Nftables, *, exempt: str) -> None:
        """`exempt` is the address of the DNS server, which every pod may ask."""
        self._nftables = nftables
        self._exempt = exempt
        self._pods: dict[str, PodRules] | None = None

    def apply(self, pods: Mapping[str, PodRules]) -> None:
        """Put the rules of all pods into force, in one transaction. Raise TransactionFailed."""
        if self._pods == pods:
            return
        transaction = Transaction(TABLE)
        transaction.replace_table()
        _add_frame(transaction, self._exempt)
        for address, rules in pods.items():
            for direction, allowed in ((_INGRESS, rules.ingress), (_EGRESS, rules.egress)):
                if allowed is not None:
                    _add_pod(transaction, direction, address, allowed)
        self._nftables.commit(transaction)
        self._pods = dict(pods)


def _add_frame(transaction: Transaction, exempt: str) -> None:
    for name in (_INGRESS, _EGRESS):
        transaction.add_set(name, SetShape(key=4, is_verdict_map=True))
    known = rule.has_flags(0, Tracked.STATE, rule.ESTABLISHED_OR_RELATED)
    for chain, hook in (("forward", FORWARD), ("input", INPUT)):
        transaction.add_chain(chain, hook)
        transaction.add_rule(chain, [*known, rule.end(RuleVerdict.ACCEPT)])
    to_exempt = [rule.load_destination(0), rule.compare(0, Compare.EQUAL, socket.inet_aton(exempt))]
    transaction.add_rule("input", [*to_exempt, rule.end(RuleVerdict.ACCEPT)])
    # A packet between two pods must pass both chains: the first returns if it is allowed.
    for chain in ("forward", "input"):
        transaction.add_rule(chain, [rule.load_source(0), rule.look_up_verdict(_EGRESS, 0)])
    transaction.add_rule("forward", [rule.load_destination(0), rule.look_up_verdict(_INGRESS, 0)])


def _add_pod(transaction: Transaction, direction: str, address: str, allowed: Iterable[AllowedTraffic]) -> None:
    """Add the chain of a pod, which returns for allowed traffic and drops the rest."""
    name = f"{direction}-{address}"
    transaction.add_chain(name)
    peer = rule.load_source(0) if direction == _INGRESS else rule.load_destination(0)
    by_ports: dict[tuple[PortRange, ...], list[tuple[int, int]]] = {}
    for one in allowed:
        by_ports.setdefault(one.ports, []).append((one.first, one.last))
    for number, (ports, ranges) in enumerate(sorted(by_ports.items())):
        peers = _match_peers(transaction, f"{name}-{number}", peer, ranges)
        for expressions in peers:
            for port in ports or (None,):
                wanted = [] if port is None else _match_port(port)
                transaction.add_rule(name, [*expressions, *wanted, rule.end(RuleVerdict.RETURN)])
    transaction.add_rule(name, [rule.end(RuleVerdict.DROP)])
    jump = rule.verdict(RuleVerdict.JUMP, name)
    transaction.add_elements(direction, [element(socket.inet_aton(address), jump)])


def _match_peers(
    transaction: Transaction, name: str, peer: Expression, ranges: Iterable[tuple[int, int]]
) -> list[list[Expression]]:
    """Return the beginnings of rules that match the peers: single addresses are a set, each range is a rule."""
    unique = set(ranges)
    single = sorted(first for first, last in unique if first == last)
    found: list[list[Expression]] = []
    if single:
        transaction.add_set(name, SetShape(key=4))
        transaction.add_elements(name, [element(address.to_bytes(4, "big")) for address in single])
        found.append([peer, rule.look_up(name, 0)])
    for first, last in sorted(unique):
        if (first, last) == _EVERYWHERE:
            found.append([])
        elif first != last:
            found.append([peer, *_is_between(0, first.to_bytes(4, "big"), last.to_bytes(4, "big"))])
    return found


def _match_port(port: PortRange) -> list[Expression]:
    protocol = [rule.load_protocol(1), rule.compare(1, Compare.EQUAL, bytes((_PROTOCOLS[port.protocol],)))]
    if (port.first, port.last) == (0, _LAST_PORT):
        return protocol
    between = _is_between(2, port.first.to_bytes(2, "big"), port.last.to_bytes(2, "big"))
    return [*protocol, rule.load_port(2), *between]


def _is_between(place: int, first: bytes, last: bytes) -> list[Expression]:
    if first == last:
        return [rule.compare(place, Compare.EQUAL, first)]
    return [rule.compare(place, Compare.AT_LEAST, first), rule.compare(place, Compare.AT_MOST, last)]
