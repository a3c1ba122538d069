"""The frames of HTTP/2 and the messages of gRPC in them, as clients and servers both write them."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD = Struct(">HBBBI")
"""The head of a frame: the length in two parts, the kind, the flags and the stream."""
MESSAGE = Struct(">BI")
"""The head of a message: whether it is compressed, and its length."""
SETTING = Struct(">HI")
FIRST_WINDOW = 65535
LARGEST_WINDOW = (1 << 31) - 1
"""Also the mask of a stream number."""
LARGEST_SENT = 16384
"""Every peer takes frames of this size. Larger ones would need more of its windows at once than it may ever grant."""
LARGEST_RECEIVED = 1 << 20
MOST_HEADER_BYTES = 1 << 16
"""The most bytes of the headers of one call, over all their frames."""
MOST_WAITING_BYTES = 8 << 20
"""A peer is disconnected when it leaves this many bytes of answers to its frames unread."""
DEFAULT_LARGEST_MESSAGE = 4 << 20
"""The largest message that a peer may send, as Go's library has it."""


class FrameKind(IntEnum):
    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Setting(IntEnum):
    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5


END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
CANCEL, REFUSED_STREAM, ENHANCE_YOUR_CALM = 8, 7, 11
"""Error codes of HTTP/2."""


class ProtocolFailed(ValueError):
    """The peer does not speak HTTP/2, or sends more than it may."""


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    size = len(payload)
    return HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def settings_frame(*settings: tuple[int, int]) -> bytes:
    return frame(FrameKind.SETTINGS, 0, 0, b"".join(SETTING.pack(*setting) for setting in settings))


def settings_in(payload: bytes) -> list[tuple[int, int]]:
    """Raise ProtocolFailed."""
    if len(payload) % SETTING.size:
        raise ProtocolFailed("a SETTINGS frame has a wrong length")
    return list(SETTING.iter_unpack(payload))


def message_frame_data(message: bytes) -> bytes:
    """Return a message as DATA frames carry it."""
    return MESSAGE.pack(0, len(message)) + message


def text(value: bytes) -> bytes:
    """Encode a header text, not compressed."""
    size = len(value)
    if size < 127:
        return bytes((size,)) + value
    size -= 127
    encoded = bytearray((127,))
    while size >= 128:
        encoded.append(size & 0x7F | 0x80)
        size >>= 7
    encoded.append(size)
    return bytes(encoded) + value


def literal(name: bytes, value: bytes) -> bytes:
    """Encode a header that no table holds."""
    return b"\x00" + text(name) + text(value)


def unpad(payload: bytes, flags: int) -> bytes:
    """Return the content of a frame with padding or a priority. Raise ProtocolFailed."""
    begin = padding = 0
    if flags & PADDED:
        if not payload:
            raise ProtocolFailed("a padded frame is empty")
        padding, begin = payload[0], 1
    if flags & PRIORITY:
        begin += 5
    if begin + padding > len(payload):
        raise ProtocolFailed("a frame is shorter than its padding")
    return payload[begin : len(payload) - padding]
