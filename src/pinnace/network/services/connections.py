"""Forgets tracked UDP connections whose endpoint is gone.

The kernel keeps the translation of a UDP client as long as it sends: without this its datagrams would go to an endpoint
that is gone, or, after a time without endpoints, to none.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pinnace.network.families import IPV4, IpFamily
from pinnace.network.nftables.attributes import attribute, message, parse_attributes, parse_messages
from pinnace.network.services.table import Backends, Endpoint, Frontend

_SUBSYSTEM, _GET, _DELETE = 1, 1, 2
_REQUEST, _ACK, _DUMP = 0x1, 0x4, 0x300
_DONE, _ERROR = 3, 2
_ORIGINAL, _REPLY = 1, 2
_NESTED = 0x8000
_UDP = 17
_IPV4_SOURCE, _IPV6_SOURCE = 1, 3
"""The attributes of source addresses; that of the destination is the next."""


class _Connection(NamedTuple):
    """A tracked UDP connection: the address that its client uses, the one that answers, and its key for the kernel."""

    used: Endpoint
    answering: Endpoint
    original: bytes


def forget_stale(connection: socket.socket, change: Mapping[Frontend, Backends | None], family: IpFamily = IPV4) -> int:
    """Delete the connections of changed UDP frontends that lead elsewhere now, and return their number.

    All frontends are of one family. The socket is one of the netlink protocol of the packet filter, and does not
    block. Raise OSError.
    """
    wanted = {(one.address, one.port): backends for one, backends in change.items() if one.protocol == "UDP"}
    if not wanted:
        return 0
    stale = [one for one in _connections(connection, family) if _is_stale(one, wanted, family)]
    for one in stale:
        payload = attribute(_ORIGINAL | _NESTED, one.original)
        connection.send(message(_SUBSYSTEM << 8 | _DELETE, _REQUEST | _ACK, 0, payload, family=family.number))
        connection.recv(65536)  # It may have ended by itself: the answer does not matter.
    return len(stale)


def _is_stale(one: _Connection, wanted: Mapping[tuple[str, int], Backends | None], family: IpFamily) -> bool:
    for key in ((one.used.address, one.used.port), (family.any_address, one.used.port)):
        if key in wanted:
            backends = wanted[key]
            return backends is None or one.answering not in backends.endpoints
    return False


def _connections(connection: socket.socket, family: IpFamily) -> Iterator[_Connection]:
    connection.send(message(_SUBSYSTEM << 8 | _GET, _REQUEST | _DUMP, 0, b"", family=family.number))
    found: list[_Connection] = []
    while True:
        for kind, _, content in parse_messages(connection.recv(1 << 20)):
            if kind in (_DONE, _ERROR):
                return iter(found)
            attributes = parse_attributes(content[4:])
            original, reply = attributes.get(_ORIGINAL, b""), attributes.get(_REPLY, b"")
            used, answering = _parse(original, family, source=False), _parse(reply, family, source=True)
            if used is not None and answering is not None:
                found.append(_Connection(used, answering, original))


def _parse(data: bytes, family: IpFamily, *, source: bool) -> Endpoint | None:
    """Return the source or destination of a direction, if it is UDP of the family."""
    parts = parse_attributes(data)
    addresses, protocol = parse_attributes(parts.get(1, b"")), parse_attributes(parts.get(2, b""))
    first = _IPV4_SOURCE if family is IPV4 else _IPV6_SOURCE
    if protocol.get(1, b"\0")[0] != _UDP or first not in addresses:
        return None
    address, port = (addresses[first], protocol[2]) if source else (addresses[first + 1], protocol[3])
    return Endpoint(socket.inet_ntop(family.number, address), struct.unpack("!H", port)[0])
