"""Encodes queries and reads responses, independently of the server's code."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass, field

from pinnace.network.dns.wire import RecordType


@dataclass
class Response:
    number: int
    code: int
    name: str
    is_authoritative: bool
    is_truncated: bool
    answers: list[str] = field(default_factory=list)
    authority: list[str] = field(default_factory=list)
    edns_size: int = 0


def encode_query(name: str, kind: RecordType, *, number: int = 4711, udp_size: int = 0) -> bytes:
    labels = b"".join(bytes((len(label),)) + label.encode() for label in name.split("."))
    question = labels + b"\0" + struct.pack("!HH", kind, 1)
    extra = b"\0" + struct.pack("!HHIH", 41, udp_size, 0, 0) if udp_size else b""
    return struct.pack("!HHHHHH", number, 0x100, 1, 0, 0, 1 if extra else 0) + question + extra


def parse_response(data: bytes) -> Response:
    number, flags, questions, answers, authority, additional = struct.unpack_from("!HHHHHH", data)
    assert flags & 0x8000 and questions == 1
    name, place = _name(data, 12)
    response = Response(number, flags & 15, name, bool(flags & 0x400), bool(flags & 0x200))
    place += 4
    for count, target in ((answers, response.answers), (authority, response.authority)):
        for _ in range(count):
            text, place = _record(data, place)
            target.append(text)
    for _ in range(additional):
        assert data[place] == 0
        kind, response.edns_size, _, length = struct.unpack_from("!HHIH", data, place + 1)
        assert kind == 41
        place += 11 + length
    assert place == len(data)
    return response


def _name(data: bytes, place: int) -> tuple[str, int]:
    labels: list[str] = []
    while length := data[place]:
        if length >= 0xC0:
            rest, _ = _name(data, struct.unpack_from("!H", data, place)[0] & 0x3FFF)
            return ".".join([*labels, rest]), place + 2
        labels.append(data[place + 1 : place + 1 + length].decode())
        place += length + 1
    return ".".join(labels), place + 1


def _record(data: bytes, place: int) -> tuple[str, int]:
    _, place = _name(data, place)
    kind, _, _, length = struct.unpack_from("!HHIH", data, place)
    place += 10
    content = data[place : place + length]
    match kind:
        case RecordType.A:
            text = socket.inet_ntoa(content)
        case RecordType.AAAA:
            text = socket.inet_ntop(socket.AF_INET6, content)
        case RecordType.TXT:
            text = content[1:].decode()
        case RecordType.SRV:
            text = " ".join(map(str, struct.unpack_from("!HHH", content))) + " " + _name(data, place + 6)[0]
        case _:
            text = _name(data, place)[0]
    return text, place + length
