"""The expressions of rules: each loads, compares or changes a part of a packet, through registers of 4 bytes.

A rule is a sequence of expressions; one that does not match ends it. Registers are numbered from 0 to 15.
"""

from __future__ import annotations

import sys
from enum import IntEnum
from functools import partial
from ipaddress import IPv4Network, IPv6Network

from pinnace.network.families import IPV4, IpFamily
from pinnace.network.nftables.attributes import attribute, long_number, nest, number, text

Expression = bytes
_FIRST_REGISTER = 8
_NAME, _DATA = 1, 2
_VALUE, _VERDICT = 1, 2
_CODE, _CHAIN = 1, 2
_NETWORK, _TRANSPORT = 1, 2
_TO_VERDICT = 0
_FIB_INTERFACE, _FIB_ADDRESS_TYPE = 1, 3
_FIB_SOURCE, _FIB_DESTINATION, _FIB_INPUT = 1, 2, 8
_TRACKED_SOURCE, _TRACKED_SOURCE_6 = 19, 21
_LOCAL = 2
_LOOPBACK = 1
"""The index of the loopback interface."""
_PACKETS, _ABOVE = 0, 1
_PORTS_GIVEN = 2
_NAME_BYTES = 16


class RuleVerdict(IntEnum):
    DROP = 0
    ACCEPT = 1
    JUMP = -3
    GOTO = -4
    RETURN = -5


class Compare(IntEnum):
    EQUAL = 0
    NOT_EQUAL = 1
    AT_MOST = 3
    AT_LEAST = 5


class Meta(IntEnum):
    INPUT_INDEX = 4
    INPUT_INTERFACE = 6
    OUTPUT_INTERFACE = 7
    """The name, padded to 16 bytes: it takes four registers."""
    PROTOCOL = 16


class Tracked(IntEnum):
    """The facts of a tracked connection."""

    STATE = 0
    DIRECTION = 1
    STATUS = 2


INVALID, ESTABLISHED, RELATED, NEW, UNTRACKED = 0x1, 0x2, 0x4, 0x8, 0x40
"""The bits of `Tracked.STATE`."""
CONFIRMED, DESTINATION_CHANGED = 1 << 3, 1 << 5
"""The bits of `Tracked.STATUS` of a connection that is in the table, and of one whose destination was translated."""


def value(data: bytes) -> bytes:
    return nest(_DATA, attribute(_VALUE, data))


def verdict(code: RuleVerdict, chain: str = "") -> bytes:
    """The data of a verdict, for a rule or for an element of a verdict map."""
    parts = [number(_CODE, code & 0xFFFFFFFF)]
    if chain:
        parts.append(text(_CHAIN, chain))
    return nest(_DATA, nest(_VERDICT, *parts))


def _expression(name: str, *parts: bytes) -> Expression:
    return text(_NAME, name) + nest(_DATA, *parts)


def _register(kind: int, place: int) -> bytes:
    return number(kind, _FIRST_REGISTER + place)


def _payload(place: int, header: int, offset: int, length: int) -> Expression:
    return _expression("payload", _register(1, place), number(2, header), number(3, offset), number(4, length))


def load_source(place: int, family: IpFamily = IPV4) -> Expression:
    return _payload(place, _NETWORK, family.source_offset, family.address_bytes)


def load_destination(place: int, family: IpFamily = IPV4) -> Expression:
    return _payload(place, _NETWORK, family.destination_offset, family.address_bytes)


def load_port(place: int) -> Expression:
    """Load the destination port of TCP, UDP or SCTP."""
    return _payload(place, _TRANSPORT, 2, 2)


def load_source_port(place: int) -> Expression:
    return _payload(place, _TRANSPORT, 0, 2)


def load_meta(place: int, key: Meta) -> Expression:
    return _expression("meta", _register(1, place), number(2, key))


load_protocol = partial(load_meta, key=Meta.PROTOCOL)


def load_tracked(place: int, key: Tracked) -> Expression:
    return _expression("ct", _register(1, place), number(2, key))


def load_tracked_source(place: int, *, is_answer: bool, family: IpFamily = IPV4) -> Expression:
    """Load the address that sends in a direction of the tracked connection."""
    key = _TRACKED_SOURCE if family is IPV4 else _TRACKED_SOURCE_6
    return _expression("ct", _register(1, place), number(2, key), attribute(3, bytes((is_answer,))))


def write_source(place: int, family: IpFamily = IPV4) -> Expression:
    """Make an address the source of the packet, with the checksums."""
    checksum = (number(6, 1), number(7, 10)) if family is IPV4 else (number(6, 0), number(8, 1))
    parts = (number(2, _NETWORK), number(3, family.source_offset), number(4, family.address_bytes))
    return _expression("payload", *parts, _register(5, place), *checksum)


def load_address_type(place: int) -> Expression:
    """Load the type of the destination: whether it is local, for example."""
    return _expression("fib", _register(1, place), number(2, _FIB_ADDRESS_TYPE), number(3, _FIB_DESTINATION))


def is_forged() -> list[Expression]:
    """Match packets from a source to which an answer would not go out through the interface of the packet."""
    load = _expression("fib", _register(1, 0), number(2, _FIB_INTERFACE), number(3, _FIB_SOURCE | _FIB_INPUT))
    return [load, compare(0, Compare.EQUAL, bytes(4))]


def is_from_loopback() -> list[Expression]:
    return [load_meta(0, Meta.INPUT_INDEX), compare(0, Compare.EQUAL, _LOOPBACK.to_bytes(4, sys.byteorder))]


