"""Keeps a pod that floods the DNS server from taking the answers of other pods.

The kernel has one buffer for the queries of all pods, so the excess of one is dropped before it gets there.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from ipaddress import IPv4Address

from pinnace.network.nftables import expressions as rule
from pinnace.network.nftables.expressions import Compare, RuleVerdict
from pinnace.network.nftables.transactions import FIRST, SetShape, Transaction, commit_once
from pinnace.network.sockets import Sockets

_TABLE, _CHAIN, _CLIENTS = "pinnace-dns", "queries", "clients"
_QUERIES_PER_SECOND = 5000
"""For each client over UDP: about a quarter of the answers that a server has time for."""
_BURST = 1000
_KEEP_SECONDS = 60
_BUFFER_BYTES = 4 << 20
"""Holds the queries of several clients at their limit while the agent does other work."""
_SO_RCVBUFFORCE = 33
_log = logging.getLogger(__name__)


async def limit_queries(sockets: Sockets, address: str, port: int) -> None:
    """Drop the queries of each client that come above its limit; without nftables, warn."""
    transaction = Transaction(_TABLE)
    transaction.replace_table()
    transaction.add_set(_CLIENTS, SetShape(key=4, seconds=_KEEP_SECONDS))
    transaction.add_chain(_CHAIN, FIRST)
    transaction.add_rule(
        _CHAIN,
        [
            *(rule.load_destination(0), rule.compare(0, Compare.EQUAL, IPv4Address(address).packed)),
            *(rule.load_protocol(0), rule.compare(0, Compare.EQUAL, bytes((socket.IPPROTO_UDP,)))),
            *(rule.load_port(0), rule.compare(0, Compare.EQUAL, port.to_bytes(2, "big"))),
            *(rule.load_source(0), rule.exceeds(_CLIENTS, 0, rate=_QUERIES_PER_SECOND, burst=_BURST)),
            rule.end(RuleVerdict.DROP),
        ],
    )
    try:
        await commit_once(sockets, transaction)
    except OSError as error:
        _log.warning("a pod that floods the DNS server delays others, since nftables cannot be used: %s", error)


def enlarge_buffer(datagrams: socket.socket) -> None:
    """Let the socket hold more queries; a user other than root gets as many as the machine allows."""
    for option in (_SO_RCVBUFFORCE, socket.SO_RCVBUF):
        with contextlib.suppress(OSError):
            datagrams.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
            return
