"""Writes large answers as YAML or indented JSON, item by item, so that other requests are handled in between.

The bytes are those of `as_yaml` and `indent_json`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import orjson

from pinnace.server.request.pretty import indent_json
from pinnace.server.request.yaml_output import yaml_chunks
from pinnace.server.slices import Slices

_LARGE_LIST = 64 * 1024
_OPEN_BRACKET = ord("[")
_CHUNKS_AT_ONCE = 64

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


async def yaml_in_slices(body: bytes, slices: Slices) -> list[bytes]:
    """Return the YAML in pieces: to join them would hold the loop."""
    chunks: list[str] = []
    pieces: list[bytes] = []
    for name, value in sorted(_fields(body).items()):
        if not _is_large_list(value):
            for chunk in yaml_chunks({name: orjson.loads(memoryview(value))}):
                chunks.append(chunk)
                await slices.pause()
            continue
        chunks.append(f"{name}:\n")
        async for item in _each(value, slices):
            for chunk in yaml_chunks([orjson.loads(memoryview(item))]):
                chunks.append(chunk)
                await slices.pause()
            if len(chunks) >= _CHUNKS_AT_ONCE:
                pieces.append("".join(chunks).encode())
                chunks.clear()
    pieces.append("".join(chunks).encode())
    return pieces


async def indented_in_slices(body: bytes, slices: Slices) -> list[bytes]:
    """Return the JSON in pieces: to join them would hold the loop."""
    pieces: list[bytes] = []
    for name, value in _fields(body).items():
        pieces += (b",\n  " if pieces else b"{\n  ", orjson.dumps(name), b": ")
        if not _is_large_list(value):
            await slices.pause()
            pieces.append(indent_json(value).replace(b"\n", b"\n  "))
            continue
        before = b"[\n    "
        async for item in _each(value, slices):
            pieces += (before, indent_json(item).replace(b"\n", b"\n    "))
            before = b",\n    "
        pieces.append(b"\n  ]")
    pieces.append(b"\n}")
    return pieces


def _is_large_list(value: msgspec.Raw) -> bool:
    view = memoryview(value)
    return len(view) >= _LARGE_LIST and view[0] == _OPEN_BRACKET


async def _each(value: msgspec.Raw, slices: Slices) -> AsyncIterator[msgspec.Raw]:
    for item in _items(value):
        await slices.pause()
        yield item