def arrives_through(interface: str) -> list[Expression]:
    return [load_meta(0, Meta.INPUT_INTERFACE), compare(0, Compare.EQUAL, _name(interface))]


def leaves_through(interface: str) -> list[Expression]:
    return [load_meta(0, Meta.OUTPUT_INTERFACE), compare(0, Compare.EQUAL, _name(interface))]


def _name(interface: str) -> bytes:
    return interface.encode().ljust(_NAME_BYTES, b"\0")


def is_within(load: Expression, network: IPv4Network | IPv6Network) -> list[Expression]:
    """Match packets whose address, which the first expression loads, is in a network."""
    return [load, mask(0, network.netmask.packed), compare(0, Compare.EQUAL, network.network_address.packed)]


def is_outside(load: Expression, network: IPv4Network | IPv6Network) -> list[Expression]:
    return [load, mask(0, network.netmask.packed), compare(0, Compare.NOT_EQUAL, network.network_address.packed)]


def load_random(place: int, count: int) -> Expression:
    """Load a random number below the count, in the machine's byte order."""
    return _expression("numgen", _register(1, place), number(2, count), number(3, 1), number(4, 0))


def load_value(place: int, data: bytes) -> Expression:
    return _expression("immediate", _register(1, place), value(data))


def mask(place: int, bits: bytes) -> Expression:
    """Keep some bits of a register."""
    parts = (_register(1, place), _register(2, place), number(3, len(bits)))
    return _expression(
        "bitwise", *parts, nest(4, attribute(_VALUE, bits)), nest(5, attribute(_VALUE, bytes(len(bits))))
    )


def compare(place: int, how: Compare, data: bytes) -> Expression:
    return _expression("cmp", _register(1, place), number(2, how), nest(3, attribute(_VALUE, data)))


def is_local(place: int) -> list[Expression]:
    """Match packets to an address of this network namespace."""
    return [load_address_type(place), compare(place, Compare.EQUAL, _LOCAL.to_bytes(4, sys.byteorder))]


def has_flags(place: int, key: Tracked, bits: int) -> list[Expression]:
    """Match packets of a tracked connection that has one of the bits."""
    load = [load_tracked(place, key), mask(place, bits.to_bytes(4, sys.byteorder))]
    return [*load, compare(place, Compare.NOT_EQUAL, bytes(4))]


def has_no_flags(place: int, key: Tracked, bits: int) -> list[Expression]:
    """Match packets of a tracked connection that has none of the bits."""
    load = [load_tracked(place, key), mask(place, bits.to_bytes(4, sys.byteorder))]
    return [*load, compare(place, Compare.EQUAL, bytes(4))]


def look_up(name: str, key: int, *, into: int | None = None) -> Expression:
    """Match if the set has the key that begins in a register; load the value of a map."""
    parts = [text(1, name), _register(2, key)]
    if into is not None:
        parts.append(_register(3, into))
    return _expression("lookup", *parts)


def look_up_verdict(name: str, key: int) -> Expression:
    return _expression("lookup", text(1, name), _register(2, key), number(3, _TO_VERDICT))


def remember(name: str, key: int, data: int, *, seconds: int) -> Expression:
    """Put the key and value into a map for some time. A key that the map has keeps its value, and gets more time."""
    parts = (text(1, name), number(3, 1), _register(4, key), _register(5, data))
    return _expression("dynset", *parts, long_number(6, seconds * 1000))


def mark(name: str, key: int, *, seconds: int) -> Expression:
    """Put the key into a set for some time. A key that the set has gets no more time."""
    return _expression("dynset", text(1, name), number(3, 0), _register(4, key), long_number(6, seconds * 1000))


def forget(name: str, key: int, data: int) -> Expression:
    """Remove the key from a map, if it is there. The register of the value is not read."""
    return _expression("dynset", text(1, name), number(3, 2), _register(4, key), _register(5, data))


def exceeds(name: str, key: int, *, rate: int, burst: int) -> Expression:
    """Match the packets of a key that come above a rate in each second, after a burst. The set has a limit per key."""
    limit = (long_number(1, rate), long_number(2, 1), number(3, burst), number(4, _PACKETS), number(5, _ABOVE))
    return _expression("dynset", text(1, name), number(3, 1), _register(4, key), nest(7, _expression("limit", *limit)))


def has_more_connections(name: str, key: int, limit: int) -> Expression:
    """Count a connection for its key, and match if the key has more than the limit. For its first packet."""
    count = _expression("connlimit", number(1, limit), number(2, _ABOVE))
    return _expression("dynset", text(1, name), number(3, 0), _register(4, key), nest(7, count))


def translate_destination(address: int, port: int, family: IpFamily = IPV4) -> Expression:
    return _expression("nat", number(1, 1), number(2, family.number), _register(3, address), _register(5, port))


def do_not_track() -> Expression:
    return _expression("notrack")


def masquerade() -> Expression:
    return _expression("masq")


def masquerade_to_ports(place: int, first: int, last: int) -> list[Expression]:
    """Give the connection a source port of a range that is free. Two registers hold the range."""
    ports = [load_value(place + at, port.to_bytes(2, "big")) for at, port in enumerate((first, last))]
    return [*ports, _expression("masq", number(1, _PORTS_GIVEN), _register(2, place), _register(3, place + 1))]


def end(code: RuleVerdict, chain: str = "") -> Expression:
    return _expression("immediate", number(1, _TO_VERDICT), verdict(code, chain))
