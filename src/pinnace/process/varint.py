"""Unsigned numbers as protobuf writes them: seven bits in each byte, the lowest first."""

from __future__ import annotations

_SINGLE = tuple(bytes((byte,)) for byte in range(128))


def encode_varint(value: int) -> bytes:
    if value < 128:
        return _SINGLE[value]
    pieces = bytearray()
    while value > 127:
        pieces.append(value & 127 | 128)
        value >>= 7
    pieces.append(value)
    return bytes(pieces)
