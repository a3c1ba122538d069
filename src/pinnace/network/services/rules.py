"""Service addresses as nftables: two maps, and one chain for each number of endpoints.

    services   {address . protocol . port}            : goto pick-3
    endpoints  {address . protocol . port . 0, 1, 2}  : address . port
    pick-3     dnat to endpoints[address . protocol . port . random below 3]

A Service has elements but no chain, so that a change of it is a few elements in one transaction, however many Services
there are. IPv4 and IPv6 have a table each. Session affinity needs a third map, from clients to endpoints, which the
rules fill themselves, and a set of the endpoints that are still there. Clients of a load balancer with source ranges
pass a chain before `pick-3` that drops others; equal ranges share one. A connection to a Service address without
endpoints reaches no listener of the node and is refused.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from ipaddress import ip_network

from pinnace.network.families import IPV4, IPV6, IpFamily, family_of
from pinnace.network.nftables import expressions as rule
from pinnace.network.nftables.expressions import Expression, RuleVerdict, Tracked
from pinnace.network.nftables.transactions import (
    OUTPUT,
    POSTROUTING,
    PREROUTING,
    Nftables,
    SetShape,
    Transaction,
    element,
)
from pinnace.network.services.table import ANY_ADDRESSES, Backends, Endpoint, Frontend, TableChange

TABLE = "pinnace-services"
_PROTOCOLS = {"TCP": 6, "UDP": 17, "SCTP": 132}
_SERVICES, _ENDPOINTS, _CLIENTS, _LIVE, _HAIRPIN = "services", "endpoints", "clients", "live", "hairpin"
_REGISTER = 4
_FRONTEND, _ENDPOINT = 2 * _REGISTER, _REGISTER
"""The bytes of a frontend and of an endpoint beside its address."""
_DAY = 86400
_LOOPBACK = {IPV4: "127.0.0.0/8", IPV6: "::1/128"}


class ServiceRules:
    """Keeps the kernel's rules equal to the frontends of one family."""

    def __init__(
        self, nftables: Nftables, family: IpFamily = IPV4, *, pod_network: str = "", table: str = TABLE
    ) -> None:
        """`pod_network` is that of the node's own pods; empty if there are no others."""
        self._nftables = nftables
        self._name = table
        self._pod_network = pod_network
        self._family = family
        self._table: dict[Frontend, Backends] = {}
        self._chains: set[str] = set()
        self._addresses: Counter[str] = Counter()
        self._limits: Counter[str] = Counter()
        """By chain that limits clients: the frontends that lead to it."""

    @property
    def family(self) -> IpFamily:
        return self._family

    def replace(self, table: Mapping[Frontend, Backends | None]) -> None:
        """Make the rules of the family anew, whatever an earlier process has left, in one transaction."""
        self._table, self._chains, self._addresses, self._limits = {}, set(), Counter(), Counter()
        transaction = Transaction(self._name, self._family)
        transaction.replace_table()
        _add_frame(transaction, self._family, self._pod_network)
        own = {frontend: to for frontend, to in table.items() if family_of(frontend.address) is self._family}
        self._change(transaction, own)

    def remove(self) -> None:
        """Remove the rules of the family, if they are there: a table without a frontend costs each new connection."""
        self._table, self._chains, self._addresses, self._limits = {}, set(), Counter(), Counter()
        transaction = Transaction(self._name, self._family)
        transaction.remove_table()
        self._nftables.commit(transaction)

    @property
    def is_empty(self) -> bool:
        return not self._table

    def apply(self, change: TableChange) -> None:
        """Change the rules in one transaction. Raise TransactionFailed; the rules are as before then."""
        self._change(Transaction(self._name, self._family), change)

    def _change(self, transaction: Transaction, change: TableChange) -> None:
        addresses, limits = self._addresses.copy(), self._limits.copy()
        chains = {_chain_of(frontend, wanted): (frontend, wanted) for frontend, wanted in change.items() if wanted}
        for chain in chains.keys() - self._chains:
            transaction.add_chain(chain)
            for expressions in _picking(*chains[chain]):
                transaction.add_rule(chain, expressions)
        limited = {_limit_of(frontend, wanted): (frontend, wanted) for frontend, wanted in change.items() if wanted}
        for chain in limited.keys() - self._limits.keys() - {""}:
            transaction.add_chain(chain)
            for expressions in _limiting(*limited[chain]):
                transaction.add_rule(chain, expressions)
        gone = {name: set[bytes]() for name in (_SERVICES, _ENDPOINTS, _LIVE)}
        new = {name: set[bytes]() for name in (_SERVICES, _ENDPOINTS, _LIVE)}
        for frontend, wanted in change.items():
            had = self._table.get(frontend)
            _collect(gone, frontend, had)
            _collect(new, frontend, wanted)
            addresses.subtract(_addresses_of(had))
            addresses.update(_addresses_of(wanted))
            limits.subtract([_limit_of(frontend, had)] if had else ())
            limits.update([_limit_of(frontend, wanted)] if wanted else ())
        for name, elements in gone.items():
            transaction.delete_elements(name, elements - new[name])
        for name, elements in new.items():
            transaction.add_elements(name, elements - gone[name])
        del limits[""]
        for chain in self._limits.keys() - (+limits).keys():
            transaction.delete_chain(chain)
        before, after = +self._addresses, +addresses
        transaction.delete_elements(_HAIRPIN, _pairs(before.keys() - after.keys()))
        transaction.add_elements(_HAIRPIN, _pairs(after.keys() - before.keys()))
        self._nftables.commit(transaction)
        self._chains |= chains.keys()
        self._addresses, self._limits = after, +limits
        for frontend, wanted in change.items():
            if wanted is None:
                self._table.pop(frontend, None)
            else:
                self._table[frontend] = wanted


