"""Sends forged frames from a pod. It runs there as a script: `python3 -c SOURCE '[{"source": …}, …]'`.

Each item of the list is one frame; see `_frame`. A frame whose sender may not open a packet socket fails loudly.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from typing import Any

_ALL = 3
_INTERFACE = "eth0"


def _checksum(data: bytes) -> int:
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return int(~total & 0xFFFF)


def _packed(address: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


def _datagram(source: bytes, destination: bytes, port: int, payload: bytes) -> bytes:
    length = 8 + len(payload)
    pseudo = source + destination + struct.pack("!IHBB", length, 0, 0, 17)
    if len(source) == 4:
        pseudo = source + destination + struct.pack("!BBH", 0, 17, length)
    head = struct.pack("!HHH", 40000, port, length)
    check = _checksum(pseudo + head + b"\0\0" + payload) or 0xFFFF
    return head + struct.pack("!H", check) + payload


def _icmp(source: bytes, destination: bytes, kind: int, code: int, body: bytes) -> bytes:
    """A message of ICMP. For IPv6 the checksum covers the addresses."""
    pseudo = source + destination + struct.pack("!IHBB", 4 + len(body), 0, 0, 58) if len(source) == 16 else b""
    head = struct.pack("!BB", kind, code)
    return head + struct.pack("!H", _checksum(pseudo + head + b"\0\0" + body)) + body


def _ipv4(
    source: bytes,
    destination: bytes,
    protocol: int,
    content: bytes,
    *,
    offset: int = 0,
    number: int = 0,
    options: bytes = b"",
) -> bytes:
    options += b"\0" * (-len(options) % 4)
    length = 20 + len(options)
    first = struct.pack("!BBHHH", 0x40 | length // 4, 0, length + len(content), number, offset)
    head = first + struct.pack("!BBH", 64, protocol, 0) + source + destination + options
    return head[:10] + struct.pack("!H", _checksum(head)) + head[12:] + content


def _ipv6(source: bytes, destination: bytes, protocol: int, content: bytes) -> bytes:
    return struct.pack("!IHBB", 6 << 28, len(content), protocol, 255) + source + destination + content


def _packet(item: dict[str, Any]) -> bytes:
    source, destination = _packed(item["source"]), _packed(item["to"])
    if "icmp" in item:
        body = bytes.fromhex(item["body"]) + item["text"].encode()
        message = _icmp(source, destination, item["icmp"], item.get("code", 0), body)
        return _ipv6(source, destination, 58, message) if len(source) == 16 else _ipv4(source, destination, 1, message)
    number, content = _content(item, source, destination)
    if len(source) == 4:
        return _ipv4(source, destination, number, content, options=bytes.fromhex(item.get("options", "")))
    number, content = _extended(item.get("extensions", ()), number, content)
    return _ipv6(source, destination, number, content)


def _content(item: dict[str, Any], source: bytes, destination: bytes) -> tuple[int, bytes]:
    """The protocol and content of a packet: another packet, by default a datagram, behind the bytes of `before`."""
    text: bytes = item["text"].encode()
    if "inner" in item:
        inner = _packet({**item["inner"], "text": item["text"]})
        own = 41 if len(_packed(item["inner"]["source"])) == 16 else 4
        before = bytes.fromhex(item.get("before", ""))
        if "port" in item:
            return 17, _datagram(source, destination, item["port"], before + inner)
        return item.get("protocol", own), before + inner
    if "protocol" in item:
        return item["protocol"], bytes.fromhex(item.get("before", "")) + text
    return 17, _datagram(source, destination, item["port"], text)


def _extended(extensions: list[Any], number: int, content: bytes) -> tuple[int, bytes]:
    """Put header extensions before a content, the last one first: a number with its bytes, or alone with no options."""
    for extension in extensions:
        kind, data = extension if isinstance(extension, list) else (extension, "010400000000")
        body = bytes.fromhex(data)
        body += b"\0" * (-(len(body) + 2) % 8)
        content = struct.pack("!BB", number, (len(body) + 2) // 8 - 1) + body + content
        number = kind
    return number, content


def _node(own: bytes) -> bytes:
    """The hardware address of the node: that of the first neighbour, or where none is resolved the one of both ends."""
    with open("/proc/net/arp") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    known = [row[3] for row in rows if row[5] == _INTERFACE and row[3] != "00:00:00:00:00:00"]
    return bytes.fromhex(known[0].replace(":", "")) if known else own


def _arp(item: dict[str, Any], own: bytes) -> bytes:
    sender = bytes.fromhex(item["hardware"]) if "hardware" in item else own
    head = struct.pack("!HHBBH", 1, 0x800, 6, 4, item["arp"])
    text: bytes = item["text"].encode()
    return head + sender + _packed(item["source"]) + b"\0" * 6 + _packed(item["to"]) + text


def _frames(item: dict[str, Any], own: bytes) -> list[bytes]:
    """One item as frames: the packet as it is, or in fragments of some bytes each.

    `frame` is the kind of the frame, by default that of its packet; `tags` come before it; `destination` and
    `hardware` are hardware addresses.
    """
    to = bytes.fromhex(item["destination"]) if "destination" in item else _node(own)
    sender = bytes.fromhex(item["hardware"]) if "hardware" in item else own
    if "raw" in item:
        return [to + sender + bytes.fromhex(item["raw"]) + item["text"].encode()]
    if "arp" in item:
        return [to + sender + b"\x08\x06" + _arp(item, own)]
    kind = bytes.fromhex(item.get("frame", "86dd" if ":" in item["source"] else "0800"))
    head = to + sender + bytes.fromhex(item.get("tags", "")) + kind
    if "fragments" not in item:
        return [head + _packet(item)]
    source, destination = _packed(item["source"]), _packed(item["to"])
    content = _datagram(source, destination, item["port"], item["text"].encode())
    upper, content = _extended(item.get("extensions", ()), 17, content)
    return [head + packet for packet in _fragments((source, destination), upper, content, item["fragments"])]


def _fragments(ends: tuple[bytes, bytes], upper: int, content: bytes, places: list[list[int]]) -> list[bytes]:
    """Cut a content at the given places: pairs of a beginning and an end, in units of eight bytes."""
    source, destination = ends
    frames = []
    number = int.from_bytes(os.urandom(2), "big")  # Parts of an earlier datagram may wait for the rest.
    for first, last in places:
        part = content[first * 8 : last * 8]
        more = int(last * 8 < len(content))
        if len(source) == 4:
            frames.append(_ipv4(source, destination, upper, part, offset=more << 13 | first, number=number))
        else:
            head = struct.pack("!BBHI", upper, 0, first << 3 | more, number)
            frames.append(_ipv6(source, destination, 44, head + part))
    return frames


def main() -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL)) as opened:
        opened.bind((_INTERFACE, 0))
        own = opened.getsockname()[4]
        for item in json.loads(sys.argv[1]):
            for frame in _frames(item, own):
                opened.send(frame.ljust(60, b"\0") if "raw" in item else frame)


main()
