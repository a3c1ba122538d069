"""Writes large answers as YAML or indented JSON, item by item, so that other requests are handled in between.

The bytes are those of `as_yaml` and `indent_json`. The pieces of a list are shared by many answers (see
`cache/item_groups.py`), and so are the pieces that are made of them here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable

import msgspec
import orjson

from pinnace.process.work_slices import Slices
from pinnace.serving.recent_values import RecentValues
from pinnace.serving.request.negotiation import indent_json
from pinnace.serving.request.yaml_output import yaml_chunks

KEPT_BYTES = 32 << 20
_LARGE_LIST = 64 * 1024
_OPEN_BRACKET, _COMMA = ord("["), ord(",")
_LIST_END = b"]}\n"

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


class FormattedPieces:
    """Formats large bodies. The formatted pieces of lists are kept for the next answers."""

    def __init__(self) -> None:
        self._known: RecentValues[tuple[bytes, bytes]] = RecentValues(KEPT_BYTES)
        """By the id of a piece, and the format: the piece, which keeps the id its own, and the formatted piece."""
        self._pending: dict[Hashable, asyncio.Future[None]] = {}

    async def yaml(self, body: bytes | list[bytes], slices: Slices) -> list[bytes]:
        """Return the YAML in pieces: to join them would hold the loop."""
        pieces: list[bytes] = []
        fields, groups = _split(body)
        self._known.make_room(4 * sum(map(len, groups)))
        for name, value in sorted(fields.items()):
            if groups and name == next(reversed(fields)):
                pieces.append(f"{name}:\n".encode())
                for group in groups:
                    pieces.append(await self._format(group, slices, is_yaml=True))
            else:
                pieces.append(await _yaml_field(name, value, slices))
        return pieces

    async def indented(self, body: bytes | list[bytes], slices: Slices) -> list[bytes]:
        """Return the indented JSON in pieces: to join them would hold the loop."""
        pieces: list[bytes] = []
        fields, groups = _split(body)
        self._known.make_room(4 * sum(map(len, groups)))
        for name, value in fields.items():
            pieces += (b",\n  " if pieces else b"{\n  ", orjson.dumps(name), b": ")
            if groups and name == next(reversed(fields)):
                pieces.append(b"[")
                for group in groups:
                    pieces.append(await self._format(group, slices, is_yaml=False))
                pieces.append(b"\n  ]")
            else:
                pieces.append(await _indented_field(value, slices))
        pieces.append(b"\n}")
        return pieces

    async def _format(self, group: bytes, slices: Slices, *, is_yaml: bool) -> bytes:
        """Return the formatted items of a list. Requests for the same items wait for the first."""
        key = (id(group), is_yaml)
        while (known := self._known.get(key)) is None:
            if (pending := self._pending.get(key)) is not None:
                await asyncio.shield(pending)
                continue
            done = self._pending[key] = asyncio.get_running_loop().create_future()
            try:
                formatted = await (_yaml_items(group, slices) if is_yaml else _indented_items(group, slices))
                self._known.put(key, (group, formatted), len(group) + len(formatted))
                return formatted
            finally:  # Also if the request is cancelled: then the next one formats the items.
                del self._pending[key]
                done.set_result(None)
        return known[1]


def _split(body: bytes | list[bytes]) -> tuple[dict[str, msgspec.Raw], list[bytes]]:
    """Return the fields of an object, and the groups of items of its last field if the object is a list in pieces."""
    if isinstance(body, bytes):
        return _fields(body), []
    begin, *groups = body
    if not groups or not groups[-1].endswith(_LIST_END) or not begin.endswith(b"["):
        return _fields(b"".join(body)), []
    if groups[-1] == _LIST_END:
        groups.pop()
    return _fields(begin + _LIST_END), groups


async def _yaml_field(name: str, value: msgspec.Raw, slices: Slices) -> bytes:
    chunks: list[str] = []
    if _is_large_list(value):
        chunks.append(f"{name}:\n")
        async for item in _each(value, slices):
            for chunk in yaml_chunks([orjson.loads(memoryview(item))]):
                chunks.append(chunk)
                await slices.pause()
    else:
        for chunk in yaml_chunks({name: orjson.loads(memoryview(value))}):
            chunks.append(chunk)
            await slices.pause()
    return "".join(chunks).encode()


async def _yaml_items(group: bytes, slices: Slices) -> bytes:
    chunks: list[str] = []
    for item in _items(_bracketed(group)):
        await slices.pause()
        for chunk in yaml_chunks([orjson.loads(memoryview(item))]):
            chunks.append(chunk)
            await slices.pause()
    return "".join(chunks).encode()


async def _indented_field(value: msgspec.Raw, slices: Slices) -> bytes:
    if not _is_large_list(value):
        await slices.pause()
        return indent_json(value).replace(b"\n", b"\n  ")
    pieces: list[bytes] = []
    async for item in _each(value, slices):
        pieces += (b",\n    " if pieces else b"[\n    ", indent_json(item).replace(b"\n", b"\n    "))
    return b"".join((*pieces, b"\n  ]"))


async def _indented_items(group: bytes, slices: Slices) -> bytes:
    pieces: list[bytes] = []
    before = b",\n    " if group[0] == _COMMA else b"\n    "
    for item in _items(_bracketed(group)):
        await slices.pause()
        pieces += (before, indent_json(item).replace(b"\n", b"\n    "))
        before = b",\n    "
    return b"".join(pieces)


def _bracketed(group: bytes) -> bytes:
    """Return the JSON list of the items of a group."""
    items = group[1:] if group[0] == _COMMA else group
    return b"[%b" % items[:-2] if group.endswith(_LIST_END) else b"[%b]" % items


def _is_large_list(value: msgspec.Raw) -> bool:
    view = memoryview(value)
    return len(view) >= _LARGE_LIST and view[0] == _OPEN_BRACKET


async def _each(value: msgspec.Raw, slices: Slices) -> AsyncIterator[msgspec.Raw]:
    for item in _items(value):
        await slices.pause()
        yield item
