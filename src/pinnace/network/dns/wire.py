"""The wire format of DNS: parses queries, and encodes records so that answers are joined from prepared bytes."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass, replace
from enum import IntEnum

_HEADER = struct.Struct("!HHHHHH")
_POINTER_TO_QUESTION = b"\xc0\x0c"
_LONGEST_NAME = 255
_OPT = 41
OUR_UDP_SIZE = 1232
_CLASS_IN, _CLASS_ANY = 1, 255
_EDNS_REPLY = b"\0" + struct.pack("!HHIH", _OPT, OUR_UDP_SIZE, 0, 0)


class RecordType(IntEnum):
    A = 1
    NS = 2
    CNAME = 5
    SOA = 6
    PTR = 12
    TXT = 16
    AAAA = 28
    SRV = 33
    ANY = 255


class ResponseCode(IntEnum):
    NO_ERROR = 0
    FORMAT_ERROR = 1
    SERVER_FAILURE = 2
    NAME_ERROR = 3
    NOT_IMPLEMENTED = 4
    REFUSED = 5


class MalformedQuery(ValueError):
    """The bytes are no query that can be answered; `code` says which error to send, None for silence."""

    def __init__(self, code: ResponseCode | None) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class DnsQuery:
    """One question, and what its sender understands."""

    number: int
    is_recursive: bool
    question: bytes
    """The bytes of the name, type and class as sent: the response repeats them, with the case of their letters."""
    kind: int
    udp_size: int
    has_edns: bool


def parse_query(data: bytes) -> DnsQuery:
    """Raise MalformedQuery if the bytes are not a query with one question of the Internet class."""
    if len(data) < 12:
        raise MalformedQuery(None)
    number, flags, questions, _, _, additional = _HEADER.unpack_from(data)
    if flags & 0x8000:
        raise MalformedQuery(None)  # A response: answering it could go on for ever.
    if flags & 0x7800:
        raise MalformedQuery(ResponseCode.NOT_IMPLEMENTED)
    if questions != 1:
        raise MalformedQuery(ResponseCode.FORMAT_ERROR)
    end = _end_of_name(data, 12)
    if end + 4 > len(data):
        raise MalformedQuery(ResponseCode.FORMAT_ERROR)
    kind, space = struct.unpack_from("!HH", data, end)
    if space not in (_CLASS_IN, _CLASS_ANY):
        raise MalformedQuery(ResponseCode.REFUSED)
    udp_size = _edns_size(data, end + 4) if additional else 0
    return DnsQuery(number, bool(flags & 0x100), data[12 : end + 4], kind, max(udp_size, 512), bool(udp_size))


def _end_of_name(data: bytes, place: int) -> int:
    start = place
    try:
        while length := data[place]:
            place += length + 1
            if length > 63 or place - start > _LONGEST_NAME:
                raise MalformedQuery(ResponseCode.FORMAT_ERROR)
    except IndexError:
        raise MalformedQuery(ResponseCode.FORMAT_ERROR) from None
    return place + 1


def _edns_size(data: bytes, place: int) -> int:
    """Return the size of UDP answers that the sender accepts, if the first additional record says it."""
    if len(data) < place + 11 or data[place] != 0 or struct.unpack_from("!H", data, place + 1)[0] != _OPT:
        return 0
    return max(512, int(struct.unpack_from("!H", data, place + 3)[0]))


def name_of(question: bytes) -> str:
    """Return the name of a question in lower case, with dots, without the last one."""
    labels = []
    place = 0
    while length := question[place]:
        labels.append(question[place + 1 : place + 1 + length].decode("latin-1").lower())
        place += length + 1
    return ".".join(labels)


def encode_name(name: str) -> bytes:
    """Raise ValueError if a label has more than 63 bytes."""
    labels = [label.encode("latin-1") for label in name.rstrip(".").split(".")] if name.rstrip(".") else []
    if any(not 0 < len(label) < 64 for label in labels):
        raise ValueError(f"{name!r} is no domain name: each label has 1 to 63 bytes")
    return b"".join(bytes((len(label),)) + label for label in labels) + b"\0"


def encode_record(name: bytes, kind: int, ttl: int, data: bytes) -> bytes:
    return name + struct.pack("!HHIH", kind, _CLASS_IN, ttl, len(data)) + data


def encode_own_record(kind: int, ttl: int, data: bytes) -> bytes:
    """A record of the name that was asked for."""
    return encode_record(_POINTER_TO_QUESTION, kind, ttl, data)


def address_data(address: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


def service_data(port: int, target: str, *, weight: int) -> bytes:
    return struct.pack("!HHH", 0, weight, port) + encode_name(target)


def text_data(text: str) -> bytes:
    return bytes((len(text),)) + text.encode()


def authority_data(zone: str, serial: int, ttl: int) -> bytes:
    """The data of an SOA record, whose last number says how long a negative answer may be kept."""
    names = encode_name(f"ns.dns.{zone}") + encode_name(f"hostmaster.{zone}")
    return names + struct.pack("!IIIII", serial & 0xFFFFFFFF, 7200, 1800, 86400, ttl)


@dataclass(frozen=True, slots=True)
class DnsAnswer:
    """The records of a response, encoded."""

    code: ResponseCode
    records: tuple[bytes, ...] = ()
    authority: tuple[bytes, ...] = ()
    is_authoritative: bool = True
    is_rotated: bool = False
    """Whether the order of the records means nothing."""

    def rotate(self, count: int) -> DnsAnswer:
        return replace(self, records=(*self.records[count:], *self.records[:count]))


def encode_response(query: DnsQuery, answer: DnsAnswer, *, is_udp: bool) -> bytes:
    """Over UDP an answer that is too long is cut to nothing and marked: the client asks again over TCP."""
    flags = (
        0x8000 | (0x100 if query.is_recursive else 0) | 0x80 | (0x400 if answer.is_authoritative else 0) | answer.code
    )
    extra = _EDNS_REPLY if query.has_edns else b""
    body = b"".join((query.question, *answer.records, *answer.authority, extra))
    counts = (1, len(answer.records), len(answer.authority), 1 if extra else 0)
    if is_udp and len(body) + 12 > query.udp_size:
        return _HEADER.pack(query.number, flags | 0x200, 1, 0, 0, counts[3]) + query.question + extra
    return _HEADER.pack(query.number, flags, *counts) + body


def encode_error(data: bytes, code: ResponseCode) -> bytes:
    """A response without a question, for a query that cannot be parsed."""
    number, flags = struct.unpack_from("!HH", data)
    return _HEADER.pack(number, 0x8000 | (flags & 0x7900) | code, 0, 0, 0, 0)
