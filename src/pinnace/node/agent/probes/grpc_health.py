"""One call of gRPC's health protocol over an open connection, for probes. HTTP/2 by hand: one request, no library.

Only the message of the answer is read. Its headers are compressed, and a probe needs none of them.
"""

from __future__ import annotations

import struct

from pinnace.process.byte_streams import ByteReader, Duplex

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GO_AWAY = 0, 1, 3, 4, 6, 7
_ACKNOWLEDGED, _END_STREAM, _END_HEADERS, _PADDED = 1, 1, 4, 8
_MOST_BYTES = 64 << 10
"""Of a whole answer: a pod may send frames without end, and has as long as the probe states."""
_NAMES = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}
SERVING = "SERVING"


async def check_health(connection: Duplex, service: str, authority: str) -> str:
    """Return the state of a service: SERVING, NOT_SERVING, UNKNOWN or SERVICE_UNKNOWN; empty without an answer.

    Raise EOFError or ValueError if the other side does not speak HTTP/2, or says too much.
    """
    reader = _BoundedReader(connection.reader)
    connection.writer.write(_request(service, authority))
    await connection.writer.drain()
    received = b""
    while True:
        kind, flags, stream, payload = await _read_frame(reader)
        if kind == _SETTINGS and not flags & _ACKNOWLEDGED:
            connection.writer.write(_frame(_SETTINGS, _ACKNOWLEDGED, 0, b""))
        elif kind == _PING and not flags & _ACKNOWLEDGED:
            connection.writer.write(_frame(_PING, _ACKNOWLEDGED, 0, payload))
        elif kind == _DATA and stream == 1:
            received += payload[1 : len(payload) - payload[0]] if flags & _PADDED and payload else payload
            state = _state_in(received)
            if state:
                return state
        if kind in (_RESET, _GO_AWAY) or (stream == 1 and kind in (_DATA, _HEADERS) and flags & _END_STREAM):
            return ""


def _request(service: str, authority: str) -> bytes:
    name = service.encode()
    message = (b"\x0a" + _varint(len(name)) + name) if name else b""
    headers = b"".join(
        _literal(key, value)
        for key, value in (
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/grpc.health.v1.Health/Check"),
            (":authority", authority),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            ("user-agent", "kube-probe/pinnace"),
        )
    )
    body = b"\0" + struct.pack(">I", len(message)) + message
    return (
        _PREFACE
        + _frame(_SETTINGS, 0, 0, b"")
        + _frame(_HEADERS, _END_HEADERS, 1, headers)
        + _frame(_DATA, _END_STREAM, 1, body)
    )


def _state_in(received: bytes) -> str:
    """The state in a whole message; empty if more of it is to come."""
    if len(received) < 5:
        return ""
    size = struct.unpack(">I", received[1:5])[0]
    if len(received) < 5 + size:
        return ""
    message = received[5 : 5 + size]
    # A message without a field has its default, UNKNOWN. The state is field 1, a small number.
    number = message[1] if len(message) >= 2 and message[0] == 8 else 0
    return _NAMES.get(number, str(number))


def _literal(name: str, value: str) -> bytes:
    """A header field that is neither indexed nor compressed (RFC 7541, 6.2.2)."""
    return b"\0" + _text(name) + _text(value)


def _text(text: str) -> bytes:
    data = text.encode()
    if len(data) < 127:
        return bytes([len(data)]) + data
    return b"\x7f" + _varint(len(data) - 127) + data


def _varint(number: int) -> bytes:
    made = bytearray()
    while number >= 128:
        made.append(number % 128 + 128)
        number //= 128
    return bytes([*made, number])


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


async def _read_frame(reader: _BoundedReader) -> tuple[int, int, int, bytes]:
    head = await reader.read_exactly(9)
    size = int.from_bytes(head[:3])
    return head[3], head[4], struct.unpack(">I", head[5:])[0] & 0x7FFFFFFF, await reader.read_exactly(size)


class _BoundedReader:
    """Reads an answer up to its largest size: neither memory nor turns of the loop grow with what a pod sends."""

    def __init__(self, reader: ByteReader) -> None:
        self._reader = reader
        self._left = _MOST_BYTES

    async def read_exactly(self, size: int) -> bytes:
        """Raise EOFError at the end of the connection, and ValueError beyond the largest size."""
        if size > self._left:
            raise ValueError(f"the answer is not HTTP/2, or longer than {_MOST_BYTES} bytes")
        self._left -= size
        data = b""
        while len(data) < size:
            chunk = await self._reader.read(size - len(data))
            if not chunk:
                raise EOFError("the connection was closed before an answer")
            data += chunk
        return data
