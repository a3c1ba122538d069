"""Forgets tracked connections whose endpoint is gone.

The kernel keeps the translation of a UDP client as long as it sends: without this its datagrams would go to an endpoint
that is gone, or, after a time without endpoints, to none. A connection to a pod that has ended would pass the policies
of the pod that gets its address.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from pinnace.network.families import IPV4, IpFamily
from pinnace.network.nftables.attributes import attribute, message, parse_attributes, parse_messages
from pinnace.network.services.table import Backends, Endpoint, Frontend

_SUBSYSTEM, _GET, _DELETE, _GET_STATISTICS = 1, 1, 2, 5
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


class ConnectionTable(NamedTuple):
    """How many connections the kernel tracks in a network namespace, and how many it can."""

    entries: int
    limit: int


def read_table(connection: socket.socket) -> ConnectionTable:
    """Ask the kernel for the size of the table by a netlink socket. Older kernels name no limit. Raise OSError."""
    connection.send(message(_SUBSYSTEM << 8 | _GET_STATISTICS, _REQUEST, 0, b"", family=0))
    (answer,) = parse_messages(connection.recv(65536))
    kind, _, content = answer
    if kind == _ERROR:
        raise OSError(-struct.unpack_from("=i", content)[0], "the size of the table of connections")
    attributes = parse_attributes(content[4:])
    entries, limit = (int.from_bytes(attributes.get(number, b""), "big") for number in (1, 2))
    return ConnectionTable(entries, limit)


def forget_stale(connection: socket.socket, change: Mapping[Frontend, Backends | None], family: IpFamily = IPV4) -> int:
    """Delete the connections of changed UDP frontends that lead elsewhere now, and return their number.

    All frontends are of one family. The socket is one of the netlink protocol of the packet filter, and does not
    block. Raise OSError.
    """
    wanted = {
        (frontend.address, frontend.port): backends
        for frontend, backends in change.items()
        if frontend.protocol == "UDP"
    }
    if not wanted:
        return 0
    stale = [tracked for tracked in _connections(connection, family) if _is_stale(tracked, wanted, family)]
    for tracked in stale:
        _delete(connection, tracked.original, family)
    return len(stale)


def forget_addresses(connection: socket.socket, addresses: Collection[str], family: IpFamily = IPV4) -> int:
    """Delete the connections from and to addresses of a family, and return their number. As `forget_stale` else."""
    packed = {family.pack(address) for address in addresses}
    first = _IPV4_SOURCE if family is IPV4 else _IPV6_SOURCE
    gone = []
    for original, reply in tracked_connections(connection, family):
        places = [parse_attributes(parse_attributes(part).get(1, b"")) for part in (original, reply)]
        if any(place.get(kind) in packed for place in places for kind in (first, first + 1)):
            gone.append(original)
    for original in gone:
        _delete(connection, original, family)
    return len(gone)


def _is_stale(tracked: _Connection, wanted: Mapping[tuple[str, int], Backends | None], family: IpFamily) -> bool:
    for key in ((tracked.used.address, tracked.used.port), (family.any_address, tracked.used.port)):
        if key in wanted:
            backends = wanted[key]
            return backends is None or tracked.answering not in backends.endpoints
    return False


def _delete(connection: socket.socket, original: bytes, family: IpFamily) -> None:
    payload = attribute(_ORIGINAL | _NESTED, original)
    connection.send(message(_SUBSYSTEM << 8 | _DELETE, _REQUEST | _ACK, 0, payload, family=family.number))
    connection.recv(65536)  # It may have ended by itself: the answer does not matter.


def _connections(connection: socket.socket, family: IpFamily) -> Iterator[_Connection]:
    for original, reply in tracked_connections(connection, family):
        used, answering = _parse(original, family, source=False), _parse(reply, family, source=True)
        if used is not None and answering is not None:
            yield _Connection(used, answering, original)


def tracked_connections(connection: socket.socket, family: IpFamily) -> list[tuple[bytes, bytes]]:
    """Return both directions of all connections of a family, as the kernel writes them."""
    connection.send(message(_SUBSYSTEM << 8 | _GET, _REQUEST | _DUMP, 0, b"", family=family.number))
    connections: list[tuple[bytes, bytes]] = []
    while True:
        for kind, _, content in parse_messages(connection.recv(1 << 20)):
            if kind in (_DONE, _ERROR):
                return connections
            attributes = parse_attributes(content[4:])
            connections.append((attributes.get(_ORIGINAL, b""), attributes.get(_REPLY, b"")))


def _parse(data: bytes, family: IpFamily, *, source: bool) -> Endpoint | None:
    """Return the source or destination of a direction, if it is UDP of the family."""
    parts = parse_attributes(data)
    addresses, protocol = parse_attributes(parts.get(1, b"")), parse_attributes(parts.get(2, b""))
    first = _IPV4_SOURCE if family is IPV4 else _IPV6_SOURCE
    if protocol.get(1, b"\0")[0] != _UDP or first not in addresses:
        return None
    address, port = (addresses[first], protocol[2]) if source else (addresses[first + 1], protocol[3])
    return Endpoint(socket.inet_ntop(family.number, address), struct.unpack("!H", port)[0])
