"""Changes of nf_tables that the kernel makes together or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pinnace.network.families import IPV4, IpFamily
from pinnace.network.nftables.attributes import (
    long_number,
    message,
    nest,
    nest_list,
    number,
    parse_attributes,
    parse_list,
    parse_messages,
    text,
)
from pinnace.network.nftables.expressions import Expression
from pinnace.network.sockets import Sockets

PROTOCOL = 12
"""The netlink protocol of the packet filter."""
_SUBSYSTEM = 10
_BEGIN, _END, _ERROR, _DONE = 0x10, 0x11, 2, 3
_NEW_TABLE, _DELETE_TABLE, _NEW_CHAIN, _GET_CHAIN, _DELETE_CHAIN, _NEW_RULE, _NEW_SET = 0, 2, 3, 4, 5, 6, 9
_NEW_ELEMENT, _GET_ELEMENT, _DELETE_ELEMENT = 12, 13, 14
_REQUEST, _ACK, _DUMP, _CREATE, _APPEND = 0x1, 0x4, 0x300, 0x400, 0x800
_SEND_BUFFER = 32 << 20
_SO_SNDBUFFORCE = 32
_NESTED_BYTES = 60_000
"""An attribute has at most 64 KiB: more elements need several messages."""
_VERDICT_TYPE = 0xFFFFFF00
_MOST_COUNTED = 1 << 18
_MAP, _TIMEOUT, _DYNAMIC = 0x8, 0x10, 0x20


class TransactionFailed(OSError):
    """The kernel has refused a transaction. Nothing of it is in force."""


@dataclass(frozen=True, slots=True)
class ChainHook:
    """The place at which a chain sees packets."""

    kind: str
    number: int
    priority: int


FIRST = ChainHook("filter", 0, -300)
"""Before connections are tracked."""
FIRST_OUT = ChainHook("filter", 3, -300)
"""The same for packets of the namespace itself."""
TRACKED = ChainHook("filter", 0, -150)
"""When connections are known, before their destination is translated."""
PREROUTING = ChainHook("nat", 0, -100)
OUTPUT = ChainHook("nat", 3, -100)
POSTROUTING = ChainHook("nat", 4, 100)
INPUT = ChainHook("filter", 1, 0)
FORWARD = ChainHook("filter", 2, 0)
LEAVING = ChainHook("filter", 4, 0)
"""Packets of pods and of the namespace itself, when their destination is translated and their source is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetShape:
    """The lengths of the keys and values of a set or map, in bytes."""

    key: int
    value: int = 0
    """0 for a set."""
    is_verdict_map: bool = False
    seconds: int = 0
    """How long elements that rules add are kept; 0 for a set that rules do not change."""
    counts_connections: bool = False
    """Whether rules add elements that count connections, each of which is kept as long as it has some."""


class Transaction:
    """Collects changes of one table; `commit` makes them."""

    def __init__(self, table: str, family: IpFamily = IPV4) -> None:
        """The table sees the packets of one family. Tables of both may have the same name."""
        self._table = table
        self._family = family.number
        self._operations: list[tuple[int, int, bytes]] = []

    def __len__(self) -> int:
        return len(self._operations)

    @property
    def is_empty(self) -> bool:
        return not self._operations

    def replace_table(self) -> None:
        """Remove the table with all that it has, if it is there, and make it anew."""
        self.remove_table()
        self._add(_NEW_TABLE, _CREATE, text(1, self._table))

    def remove_table(self) -> None:
        """Remove the table with all that it has, if it is there."""
        self._add(_NEW_TABLE, _CREATE, text(1, self._table))
        self.delete_table()

    def delete_table(self) -> None:
        self._add(_DELETE_TABLE, 0, text(1, self._table))

    def add_chain(self, name: str, hook: ChainHook | None = None) -> None:
        payload = text(1, self._table) + text(3, name)
        if hook is not None:
            payload += nest(4, number(1, hook.number), number(2, hook.priority & 0xFFFFFFFF)) + text(7, hook.kind)
        self._add(_NEW_CHAIN, _CREATE, payload)

    def delete_chain(self, name: str) -> None:
        """Remove a chain with its rules. Nothing may lead to it any more."""
        self._add(_DELETE_CHAIN, 0, text(1, self._table) + text(3, name))

    def add_rule(self, chain: str, expressions: Iterable[Expression]) -> None:
        payload = text(1, self._table) + text(2, chain) + nest_list(4, expressions)
        self._add(_NEW_RULE, _CREATE | _APPEND, payload)

    def add_set(self, name: str, shape: SetShape) -> None:
        flags = _MAP if shape.is_verdict_map or shape.value else 0
        flags |= _TIMEOUT | _DYNAMIC if shape.seconds else 0
        flags |= _DYNAMIC if shape.counts_connections else 0
        payload = text(1, self._table) + text(2, name) + number(3, flags) + number(4, 0) + number(5, shape.key)
        if shape.is_verdict_map:
            payload += number(6, _VERDICT_TYPE) + number(7, 0)
        elif shape.value:
            payload += number(6, 0) + number(7, shape.value)
        if shape.counts_connections:
            payload += nest(9, number(1, _MOST_COUNTED))
        payload += number(10, len(self._operations) + 1)
        if shape.seconds:
            payload += long_number(11, shape.seconds * 1000)
        self._add(_NEW_SET, _CREATE, payload)

    def add_elements(self, name: str, elements: Iterable[bytes]) -> None:
        self._add_elements(_NEW_ELEMENT, _CREATE, name, elements)

    def delete_elements(self, name: str, elements: Iterable[bytes]) -> None:
        self._add_elements(_DELETE_ELEMENT, 0, name, elements)

    def _add_elements(self, kind: int, flags: int, name: str, elements: Iterable[bytes]) -> None:
        head = text(1, self._table) + text(2, name)
        some: list[bytes] = []
        size = 0
        for element in elements:
            if size + len(element) + 8 > _NESTED_BYTES:
                self._add(kind, flags, head + nest_list(3, some))
                some, size = [], 0
            some.append(element)
            size += len(element) + 8
        if some:
            self._add(kind, flags, head + nest_list(3, some))

    def _add(self, kind: int, flags: int, payload: bytes) -> None:
        self._operations.append((kind, flags, payload))

    def encode(self) -> bytes:
        """The operations between the begin and the end of a batch; the last one asks for an answer."""
        last = len(self._operations)
        parts = [message(_BEGIN, _REQUEST, 0, b"", family=0, resource=_SUBSYSTEM)]
        for place, (kind, flags, payload) in enumerate(self._operations, 1):
            options = _REQUEST | flags | (_ACK if place == last else 0)
            parts.append(message(_SUBSYSTEM << 8 | kind, options, place, payload, family=self._family))
        parts.append(message(_END, _REQUEST, last + 1, b"", family=0, resource=_SUBSYSTEM))
        return b"".join(parts)


