"""The rules that check every packet of a pod before anything else sees it, and divide the table of connections.

They are in force before the first pod has a link, and hold for all pods without a change, since they ask the routing
table for the interface that an address belongs to. An agent replaces the rules of the last one in one transaction, and
keeps them if they are the same: new ones would count the open connections of pods from zero.

    tcp          {source} at most 256 open          : accept
    tcp-medium   {source} at most 2,048 more open   : accept, while all pods together have no more than a quarter
    tcp-large    {source} at most 8,192 more open   : accept, while all pods together have no more than an eighth
                 drop

The kernel has one table of connections for all pods. A connection belongs to the first tier that has room for it, so
that each pod has the connections of the first tier whatever the others do, and the pods with most connections are the
first that open no further ones. Together the tiers have three quarters of the table.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network

from pinnace.network.families import IPV4, IPV6, IpFamily
from pinnace.network.nftables import expressions as rule
from pinnace.network.nftables.expressions import Compare, RuleVerdict, Tracked
from pinnace.network.nftables.transactions import FIRST, PROTOCOL, TRACKED, Nftables, SetShape, Transaction
from pinnace.network.sockets import Sockets

TABLE = "pinnace-guard"
_NOBODY: dict[IpFamily, IPv4Network | IPv6Network] = {
    IPV4: IPv4Network("0.0.0.0/8"),
    IPV6: IPv6Network("fe80::/10"),
}
"""Addresses that belong to no pod although the kernel lets packets from them in: policies would not know them."""
MOST_CONNECTIONS = 8192
"""How many connections of the largest tier a pod may have open by TCP, and as many by all other protocols together."""
REFUSED = "refused"
"""The set of the sources whose new connections were dropped in the last minute."""
_REFUSED_SECONDS = 60
_FULL_SECONDS = 1
"""How long a source skips a tier that was full: counting its connections takes time."""
_ROUTERS = ("egress0", "nodes0")
"""The interfaces beyond which routers report errors, and the guards of other nodes have checked those of pods."""
_PROTOCOLS = ("tcp", "others")
_LISTS, _LIST = 8, 1024
"""The kernel walks a list of connections to count it, and removes few that are closed at a time. So a source has many
lists, among which connections are divided at random, and a pool has lists of this length."""
_TABLE_SIZE = "/proc/sys/net/netfilter/nf_conntrack_max"


@dataclass(frozen=True, slots=True)
class Tier:
    """A part of the table of connections."""

    name: str
    each: int
    """How many open connections of one protocol a source may have in it."""
    pool: int = 0
    """How many open connections all sources together may have; 0 if the number of sources is the bound."""

    def chain(self, protocol: str) -> str:
        return f"{protocol}-{self.name}"


def plan_tiers(size: int) -> tuple[list[Tier], Tier]:
    """Divide the table of a family: the tiers of pods of this node, and the first tier of sources beyond it.

    A quarter of the table is left to connections that are closed, and to the node. 128 pods have all that the first
    tier gives them; TCP and the other protocols are counted apart.
    """
    own = [
        Tier("small", max(1, size // 1024)),
        Tier("medium", max(1, size // 128), size // 4),
        Tier("large", max(1, min(MOST_CONNECTIONS, size // 32)), size // 8),
    ]
    return own, Tier("beyond", max(1, size // 4096), size // 8)


def guard_pods(opened: socket.socket, families: Sequence[IpFamily]) -> None:
    """Put the rules into force by a netlink socket of the node's network. Raise OSError where there is no nf_tables."""
    nftables = Nftables(opened)
    size = _table_size() // len(families)
    for family in families:
        rules = _rules(family, size)
        mark = f"rules-{hashlib.sha256(rules.encode()).hexdigest()[:16]}"
        if not nftables.has_chain(TABLE, mark, family):
            rules.add_chain(mark)
            nftables.commit(rules)


async def refused_sources(sockets: Sockets, families: Iterable[IpFamily]) -> set[str]:
    """Return the addresses whose new connections were dropped in the last minute. Raise OSError without nf_tables."""
    nftables = Nftables(await sockets.open_socket(socket.AF_NETLINK, socket.SOCK_RAW, PROTOCOL))
    try:
        return {
            socket.inet_ntop(family.number, key) for family in families for key in nftables.keys(TABLE, REFUSED, family)
        }
    finally:
        nftables.close()


def _rules(family: IpFamily, size: int) -> Transaction:
    transaction = Transaction(TABLE, family)
    transaction.replace_table()
    own, drop = [*rule.is_from_loopback(), rule.end(RuleVerdict.ACCEPT)], rule.end(RuleVerdict.DROP)
    transaction.add_chain("sources", FIRST)
    transaction.add_rule("sources", own)
    transaction.add_rule("sources", [*rule.is_within(rule.load_source(0, family), _NOBODY[family]), drop])
    transaction.add_rule("sources", [*rule.is_forged(), drop])
    _add_tiers(transaction, family, size)
    transaction.add_chain("connections", TRACKED)
    # Most packets need nothing of what follows.
    transaction.add_rule(
        "connections", [*rule.has_flags(0, Tracked.STATE, rule.ESTABLISHED), rule.end(RuleVerdict.ACCEPT)]
    )
    transaction.add_rule("connections", own)
    _check_errors(transaction, family)
    # Further packets of a connection without an answer are new, too, but do not begin it.
    begins = [*rule.has_flags(0, Tracked.STATE, rule.NEW), *rule.has_no_flags(0, Tracked.STATUS, rule.CONFIRMED)]
    transaction.add_rule("connections", [*begins, rule.end(RuleVerdict.GOTO, "first")])
    return transaction