def _add_frame(transaction: Transaction, family: IpFamily, pod_network: str) -> None:
    """Add what is there without any Service: the maps, and the rules that look into them."""
    address = family.address_bytes
    frontend, endpoint = address + _FRONTEND, address + _ENDPOINT
    transaction.add_set(_SERVICES, SetShape(key=frontend, is_verdict_map=True))
    transaction.add_set(_ENDPOINTS, SetShape(key=frontend + _REGISTER, value=endpoint))
    transaction.add_set(_CLIENTS, SetShape(key=address + frontend, value=endpoint, seconds=_DAY))
    transaction.add_set(_LIVE, SetShape(key=frontend + endpoint))
    transaction.add_set(_HAIRPIN, SetShape(key=2 * address))
    for chain, hook in (("prerouting", PREROUTING), ("output", OUTPUT)):
        transaction.add_chain(chain, hook)
        transaction.add_rule(chain, [*_load_frontend(0, family), rule.look_up_verdict(_SERVICES, 0)])
        # A packet from loopback would keep its source, which no pod answers: a proxy serves the node's own loopback.
        is_beyond = rule.is_outside(rule.load_destination(0, family), ip_network(_LOOPBACK[family]))
        node_port = [*rule.is_local(0), *is_beyond, *_load_frontend(0, family, is_node_port=True)]
        transaction.add_rule(chain, [*node_port, rule.look_up_verdict(_SERVICES, 0)])
    transaction.add_chain("postrouting", POSTROUTING)
    translated = rule.has_flags(0, Tracked.STATUS, rule.DESTINATION_CHANGED)
    # An endpoint that is its own client must not see its own address as the client's.
    own = [rule.load_source(0, family), rule.load_destination(family.registers, family), rule.look_up(_HAIRPIN, 0)]
    transaction.add_rule("postrouting", [*translated, *own, rule.masquerade()])
    if pod_network:
        # A client of another node used a node port here, and its endpoint is elsewhere too: the answer must come back.
        own_pods = ip_network(pod_network)
        passing = rule.is_outside(rule.load_source(0, family), own_pods)
        passing += rule.is_outside(rule.load_destination(0, family), own_pods)
        transaction.add_rule("postrouting", [*translated, *passing, rule.masquerade()])


