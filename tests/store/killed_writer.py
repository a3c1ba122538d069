"""A process that writes as hard as it can until it is killed, and prints each write that was answered."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import sys
from pathlib import Path

from pinnace.store.sqlite.store import SqliteStore

WRITERS = 32
KEYS_PER_WRITER = 5


def signed(text: str) -> bytes:
    """A value of some size that shows whether it is whole."""
    body = text.encode() * random.randint(1, 300)
    return hashlib.sha256(body).digest() + body


def is_whole(value: bytes) -> bool:
    """Whether this is all of a value that `signed` made."""
    return hashlib.sha256(value[32:]).digest() == value[:32]


async def main(path: Path) -> None:
    """Write for ever. A line is `key revision`, or `key revision deleted`."""
    sys.setswitchinterval(0.0005)
    store = await SqliteStore.open(path)

    def report(line: str) -> None:
        os.write(1, line.encode())  # Short enough to be written whole or not at all.

    async def write(writer: int) -> None:
        while True:
            key = f"/{writer}/{random.randrange(KEYS_PER_WRITER)}"
            current = await store.get(key)
            if current is not None and random.random() < 0.2:
                report(f"{key} {await store.delete(key, expected=current.revision)} deleted\n")
            else:
                expected = 0 if current is None else current.revision
                report(f"{key} {await store.put(key, signed(key), expected=expected)}\n")

    async def compact() -> None:
        while True:
            await asyncio.sleep(0.03)
            await store.compact(store.revision - 200)

    async with asyncio.TaskGroup() as group:
        for writer in range(WRITERS):
            group.create_task(write(writer))
        group.create_task(compact())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