def _check_errors(transaction: Transaction, family: IpFamily) -> None:
    """Drop an error of ICMP about a connection to which its sender is no party, and one about no connection at all.

    The kernel relates an error to the connection that it quotes, from any source, and policies let it pass; without a
    connection it still makes the packets of the node smaller. The source becomes that of the quoted connection, which
    changes nothing in a true error of a pod, and must come through the interface of the packet like any other.
    """
    protocol = bytes((socket.IPPROTO_ICMP if family is IPV4 else socket.IPPROTO_ICMPV6,))
    is_icmp = [rule.load_protocol(0), rule.compare(0, Compare.EQUAL, protocol)]
    stray = rule.has_flags(0, Tracked.STATE, rule.INVALID)
    transaction.add_rule("connections", [*is_icmp, *stray, rule.end(RuleVerdict.DROP)])
    transaction.add_chain("errors")
    for interface in _ROUTERS:
        transaction.add_rule("errors", [*rule.arrives_through(interface), rule.end(RuleVerdict.RETURN)])
    for is_answer in (False, True):
        direction = [rule.load_tracked(0, Tracked.DIRECTION), rule.compare(0, Compare.EQUAL, bytes((is_answer,)))]
        source = rule.load_tracked_source(0, is_answer=is_answer, family=family)
        transaction.add_rule("errors", [*direction, source, rule.write_source(0, family)])
    transaction.add_rule("errors", [*rule.is_forged(), rule.end(RuleVerdict.DROP)])
    related = rule.has_flags(0, Tracked.STATE, rule.RELATED)
    transaction.add_rule("connections", [*is_icmp, *related, rule.end(RuleVerdict.JUMP, "errors")])


def _add_tiers(transaction: Transaction, family: IpFamily, size: int) -> None:
    """Add the chain `first`, which sees the first packet of each connection, and the chains of the tiers."""
    own, beyond = plan_tiers(size)
    key = family.address_bytes
    transaction.add_set(REFUSED, SetShape(key=key, seconds=_REFUSED_SECONDS))
    for tier in (*own, beyond):
        for protocol in _PROTOCOLS:
            transaction.add_set(_open(tier, protocol), SetShape(key=key + 4, counts_connections=True))
            transaction.add_set(_full(tier, protocol), SetShape(key=key, seconds=_FULL_SECONDS))
        if tier.pool:
            transaction.add_set(tier.name, SetShape(key=4, counts_connections=True))
    source = rule.load_source(0, family)
    remember = [source, rule.mark(REFUSED, 0, seconds=_REFUSED_SECONDS), rule.end(RuleVerdict.DROP)]
    transaction.add_chain("refuse")
    transaction.add_rule("refuse", remember)
    for protocol in _PROTOCOLS:
        following = "refuse"
        for tier in reversed(own):
            _add_tier(transaction, tier, protocol, following, family)
            if tier.pool:
                shared = following = tier.chain(protocol)
        _add_tier(transaction, beyond, protocol, shared, family)
    is_tcp = [rule.load_protocol(0), rule.compare(0, Compare.EQUAL, bytes((socket.IPPROTO_TCP,)))]
    transaction.add_chain("beyond")
    transaction.add_chain("first")
    for interface in _ROUTERS:
        transaction.add_rule("first", [*rule.arrives_through(interface), rule.end(RuleVerdict.GOTO, "beyond")])
    for chain, tier in (("first", own[0]), ("beyond", beyond)):
        transaction.add_rule(chain, [*is_tcp, rule.end(RuleVerdict.GOTO, tier.chain("tcp"))])
        transaction.add_rule(chain, [rule.end(RuleVerdict.GOTO, tier.chain("others"))])


def _add_tier(transaction: Transaction, tier: Tier, protocol: str, following: str, family: IpFamily) -> None:
    """Accept what the tier has room for; lead the rest to the following chain."""
    source = rule.load_source(0, family)
    chain, full = tier.chain(protocol), _full(tier, protocol)
    next_one = rule.end(RuleVerdict.GOTO, following)
    lists = _LISTS if tier.each >= _LISTS**2 else 1
    place = rule.load_random(family.registers, lists)
    is_over = [source, place, rule.has_more_connections(_open(tier, protocol), 0, tier.each // lists)]
    mark = [rule.mark(full, 0, seconds=_FULL_SECONDS)]
    transaction.add_chain(chain)
    transaction.add_rule(chain, [source, rule.look_up(full, 0), next_one])
    transaction.add_rule(chain, [*is_over, *mark, next_one])
    if tier.pool:
        lists = max(1, tier.pool // _LIST)
        over_pool = [rule.load_random(0, lists), rule.has_more_connections(tier.name, 0, tier.pool // lists)]
        transaction.add_rule(chain, [*over_pool, source, *mark, next_one])


def _open(tier: Tier, protocol: str) -> str:
    """The set that counts the open connections of each source in a tier."""
    return f"{tier.chain(protocol)}-open"


def _full(tier: Tier, protocol: str) -> str:
    """The set of the sources for which a tier was full a moment ago."""
    return f"{tier.chain(protocol)}-full"


def _table_size() -> int:
    """Return how many connections the kernel tracks in a network namespace."""
    try:
        with open(_TABLE_SIZE) as file:
            return int(file.read())
    except (OSError, ValueError):
        return MOST_CONNECTIONS * 32
