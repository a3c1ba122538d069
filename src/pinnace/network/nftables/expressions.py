"""The expressions of rules: each loads, compares or changes a part of a packet, through registers of 4 bytes.

A rule is a sequence of expressions; one that does not match ends it. Registers are numbered from 0 to 15.
"""

from __future__ import annotations

import sys
from enum import IntEnum
from functools import partial

from pinnace.network.families import IPV4, IpFamily
from pinnace.network.nftables.attributes import attribute, long_number, nest, number, text

Expression = bytes
_FIRST_REGISTER = 8
_NAME, _DATA = 1, 2
_VALUE, _VERDICT = 1, 2
_CODE, _CHAIN = 1, 2
_NETWORK, _TRANSPORT = 1, 2
_TO_VERDICT = 0
_FIB_ADDRESS_TYPE, _FIB_DESTINATION = 3, 2
_LOCAL = 2
_PACKETS, _ABOVE = 0, 1


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
    OUTPUT_INTERFACE = 7
    """The name, padded to 16 bytes: it takes four registers."""
    PROTOCOL = 16


class Tracked(IntEnum):
    """The facts of a tracked connection."""

    STATE = 0
    STATUS = 2


ESTABLISHED_OR_RELATED = 0x2 | 0x4
DESTINATION_CHANGED = 1 << 5
"""The bit of `Tracked.STATUS` of a connection whose destination was translated."""


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


def load_message_type(place: int) -> Expression:
    """Load the type of an ICMP message."""
    return _payload(place, _TRANSPORT, 0, 1)


def load_meta(place: int, key: Meta) -> Expression:
    return _expression("meta", _register(1, place), number(2, key))


load_protocol = partial(load_meta, key=Meta.PROTOCOL)


def load_tracked(place: int, key: Tracked) -> Expression:
    return _expression("ct", _register(1, place), number(2, key))


def load_address_type(place: int) -> Expression:
    """Load the type of the destination: whether it is local, for example."""
    return _expression("fib", _register(1, place), number(2, _FIB_ADDRESS_TYPE), number(3, _FIB_DESTINATION))


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


def forget(name: str, key: int, data: int) -> Expression:
    """Remove the key from a map, if it is there. The register of the value is not read."""
    return _expression("dynset", text(1, name), number(3, 2), _register(4, key), _register(5, data))


def exceeds(name: str, key: int, *, rate: int, burst: int) -> Expression:
    """Match the packets of a key that come above a rate in each second, after a burst. The set has a limit per key."""
    limit = (long_number(1, rate), long_number(2, 1), number(3, burst), number(4, _PACKETS), number(5, _ABOVE))
    return _expression("dynset", text(1, name), number(3, 1), _register(4, key), nest(7, _expression("limit", *limit)))


def translate_destination(address: int, port: int, family: IpFamily = IPV4) -> Expression:
    return _expression("nat", number(1, 1), number(2, family.number), _register(3, address), _register(5, port))


def masquerade() -> Expression:
    return _expression("masq")


def end(code: RuleVerdict, chain: str = "") -> Expression:
    return _expression("immediate", number(1, _TO_VERDICT), verdict(code, chain))
