"""The wire format of netlink messages to nf_tables."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator

from pinnace.network.families import IPV4

_NESTED = 0x8000
_HEAD = struct.Struct("=HH")
_MESSAGE = struct.Struct("=IHHIIBBH")
_PADDING = (b"", b"\0\0\0", b"\0\0", b"\0")
_LIST_ELEMENT = 1


def attribute(kind: int, value: bytes) -> bytes:
    return _HEAD.pack(4 + len(value), kind) + value + _PADDING[len(value) & 3]


def nest(kind: int, *values: bytes) -> bytes:
    return attribute(kind | _NESTED, b"".join(values))


def nest_list(kind: int, items: Iterable[bytes]) -> bytes:
    """Nest items as a list, each of them nested in turn."""
    return nest(kind, *(nest(_LIST_ELEMENT, item) for item in items))


def text(kind: int, value: str) -> bytes:
    return attribute(kind, value.encode() + b"\0")


def number(kind: int, value: int) -> bytes:
    """A number of 32 bits in network order, as nf_tables expects all of its own."""
    return attribute(kind, value.to_bytes(4, "big"))


def long_number(kind: int, value: int) -> bytes:
    return attribute(kind, value.to_bytes(8, "big"))


def message(
    kind: int, flags: int, sequence: int, payload: bytes, *, family: int = IPV4.number, resource: int = 0
) -> bytes:
    """A message of nfnetlink. The resource is written in network order."""
    return _MESSAGE.pack(20 + len(payload), kind, flags, sequence, 0, family, 0, socket.htons(resource)) + payload


def parse_messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield the kind, sequence number and content of each message."""
    place = 0
    while place + 16 <= len(data):
        length, kind, _, sequence, _ = struct.unpack_from("=IHHII", data, place)
        if length < 16:
            return
        yield kind, sequence, data[place + 16 : place + length]
        place += (length + 3) & ~3


def parse_attributes(data: bytes) -> dict[int, bytes]:
    attributes = {}
    place = 0
    while place + 4 <= len(data):
        length, kind = _HEAD.unpack_from(data, place)
        if length < 4:
            break
        attributes[kind & 0x3FFF] = data[place + 4 : place + length]
        place += (length + 3) & ~3
    return attributes


def parse_list(data: bytes) -> Iterator[bytes]:
    """Yield the contents of attributes of one kind."""
    place = 0
    while place + 4 <= len(data):
        length, _ = _HEAD.unpack_from(data, place)
        if length < 4:
            return
        yield data[place + 4 : place + length]
        place += (length + 3) & ~3