class Nftables:
    """A connection to nf_tables in the network namespace in which its socket was created."""

    def __init__(self, connection: socket.socket) -> None:
        connection.bind((0, 0))
        connection.setblocking(False)
        for option, size in ((_SO_SNDBUFFORCE, _SEND_BUFFER), (socket.SO_SNDBUF, _SEND_BUFFER)):
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, option, size)
                break
        self._connection = connection

    def close(self) -> None:
        self._connection.close()

    def commit(self, transaction: Transaction) -> None:
        """Put a transaction into force. Raise TransactionFailed."""
        if transaction.is_empty:
            return
        self._connection.send(transaction.encode())
        self._read_answer(len(transaction))

    def has_chain(self, table: str, chain: str, family: IpFamily = IPV4) -> bool:
        """Whether a table is there, and has a chain of this name."""
        names = text(1, table) + text(3, chain)
        self._connection.send(message(_SUBSYSTEM << 8 | _GET_CHAIN, _REQUEST, 0, names, family=family.number))
        return all(kind != _ERROR for kind, _, _ in parse_messages(self._connection.recv(1 << 20)))

    def keys(self, table: str, name: str, family: IpFamily = IPV4) -> list[bytes]:
        """Return the keys of a set. Raise OSError if it is not there."""
        names = text(1, table) + text(2, name)
        self._connection.send(message(_SUBSYSTEM << 8 | _GET_ELEMENT, _REQUEST | _DUMP, 0, names, family=family.number))
        keys: list[bytes] = []
        while True:
            for kind, _, content in parse_messages(self._connection.recv(1 << 20)):
                if kind == _DONE:
                    return keys
                if kind == _ERROR:
                    code = -struct.unpack_from("=i", content)[0]
                    raise OSError(code, f"{os.strerror(code)} (the elements of {name})")
                elements = parse_list(parse_attributes(content[4:]).get(3, b""))
                keys += [parse_attributes(parse_attributes(part)[1])[1] for part in elements]

    def _read_answer(self, last: int) -> None:
        """Read the answers, which are all there when the send has returned."""
        answered = False
        failed: list[tuple[int, int]] = []
        while True:
            try:
                data = self._connection.recv(1 << 20)
            except BlockingIOError:
                break
            for kind, sequence, content in parse_messages(data):
                if kind != _ERROR:
                    continue
                code = -struct.unpack_from("=i", content)[0]
                answered |= sequence == last
                if code:
                    failed.append((sequence, code))
        if failed:
            place, code = failed[0]
            raise TransactionFailed(code, f"{os.strerror(code)} (operation {place} of {last})")
        if not answered:
            raise TransactionFailed(errno.EPROTO, "nf_tables has sent no answer")


async def commit_once(sockets: Sockets, transaction: Transaction) -> None:
    """Put a transaction into force in the network namespace of the sockets. Raise OSError."""
    nftables = Nftables(await sockets.open_socket(socket.AF_NETLINK, socket.SOCK_RAW, PROTOCOL))
    try:
        nftables.commit(transaction)
    finally:
        nftables.close()


def element(key: bytes, data: bytes = b"") -> bytes:
    """An element of a set: its key, and for a map its value or verdict."""
    return nest(1, nest_value(key)) + data


def nest_value(data: bytes) -> bytes:
    return _VALUE_HEADS[len(data)] + data + b"\0" * (-len(data) % 4)


_VALUE_HEADS: Sequence[bytes] = [struct.pack("=HH", 4 + length, 1) for length in range(65)]
