"""Find the blocks of a PEM text, in time that is linear in the text."""

from __future__ import annotations

from collections.abc import Iterator

_BEGIN, _END, _CLOSE = b"-----BEGIN ", b"-----END ", b"-----"


def find_blocks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the type of each block, and the text between its first and its last line."""
    at = end = 0
    while (start := data.find(_BEGIN, at)) >= 0:
        at = data.find(b"\n", start) + 1
        first_line = data[start + len(_BEGIN) : at].rstrip()
        if not at:
            return
        if end < at and (end := data.find(_END, at)) < 0:
            return
        inner = data.find(_BEGIN, at, end)
        if inner >= 0:  # No block holds another: the first one has no end.
            at = inner
            continue
        block_type = first_line.removesuffix(_CLOSE)
        if first_line.endswith(_CLOSE) and data.startswith(_END + block_type + _CLOSE, end):
            yield block_type, data[at:end]
            at = end
