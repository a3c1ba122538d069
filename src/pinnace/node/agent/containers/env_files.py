"""Variables from files of volumes (`fileKeyRef`), which containers of the pod write: they may hold anything."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from pinnace.model.typed_objects import FileKeySelector
from pinnace.node.errors import ConfigRefused

_MOST_BYTES = 1 << 20
_MOST_TOTAL = 8 << 20
"""The most bytes of all files that the variables of one container are read from."""
_UNREADABLE = "couldn't parse env file"
_log = logging.getLogger(__name__)

OpenFile = Callable[[str, str], Awaitable[BinaryIO]]
"""Opens a file of a volume of the pod, by the name of the volume and a path in it. Raises OSError."""


@dataclass(slots=True)
class EnvFile:
    """The variables of a file up to the first line that is wrong."""

    values: dict[str, str]
    error: str = ""
    """kubelet's message for that line; empty if there is none."""

    def value(self, key: str) -> str:
        """Return the value of a variable; empty if it has none. Raise ValueError if a line before it is wrong."""
        if key not in self.values and self.error:
            raise ValueError(self.error)
        return self.values.get(key, "")


class EnvFiles:
    """The files that the variables of one container name: each is read once, in a thread."""

    def __init__(self, open_file: OpenFile) -> None:
        self._open_file = open_file
        self._files: dict[tuple[str, str], EnvFile] = {}
        self._size = 0

    async def value(self, reference: FileKeySelector) -> str | None:
        """Return the value of a variable; None for an optional one without value. Raise ConfigRefused."""
        volume, path, key = reference["volumeName"], reference["path"], reference["key"]
        try:
            if (volume, path) not in self._files:
                self._files[volume, path] = await self._read(volume, path)
            value = self._files[volume, path].value(key)
        except (OSError, ValueError) as error:
            _log.info("the file %s of volume %s: %s", path, volume, error)
            raise ConfigRefused(_UNREADABLE) from error
        if not value and not reference.get("optional"):
            raise ConfigRefused(f'environment variable key "{key}" not found in file "{path}"')
        return value or None

    async def _read(self, volume: str, path: str) -> EnvFile:
        if "\0" in path:
            raise ValueError("its path has a null character")
        with await self._open_file(volume, path) as file:
            content = await asyncio.to_thread(file.read, _MOST_BYTES + 1)
        self._size += len(content)
        if len(content) > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES} bytes")
        if self._size > _MOST_TOTAL:
            raise ValueError(f"it and the files of other variables have more than {_MOST_TOTAL} bytes")
        return await asyncio.to_thread(read_env_file, content.decode(errors="replace"))


def read_env_file(text: str) -> EnvFile:
    """Read a file of lines such as NAME='value'. Of several lines with a name the first counts.

    Only values in single quotes are taken, which may span lines; nothing in them is replaced.
    """
    file = EnvFile({})
    try:
        for name, value in _variables(text):
            file.values.setdefault(name, value)
    except ValueError as error:
        file.error = str(error)
    return file


def _variables(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values. Raise ValueError for a line that is wrong, with kubelet's message."""
    lines = enumerate(text.split("\n"), start=1)
    for number, line in lines:
        stated = line.removesuffix("\r").lstrip(" \t")
        if not stated or stated.startswith("#"):
            continue
        name, equals, rest = stated.partition("=")
        where = f"invalid environment variable format at line {number}"
        if not equals:
            raise ValueError(f"{where}: missing '='")
        if not name.rstrip(" \t"):
            raise ValueError(f"{where}: empty variable name")
        if name != name.rstrip(" \t"):
            raise ValueError(f"{where}: whitespace before '=' is not allowed")
        if rest.startswith((" ", "\t")):
            yield name, ""
            continue
        if not rest.startswith("'"):
            raise ValueError(f"{where}: value must be enclosed in single quotes")
        yield name, _quoted(rest[1:], lines, number)


def _quoted(rest: str, lines: Iterator[tuple[int, str]], began: int) -> str:
    """Return the text up to the closing quote, which may be in one of the next lines."""
    parts, number = list[str](), began
    while "'" not in rest:
        parts.append(rest)
        number, rest = next(lines, (0, ""))
        rest = rest.removesuffix("\r")
        if not number:
            raise ValueError(f"invalid environment variable format starting at line {began}: unclosed single quote")
    value, _, after = rest.partition("'")
    after = after.lstrip(" \t")
    if after and not after.startswith("#"):
        raise ValueError(
            f"invalid environment variable format at line {number}: unexpected content after closing quote"
        )
    return "\n".join((*parts, value))