def _load_frontend(place: int, family: IpFamily, *, is_node_port: bool = False) -> list[Expression]:
    any_address = rule.load_value(place, bytes(family.address_bytes))
    address = any_address if is_node_port else rule.load_destination(place, family)
    after = place + family.registers
    return [address, rule.load_protocol(after), rule.load_port(after + 1)]


def _chain_of(frontend: Frontend, backends: Backends) -> str:
    kind = "node-port" if frontend.address in ANY_ADDRESSES else "pick"
    affinity = f"-{backends.affinity_seconds}s" if backends.affinity_seconds else ""
    return f"{kind}-{len(backends.endpoints)}{affinity}"


def _limit_of(frontend: Frontend, backends: Backends) -> str:
    """Return the chain that drops clients of other sources; empty if all may use the frontend."""
    if not backends.sources:
        return ""
    digest = hashlib.sha256(" ".join(map(str, backends.sources)).encode()).hexdigest()[:32]
    return f"from-{digest}-{_chain_of(frontend, backends)}"


def _limiting(frontend: Frontend, backends: Backends) -> Iterable[list[Expression]]:
    chain = _chain_of(frontend, backends)
    for network in backends.sources:
        source = rule.load_source(0, family_of(frontend.address))
        yield [*rule.is_within(source, network), rule.end(RuleVerdict.GOTO, chain)]
    yield [rule.end(RuleVerdict.DROP)]


def _picking(frontend: Frontend, backends: Backends) -> Iterable[list[Expression]]:
    """The rules of a chain that picks an endpoint. Registers: client, address, protocol, port, number, endpoint.

    IPv6 fills all sixteen. A client that is known needs no number: its endpoint begins there.
    """
    family = family_of(frontend.address)
    size = family.registers
    number, endpoint = 2 * size + 2, 2 * size + 3
    client = rule.load_source(0, family)
    load = [client, *_load_frontend(size, family, is_node_port=frontend.address in ANY_ADDRESSES)]
    seconds = backends.affinity_seconds
    if seconds:
        known = [*load, rule.look_up(_CLIENTS, 0, into=number), rule.look_up(_LIVE, size)]
        known.append(rule.remember(_CLIENTS, 0, number, seconds=seconds))
        yield [*known, rule.translate_destination(number, number + size, family)]
    pick = [*load, rule.load_random(number, len(backends.endpoints)), rule.look_up(_ENDPOINTS, size, into=endpoint)]
    if seconds:
        pick += [rule.forget(_CLIENTS, 0, endpoint), rule.remember(_CLIENTS, 0, endpoint, seconds=seconds)]
    yield [*pick, rule.translate_destination(endpoint, endpoint + size, family)]


def _collect(elements: dict[str, set[bytes]], frontend: Frontend, backends: Backends | None) -> None:
    if backends is None:
        return
    key = _pack_frontend(frontend)
    chain = _limit_of(frontend, backends) or _chain_of(frontend, backends)
    goto = rule.verdict(RuleVerdict.GOTO, chain)
    elements[_SERVICES].add(element(key, goto))
    for number, endpoint in enumerate(backends.endpoints):
        packed = _pack_endpoint(endpoint)
        place = number.to_bytes(4, sys.byteorder)
        elements[_ENDPOINTS].add(element(key + place, rule.value(packed)))
        if backends.affinity_seconds:
            elements[_LIVE].add(element(key + packed))


def _pairs(addresses: Iterable[str]) -> list[bytes]:
    return [element(family_of(address).pack(address) * 2) for address in addresses]


def _addresses_of(backends: Backends | None) -> list[str]:
    return [endpoint.address for endpoint in backends.endpoints] if backends is not None else []


def _pack_frontend(frontend: Frontend) -> bytes:
    address = family_of(frontend.address).pack(frontend.address)
    return address + bytes((_PROTOCOLS[frontend.protocol], 0, 0, 0)) + frontend.port.to_bytes(2, "big") + b"\0\0"


def _pack_endpoint(endpoint: Endpoint) -> bytes:
    return family_of(endpoint.address).pack(endpoint.address) + endpoint.port.to_bytes(2, "big") + b"\0\0"
